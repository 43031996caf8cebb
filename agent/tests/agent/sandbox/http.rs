//! A plain HTTP/1.1 client over a unix socket: one connection a request, so that a test can break one off.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::PATIENCE;

pub struct Call {
    stream: UnixStream,
    head: String,
    body: Vec<u8>,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Call {
    pub fn new(socket: &Path, method: &str, target: &str) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n");
        Self { stream, head, body: Vec::new() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self
    }

    pub fn bytes(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// Sends it and leaves the answer to be read from the stream, or not.
    pub fn begin(mut self) -> UnixStream {
        let head = format!("{}Content-Length: {}\r\n\r\n", self.head, self.body.len());
        self.stream.write_all(&[head.as_bytes(), &self.body].concat()).unwrap();
        self.stream
    }

    pub fn send(self) -> Answer {
        Answer::read(self.begin())
    }
}

impl Answer {
    /// The rest of a stream that `Call::begin` left.
    pub fn read(mut stream: UnixStream) -> Self {
        let mut raw = Vec::new();
        stream.read_to_end(&mut raw).unwrap();
        Self::parse(&raw)
    }

    fn parse(raw: &[u8]) -> Self {
        let end = raw.windows(4).position(|w| w == b"\r\n\r\n").expect("an answer has a head");
        let head = String::from_utf8(raw[..end].to_vec()).unwrap();
        let status = head[9..12].parse().unwrap();
        let chunked = head.contains("Transfer-Encoding: chunked");
        let body = &raw[end + 4..];
        Self { status, body: if chunked { unchunk(body) } else { body.to_vec() }, head }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Events of the execd form.
    pub fn bare_events(&self) -> Vec<Value> {
        self.text().split("\n\n").filter(|f| !f.is_empty()).map(|f| serde_json::from_str(f).unwrap()).collect()
    }

    /// Events of the standard form: name and data.
    pub fn events(&self) -> Vec<(String, Value)> {
        let frames = self.text();
        let frames = frames.split("\n\n").filter(|f| f.starts_with("event: "));
        let parse = |frame: &str| {
            let (name, data) = frame["event: ".len()..].split_once("\ndata: ").unwrap();
            (name.to_owned(), serde_json::from_str(data).unwrap())
        };
        frames.map(parse).collect()
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let end = body.windows(2).position(|w| w == b"\r\n").expect("a chunk has a size");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return out;
        }
        out.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 2 + size + 2..];
    }
}
