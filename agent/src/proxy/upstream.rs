//! The server's side of an exchange: reads the head and the body of its answer.
//!
//! Called by `proxy`, and for requests of the agent's own. Invariant: an answer that ends early is an error, not a short body.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{broken, is_hop_by_hop, Reader, Target, Writer};
use crate::error::Result;
use crate::http::{Decoder, Headers, Response, Step};

const MAX_HEAD_BYTES: usize = 128 << 10;
const MAX_HEADERS: usize = 128;
const READ_BYTES: usize = 64 << 10;

/// Sends a request of the agent's own.
pub async fn send(target: Target, method: &str, body: &[u8]) -> Result<Streaming> {
    let Target { reader, mut writer, path, extra, name } = target;
    let length = body.len();
    let mut data = format!("{method} {path} HTTP/1.1\r\n{extra}Content-Length: {length}\r\nConnection: close\r\n\r\n")
        .into_bytes();
    data.extend_from_slice(body);
    writer.write_all(&data).await.map_err(|error| broken(&name, &error))?;
    let mut upstream = Upstream { reader, input: Vec::new() };
    let answer = upstream.answer().await.map_err(|error| broken(&name, &error))?;
    Ok(Streaming { answer, upstream, _writer: writer })
}

/// An answer whose body is still coming; dropping it closes the connection.
pub struct Streaming {
    answer: Answer,
    upstream: Upstream,
    _writer: Writer,
}

impl Streaming {
    pub fn status(&self) -> u16 {
        self.answer.status
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.answer.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The next bytes of the body, `None` at its end.
    pub async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.upstream.body(&mut self.answer.framing).await
    }

    pub async fn read_all(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(data) = self.next().await? {
            all.extend_from_slice(&data);
        }
        Ok(all)
    }

    /// The answer as ours, streaming on; `done` is dropped with it.
    pub fn pass_on(mut self, done: impl Sized + 'static) -> Response {
        let headers = std::mem::take(&mut self.answer.headers);
        let mut response = Response::stream(self.answer.status, "", move |mut out| async move {
            let _done = done;
            while let Some(data) = self.next().await? {
                out.write(&data).await?;
            }
            Ok(())
        });
        response.headers = headers;
        response
    }
}

/// How an answer's body ends.
#[derive(Debug)]
pub enum Framing {
    Length(u64),
    Chunked(Decoder),
    UntilClose,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub framing: Framing,
}

/// The server's side of the exchange.
pub struct Upstream {
    pub reader: Reader,
    /// Bytes behind the head that are not passed on yet.
    pub input: Vec<u8>,
}

impl Upstream {
    /// Reads the head of the final answer.
    pub async fn answer(&mut self) -> io::Result<Answer> {
        loop {
            if let Some((length, answer)) = parse(&self.input)? {
                self.input.drain(..length);
                if answer.status >= 200 || answer.status == 101 {
                    return Ok(answer);
                }
            } else if self.input.len() > MAX_HEAD_BYTES {
                return Err(invalid("the answer's head is too large"));
            } else if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    pub async fn fill(&mut self) -> io::Result<bool> {
        self.input.reserve(READ_BYTES);
        Ok(self.reader.read_buf(&mut self.input).await? > 0)
    }

    /// The next bytes of the body, `None` at its end.
    pub async fn body(&mut self, framing: &mut Framing) -> io::Result<Option<Vec<u8>>> {
        loop {
            match framing {
                Framing::Length(0) => return Ok(None),
                Framing::Chunked(decoder) => match decoder.step(&mut self.input)? {
                    Step::Data(data) => return Ok(Some(data)),
                    Step::Done => return Ok(None),
                    Step::NeedMore => {}
                },
                Framing::Length(left) if !self.input.is_empty() => {
                    let take = usize::try_from(*left).unwrap_or(usize::MAX).min(self.input.len());
                    let rest = self.input.split_off(take);
                    *left -= take as u64;
                    return Ok(Some(std::mem::replace(&mut self.input, rest)));
                }
                Framing::UntilClose if !self.input.is_empty() => return Ok(Some(std::mem::take(&mut self.input))),
                Framing::Length(_) | Framing::UntilClose => {}
            }
            if !self.fill().await? {
                let ended = matches!(framing, Framing::UntilClose);
                return if ended { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }
}

pub fn parse(input: &[u8]) -> io::Result<Option<(usize, Answer)>> {
    let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut slots);
    let length = match parsed.parse(input).map_err(|error| invalid(&error.to_string()))? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let copy = |h: &httparse::Header<'_>| (h.name.to_owned(), String::from_utf8_lossy(h.value).into_owned());
    let all = Headers(parsed.headers.iter().map(copy).collect());
    let status = parsed.code.unwrap_or(502);
    let framing = framing(&all)?;
    let connection = all.get("connection").map(str::to_owned);
    let upgrade = all.get("upgrade").filter(|_| status == 101).map(str::to_owned);
    let Headers(mut headers) = all;
    headers.retain(|(name, _)| {
        !is_hop_by_hop(connection.as_deref(), name) && !name.eq_ignore_ascii_case("content-length")
    });
    if let Some(protocol) = upgrade {
        headers.extend([("Connection".to_owned(), "Upgrade".to_owned()), ("Upgrade".to_owned(), protocol)]);
    }
    Ok(Some((length, Answer { status, headers, framing })))
}

fn framing(headers: &Headers) -> io::Result<Framing> {
    if headers.get("transfer-encoding").is_some_and(|v| v.to_ascii_lowercase().contains("chunked")) {
        return Ok(Framing::Chunked(Decoder::new()));
    }
    match headers.get("content-length") {
        None => Ok(Framing::UntilClose),
        Some(length) => {
            length.trim().parse().map(Framing::Length).map_err(|_| invalid("Content-Length is not a number"))
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_its_headers_but_not_its_framing() {
        let wire =
            b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 3\r\nKeep-Alive: 1\r\n\r\nabc";
        let (length, answer) = parse(wire).unwrap().unwrap();
        assert_eq!(&wire[length..], b"abc");
        assert_eq!(answer.headers.len(), 2);
        assert!(matches!(answer.framing, Framing::Length(3)));
        assert!(parse(&wire[..20]).unwrap().is_none());
        assert!(parse(b"SSH-2.0-x\r\n\r\n").is_err());
    }
}
