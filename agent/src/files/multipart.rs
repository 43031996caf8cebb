//! Multipart form data (RFC 7578, RFC 2046 §5.1), without I/O: bytes in any cut go in, parts and their data come out.
//!
//! Called by `upload`. Invariant: it holds back no more than one delimiter's length of a part's data, and no head longer than
//! `MAX_HEAD_BYTES`, however large the body is.

use memchr::memmem;

use crate::error::{Error, Result};

const MAX_HEAD_BYTES: usize = 16 << 10;

#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A part begins.
    Part { name: String, filename: Option<String> },
    /// The next bytes of it.
    Data(Vec<u8>),
    /// It is complete.
    End,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Stage {
    Preamble,
    /// Behind a delimiter: a line end, or `--`.
    Delimiter,
    Head,
    Data,
    Epilogue,
}

#[derive(Debug)]
pub struct Parser {
    /// `\r\n--boundary`
    delimiter: Vec<u8>,
    held: Vec<u8>,
    stage: Stage,
    /// Bytes of the head's last line end in front of the data: part of the delimiter when the part is empty, never data.
    line_end: usize,
}

impl Parser {
    /// From the request's Content-Type.
    ///
    /// # Errors
    /// 400 when it is not `multipart/form-data` with a boundary.
    pub fn new(content_type: Option<&str>) -> Result<Self> {
        let boundary = content_type.and_then(boundary).ok_or_else(|| {
            Error::invalid("the body must be multipart/form-data with a boundary")
                .remedy("send metadata and file parts as a multipart form")
        })?;
        // The first delimiter has no line before it: begin as if there were one.
        Ok(Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            held: b"\r\n".to_vec(),
            stage: Stage::Preamble,
            line_end: 0,
        })
    }

    /// Takes the next bytes of the body.
    pub fn feed(&mut self, data: &[u8]) -> Result<Vec<Event>> {
        self.held.extend_from_slice(data);
        let mut events = Vec::new();
        while self.step(&mut events)? {}
        Ok(events)
    }

    /// The body has ended.
    ///
    /// # Errors
    /// 400 when its last delimiter was missing.
    pub fn finish(&self) -> Result<()> {
        if self.stage == Stage::Epilogue {
            return Ok(());
        }
        Err(broken("it ends before its closing delimiter"))
    }

    /// One step; `false` when more bytes are needed.
    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        match self.stage {
            Stage::Preamble => Ok(self.until_delimiter(None)),
            Stage::Data => Ok(self.until_delimiter(Some(events))),
            Stage::Delimiter => self.delimiter(),
            Stage::Head => self.head(events),
            Stage::Epilogue => {
                self.held.clear();
                Ok(false)
            }
        }
    }

    fn until_delimiter(&mut self, events: Option<&mut Vec<Event>>) -> bool {
        let found = memmem::find(&self.held, &self.delimiter);
        // What could be a delimiter's beginning stays back.
        let end = found.unwrap_or_else(|| self.held.len().saturating_sub(self.delimiter.len() - 1));
        let rest = self.held.split_off(end);
        let mut data = std::mem::replace(&mut self.held, rest);
        let skip = self.line_end.min(data.len());
        data.drain(..skip);
        self.line_end -= skip;
        if let Some(events) = events {
            if !data.is_empty() {
                events.push(Event::Data(data));
            }
            if found.is_some() {
                events.push(Event::End);
            }
        }
        if found.is_some() {
            self.held.drain(..self.delimiter.len());
            self.stage = Stage::Delimiter;
        }
        found.is_some()
    }

    fn delimiter(&mut self) -> Result<bool> {
        if self.held.starts_with(b"--") {
            self.stage = Stage::Epilogue;
            return Ok(true);
        }
        let Some(end) = memmem::find(&self.held, b"\r\n") else {
            return if self.held.len() > MAX_HEAD_BYTES {
                Err(broken("a delimiter's line is too long"))
            } else {
                Ok(false)
            };
        };
        if !self.held[..end].iter().all(|b| matches!(b, b' ' | b'\t')) {
            return Err(broken("a delimiter is not followed by a line end"));
        }
        // The line end stays: an empty head begins with the blank line at once.
        self.held.drain(..end);
        self.stage = Stage::Head;
        Ok(true)
    }

    fn head(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        let Some(end) = memmem::find(&self.held, b"\r\n\r\n") else {
            return if self.held.len() > MAX_HEAD_BYTES { Err(broken("a part's head is too long")) } else { Ok(false) };
        };
        let head = String::from_utf8_lossy(&self.held[..end]).into_owned();
        self.held.drain(..end + 2);
        self.line_end = 2;
        events.push(part(&head));
        self.stage = Stage::Data;
        Ok(true)
    }
}

/// The `boundary` of a Content-Type.
fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().to_ascii_lowercase().starts_with("multipart/") {
        return None;
    }
    let boundary = parameter(parameters, "boundary")?;
    (1..=200).contains(&boundary.len()).then_some(boundary)
}

fn part(head: &str) -> Event {
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let parameters = disposition.and_then(|d| d.split_once(';')).map_or("", |(_, parameters)| parameters);
    Event::Part { name: parameter(parameters, "name").unwrap_or_default(), filename: parameter(parameters, "filename") }
}

/// A parameter's value, unquoted. Names are compared without case.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (name, value) = rest.split_once('=')?;
        let (value, after) = value_of(value);
        if name.trim_matches([' ', '\t', ';']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after;
    }
}

fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.trim_start().strip_prefix('"') else {
        let (value, rest) = text.split_once(';').unwrap_or((text, ""));
        return (value.trim().to_owned(), rest);
    };
    let (mut value, mut escaped) = (String::new(), false);
    for (at, char) in quoted.char_indices() {
        match char {
            '"' if !escaped => return (value, &quoted[at + 1..]),
            '\\' if !escaped => escaped = true,
            char => {
                if escaped && !matches!(char, '"' | '\\') {
                    value.push('\\');
                }
                value.push(char);
                escaped = false;
            }
        }
    }
    (value, "")
}

fn broken(why: &str) -> Error {
    Error::invalid(format!("the multipart body is broken: {why}"))
        .execd("INVALID_FILE")
        .remedy("send the form with a client library's multipart encoder")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=\"B\"";

    type Part = (String, Option<String>, Vec<u8>);

    /// Parts as (name, filename, data), fed in pieces of `size`.
    fn parse(body: &[u8], size: usize) -> Result<Vec<Part>> {
        let mut parser = Parser::new(Some(TYPE))?;
        let (mut parts, mut open) = (Vec::new(), false);
        for piece in body.chunks(size) {
            for event in parser.feed(piece)? {
                match event {
                    Event::Part { name, filename } => {
                        assert!(!std::mem::replace(&mut open, true));
                        parts.push((name, filename, Vec::new()));
                    }
                    Event::Data(data) => parts.last_mut().unwrap().2.extend(data),
                    Event::End => assert!(std::mem::take(&mut open)),
                }
            }
        }
        parser.finish().map(|()| parts)
    }

    #[test]
    fn parts_are_the_same_however_the_bytes_arrive() {
        let data = b"\r\n-\r\n--\r\n--A\r\n--b\0\xff\r\n";
        let mut body = b"preamble\r\n--B \r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \\\"x\\\".txt\"\r\nX: y\r\n\r\n".to_vec();
        body.extend_from_slice(data);
        body.extend_from_slice(
            b"\r\n--B\r\ncontent-disposition: form-data; name=metadata\r\n\r\n\r\n--B\r\n\r\n\r\n--B--\r\nepilogue --B",
        );
        let expected = vec![
            ("file".to_owned(), Some("a \"x\".txt".to_owned()), data.to_vec()),
            ("metadata".to_owned(), None, vec![]),
            (String::new(), None, vec![]),
        ];
        for size in 1..body.len() {
            assert_eq!(parse(&body, size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn an_empty_part_may_have_its_delimiter_right_behind_the_head() {
        let body = b"--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n--B--\r\n";
        for size in 1..body.len() {
            assert_eq!(parse(body, size).unwrap(), [("a".to_owned(), None, vec![])]);
        }
    }

    #[test]
    fn broken_bodies_are_refused() {
        let head = b"--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ndata".to_vec();
        for body in
            [&b""[..], b"nothing", &head, b"--Bad\r\n\r\n--B--", &[b"--B\r\n".to_vec(), vec![b'x'; 20_000]].concat()]
        {
            assert_eq!(parse(body, 7).unwrap_err().status, 400);
        }
        for kind in [None, Some("text/plain"), Some("multipart/form-data"), Some("multipart/form-data; boundary=")] {
            assert!(Parser::new(kind).is_err());
        }
    }

    #[test]
    fn large_data_is_not_held_back() {
        let mut parser = Parser::new(Some(TYPE)).unwrap();
        parser.feed(b"--B\r\n\r\n").unwrap();
        for _ in 0..100 {
            parser.feed(&[b'x'; 10_000]).unwrap();
            assert!(parser.held.len() < 16);
        }
    }
}
