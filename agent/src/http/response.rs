//! What a handler gives back: a status, headers and a body that is bytes, a stream or a taken-over connection.
//!
//! Written out by `connection`. Invariant: the head is sent together with the first bytes of the body, so a stream that fails
//! before its first write can still become an error answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use serde::Serialize;

use super::connection::Connection;
use super::Upgraded;
use crate::error::Result;

type Job = Pin<Box<dyn Future<Output = Result<()>>>>;
type StreamFn = Box<dyn FnOnce(BodyWriter) -> Job>;
type UpgradeFn = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()>>>>;

pub enum Body {
    Bytes(Vec<u8>),
    /// Chunked, or of the given length.
    Stream {
        length: Option<u64>,
        write: StreamFn,
    },
    /// After the head the connection belongs to the function.
    Upgrade(UpgradeFn),
}

pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Body,
}

impl Response {
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Bytes(Vec::new()) }
    }

    pub fn bytes(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        Self::empty(status).header("Content-Type", content_type).body(Body::Bytes(body))
    }

    pub fn json<T: Serialize>(status: u16, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::bytes(status, "application/json", body),
            Err(_) => Self::empty(500),
        }
    }

    /// A body the function writes piece by piece; an error after the first piece breaks the connection off.
    pub fn stream<F, W>(status: u16, content_type: &str, write: W) -> Self
    where
        F: Future<Output = Result<()>> + 'static,
        W: FnOnce(BodyWriter) -> F + 'static,
    {
        let write: StreamFn = Box::new(move |writer| Box::pin(write(writer)));
        Self::empty(status).header("Content-Type", content_type).body(Body::Stream { length: None, write })
    }

    /// Says how long the streamed body is, instead of chunking it.
    pub fn with_length(mut self, bytes: u64) -> Self {
        if let Body::Stream { length, .. } = &mut self.body {
            *length = Some(bytes);
        }
        self
    }

    /// 101 with `headers`; then `run` owns the raw connection until it returns.
    pub fn upgrade<F, R>(headers: Vec<(String, String)>, run: R) -> Self
    where
        F: Future<Output = ()> + 'static,
        R: FnOnce(Upgraded) -> F + 'static,
    {
        Self { status: 101, headers, body: Body::Upgrade(Box::new(move |io| Box::pin(run(io)))) }
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// Status line and headers with the framing of the body.
    pub(super) fn head(&self, close: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            let value: String = value.chars().filter(|c| !c.is_control()).collect();
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match &self.body {
            Body::Bytes(body) if self.status != 204 && self.status != 304 && !self.has("content-length") => {
                head.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
            Body::Stream { length: Some(bytes), .. } => head.push_str(&format!("Content-Length: {bytes}\r\n")),
            Body::Stream { length: None, .. } => head.push_str("Transfer-Encoding: chunked\r\n"),
            Body::Bytes(_) | Body::Upgrade(_) => {}
        }
        if close {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }
}

/// Where a streaming handler writes its body; each `write` is sent at once and waits while the client is slow.
pub struct BodyWriter {
    connection: Rc<Connection>,
    chunked: bool,
    silent: bool,
}

impl BodyWriter {
    pub(super) fn new(connection: Rc<Connection>, chunked: bool, silent: bool) -> Self {
        Self { connection, chunked, silent }
    }

    /// Sends the head now, when the first bytes of the body may be long in coming.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.connection.send(b"").await
    }

    pub async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        if data.is_empty() || self.silent {
            return Ok(());
        }
        if !self.chunked {
            return self.connection.send(data).await;
        }
        let mut framed = Vec::with_capacity(data.len() + 16);
        framed.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        framed.extend_from_slice(data);
        framed.extend_from_slice(b"\r\n");
        self.connection.send(&framed).await
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        507 => "Insufficient Storage",
        _ => "Status",
    }
}
