//! What a handler sees of a request: method, path, query, headers and a body it can stream.
//!
//! Made by `connection`, read by every handler. Invariant: the body is read at the handler's pace; nothing is buffered beyond one
//! socket read.

use std::io;
use std::rc::Rc;

use serde::de::DeserializeOwned;

use super::connection::Connection;
use crate::error::{Error, Result};

/// Largest JSON body a route takes.
const MAX_JSON_BYTES: usize = 8 << 20;

pub struct Request {
    pub method: String,
    /// As sent, still percent-encoded, without the query.
    pub path: String,
    /// As sent, without the `?`.
    pub raw_query: String,
    pub query: Query,
    pub headers: Headers,
    pub body: RequestBody,
}

impl Request {
    /// The path's segments, percent-decoded: `/a/b%20c` is `["a", "b c"]`.
    pub fn segments(&self) -> Vec<String> {
        self.path.split('/').filter(|s| !s.is_empty()).map(|s| percent_decode(s, false)).collect()
    }

    /// Reads the whole body as JSON; an empty body reads as `{}`.
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let body = self.body.read_all(MAX_JSON_BYTES).await?;
        let body = if body.is_empty() { b"{}".to_vec() } else { body };
        Ok(serde_json::from_slice(&body)?)
    }

    pub fn wants_events(&self) -> bool {
        self.headers.get("accept").is_some_and(|v| v.contains("text/event-stream"))
    }

    pub fn wants_upgrade(&self) -> bool {
        self.headers.get("upgrade").is_some_and(|v| v.eq_ignore_ascii_case("websocket"))
    }
}

#[derive(Debug, Default, Clone)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// First value of the header, name compared without case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

#[derive(Debug, Default, Clone)]
pub struct Query(pub Vec<(String, String)>);

impl Query {
    pub fn parse(raw: &str) -> Self {
        let pairs = raw.split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(name, true), percent_decode(value, true))
        });
        Self(pairs.collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The parameter, or a 400 that names it.
    pub fn required(&self, name: &str) -> Result<&str> {
        self.get(name).filter(|v| !v.is_empty()).ok_or_else(|| Error::query(name))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| matches!(v, "" | "1" | "true" | "True" | "yes"))
    }

    /// A number, `None` when absent, a 400 when unreadable.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>> {
        match self.get(name).filter(|v| !v.is_empty()) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| Error::query(name)),
        }
    }
}

/// The request's body; `chunk` until `None`.
pub struct RequestBody {
    connection: Rc<Connection>,
}

impl RequestBody {
    pub(super) fn new(connection: Rc<Connection>) -> Self {
        Self { connection }
    }

    /// Next piece of the body as it came from the socket (up to 64 KiB), `None` at its end.
    pub async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.connection.body_chunk().await
    }

    /// The declared length, `None` when chunked.
    pub fn declared_length(&self) -> Option<u64> {
        self.connection.declared_length()
    }

    /// The whole body; 413 beyond `limit` bytes.
    pub async fn read_all(&mut self, limit: usize) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if all.len() + chunk.len() > limit {
                return Err(too_large(limit));
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }
}

fn too_large(limit: usize) -> Error {
    Error::new(413, "request_too_large", "INVALID_REQUEST_BODY", format!("the body is larger than {limit} bytes"))
        .remedy("write large data as a file and refer to it")
}

/// Decodes `%XX`, and `+` as a space in queries; bytes that are no UTF-8 are replaced.
pub fn percent_decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let hex = |b: u8| (b as char).to_digit(16);
    let mut i = 0;
    while i < bytes.len() {
        let escaped = match (bytes[i], bytes.get(i + 1), bytes.get(i + 2)) {
            (b'%', Some(&high), Some(&low)) => hex(high).zip(hex(low)).map(|(h, l)| (h * 16 + l) as u8),
            _ => None,
        };
        out.push(escaped.unwrap_or(if plus_is_space && bytes[i] == b'+' { b' ' } else { bytes[i] }));
        i += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_decode_and_repeat() {
        let query = Query::parse("path=%2Fa%20b&path=c+d&flag&bad=%zz");
        assert_eq!(query.all("path").collect::<Vec<_>>(), ["/a b", "c d"]);
        assert!(query.flag("flag"));
        assert_eq!(query.get("bad"), Some("%zz"));
        assert!(query.required("none").is_err());
        assert!(query.number::<u64>("bad").is_err());
    }
}
