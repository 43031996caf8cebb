//! One HTTP/1.1 connection: reads requests, runs the handler, writes answers, keeps alive.
//!
//! Called by `listener`. Invariants: one request at a time; a handler is dropped when its client is gone; buffers are freed
//! while the connection idles.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::rc::Rc;

use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::chunked::{Decoder, Step};
use super::{Body, BodyWriter, Headers, Query, Request, RequestBody, Response, Upgraded};

const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
const READ_BYTES: usize = 64 << 10;
/// An unread body up to this long is read past so that the connection can be kept.
const MAX_DRAIN_BYTES: usize = 1 << 20;

enum Incoming {
    Length(u64),
    Chunked(Decoder),
    Done,
}

pub struct Connection {
    stream: UnixStream,
    input: RefCell<Vec<u8>>,
    incoming: RefCell<Incoming>,
    declared: Cell<Option<u64>>,
    body_read: Notify,
    expects_continue: Cell<bool>,
    /// Head of the answer, held back until its first bytes of body.
    head: RefCell<Vec<u8>>,
}

/// Serves one connection until its client leaves.
pub async fn serve<H, F>(stream: UnixStream, handle: &H)
where
    H: Fn(Request) -> F,
    F: Future<Output = Response>,
{
    Connection::serve(stream, handle).await;
}

struct Head {
    request: Request,
    keep_alive: bool,
}

impl Connection {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: RefCell::default(),
            incoming: RefCell::new(Incoming::Done),
            declared: Cell::new(None),
            body_read: Notify::new(),
            expects_continue: Cell::new(false),
            head: RefCell::default(),
        }
    }

    /// Serves until the client leaves or the protocol is broken.
    pub async fn serve<H, F>(stream: UnixStream, handle: &H)
    where
        H: Fn(Request) -> F,
        F: Future<Output = Response>,
    {
        let connection = Rc::new(Self::new(stream));
        while let Ok(true) = connection.clone().exchange(handle).await {
            if connection.input.borrow().is_empty() {
                connection.input.replace(Vec::new());
            }
        }
    }

    /// One request and its answer; `false` ends the connection.
    async fn exchange<H, F>(self: Rc<Self>, handle: &H) -> io::Result<bool>
    where
        H: Fn(Request) -> F,
        F: Future<Output = Response>,
    {
        let head = match self.read_head().await {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(false),
            Err(error) => return self.refuse(&error).await,
        };
        let (silent, keep_alive) = (head.request.method == "HEAD", head.keep_alive);
        let response = tokio::select! {
            biased;
            response = handle(head.request) => response,
            () = self.gone() => return Ok(false),
        };
        self.answer(response, silent, keep_alive).await
    }

    async fn refuse(&self, error: &io::Error) -> io::Result<bool> {
        if error.kind() == io::ErrorKind::InvalidData {
            let body = serde_json::json!({"code": "invalid_request", "message": error.to_string()});
            let response = Response::json(400, &body);
            let Body::Bytes(body) = &response.body else { return Ok(false) };
            self.send(&[response.head(true), body.clone()].concat()).await?;
        }
        Ok(false)
    }

    async fn answer(self: Rc<Self>, response: Response, silent: bool, keep_alive: bool) -> io::Result<bool> {
        let close = !keep_alive;
        let head = response.head(close && response.status != 101);
        match response.body {
            Body::Bytes(body) => {
                self.send(&if silent { head } else { [head, body].concat() }).await?;
            }
            Body::Stream { length, write } => {
                self.head.replace(head);
                let writer = BodyWriter::new(self.clone(), length.is_none(), silent);
                let done = tokio::select! { done = write(writer) => done, () = self.gone() => return Ok(false) };
                if !self.end_stream(done.is_ok(), length.is_none() && !silent).await? {
                    return Ok(false);
                }
            }
            Body::Upgrade(run) => {
                self.send(&head).await?;
                run(Upgraded::new(self.clone())).await;
                return Ok(false);
            }
        }
        Ok(keep_alive && self.drain_body().await)
    }

    /// Sends what ends a stream; `false` when it failed, so that the client sees a broken body and not a short one.
    async fn end_stream(&self, ok: bool, chunked: bool) -> io::Result<bool> {
        if !ok {
            return Ok(false);
        }
        self.send(if chunked { b"0\r\n\r\n" } else { b"" }).await?;
        Ok(true)
    }

    /// Sends the held-back head and `data` in one write where the socket takes it.
    pub async fn send(&self, data: &[u8]) -> io::Result<()> {
        let mut head = self.head.take();
        if head.is_empty() {
            return self.write_all(data).await;
        }
        head.extend_from_slice(data);
        self.write_all(&head).await
    }

    async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            match self.stream.try_write(data) {
                Ok(sent) => data = &data[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Resolves when the client has closed its end. Waits with reading until the body is read, keeps what is pipelined.
    async fn gone(&self) {
        while !matches!(*self.incoming.borrow(), Incoming::Done) {
            self.body_read.notified().await;
        }
        while self.input.borrow().len() < MAX_HEAD_BYTES {
            if !matches!(self.fill(4096).await, Ok(true)) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Reads once into `input`; `false` at end of stream.
    async fn fill(&self, bytes: usize) -> io::Result<bool> {
        loop {
            self.stream.readable().await?;
            let mut input = self.input.borrow_mut();
            input.reserve(bytes);
            match self.stream.try_read_buf(&mut *input) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Raw bytes of an upgraded connection.
    pub async fn receive(&self) -> io::Result<Vec<u8>> {
        if self.input.borrow().is_empty() && !self.fill(READ_BYTES).await? {
            return Ok(Vec::new());
        }
        Ok(self.input.take())
    }

    pub fn declared_length(&self) -> Option<u64> {
        self.declared.get()
    }

    pub async fn body_chunk(&self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(step) = self.take_body()? {
                return Ok(step);
            }
            if self.expects_continue.take() {
                self.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            if !self.fill(READ_BYTES).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// A piece of the body that is already here: `None` when more must be read, `Some(None)` at its end.
    fn take_body(&self) -> io::Result<Option<Option<Vec<u8>>>> {
        let (mut incoming, mut input) = (self.incoming.borrow_mut(), self.input.borrow_mut());
        let piece = match &mut *incoming {
            Incoming::Done => Some(None),
            Incoming::Length(_) if input.is_empty() => None,
            Incoming::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                let rest = input.split_off(take);
                *left -= take as u64;
                Some(Some(std::mem::replace(&mut *input, rest)))
            }
            Incoming::Chunked(decoder) => match decoder.step(&mut input)? {
                Step::Data(data) => Some(Some(data)),
                Step::NeedMore => None,
                Step::Done => Some(None),
            },
        };
        let ended = match &*incoming {
            Incoming::Length(left) => *left == 0,
            Incoming::Chunked(decoder) => decoder.is_done(),
            Incoming::Done => false,
        };
        if ended {
            *incoming = Incoming::Done;
            self.body_read.notify_waiters();
        }
        Ok(piece)
    }

    async fn drain_body(&self) -> bool {
        let mut drained = 0;
        while drained <= MAX_DRAIN_BYTES && !self.expects_continue.get() {
            match self.body_chunk().await {
                Ok(Some(chunk)) => drained += chunk.len(),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    async fn read_head(self: &Rc<Self>) -> io::Result<Option<Head>> {
        loop {
            if let Some(head) = self.parse_head()? {
                return Ok(Some(head));
            }
            if self.input.borrow().len() > MAX_HEAD_BYTES {
                return Err(invalid("the request's head is too large"));
            }
            if !self.fill(4096).await? {
                return Ok(None);
            }
        }
    }

    fn parse_head(self: &Rc<Self>) -> io::Result<Option<Head>> {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            return Ok(None);
        }
        let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut slots);
        let length = match parsed.parse(&input).map_err(|e| invalid(&format!("not an HTTP/1.1 request: {e}")))? {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial => return Ok(None),
        };
        let headers = copy_headers(parsed.headers);
        let target = parsed.path.unwrap_or("/").to_owned();
        let (method, version) = (parsed.method.unwrap_or_default().to_owned(), parsed.version.unwrap_or(1));
        input.drain(..length);
        drop(input);
        self.begin_body(&headers)?;
        let (path, raw_query) = target.split_once('?').unwrap_or((&target, ""));
        let keep_alive = version == 1 && !header_has(&headers, "connection", "close");
        let request = Request {
            method,
            path: path.to_owned(),
            query: Query::parse(raw_query),
            raw_query: raw_query.to_owned(),
            headers,
            body: RequestBody::new(self.clone()),
        };
        Ok(Some(Head { request, keep_alive }))
    }

    fn begin_body(&self, headers: &Headers) -> io::Result<()> {
        let length = headers.get("content-length").map(|v| v.trim().parse::<u64>());
        let length = length.transpose().map_err(|_| invalid("Content-Length is not a number"))?;
        let chunked = header_has(headers, "transfer-encoding", "chunked");
        if chunked && length.is_some() {
            return Err(invalid("both Content-Length and Transfer-Encoding"));
        }
        self.declared.set(if chunked { None } else { Some(length.unwrap_or(0)) });
        let has_body = chunked || length.is_some_and(|length| length > 0);
        self.expects_continue.set(has_body && header_has(headers, "expect", "100-continue"));
        *self.incoming.borrow_mut() = match length.unwrap_or(0) {
            _ if chunked => Incoming::Chunked(Decoder::new()),
            0 => Incoming::Done,
            length => Incoming::Length(length),
        };
        Ok(())
    }
}

fn copy_headers(headers: &[httparse::Header<'_>]) -> Headers {
    let copy = |h: &httparse::Header<'_>| (h.name.to_owned(), String::from_utf8_lossy(h.value).into_owned());
    Headers(headers.iter().map(copy).collect())
}

fn header_has(headers: &Headers, name: &str, token: &str) -> bool {
    headers.get(name).is_some_and(|v| v.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
