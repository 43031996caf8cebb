//! WebSocket framing for a terminal's connection (RFC 6455, server side), without I/O.
//!
//! `Parser` turns received bytes into messages; `encode` makes the bytes of one. Invariant: a client's message is
//! bounded, masked and well-formed, or the connection ends with the close code that says why.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use sha1::{Digest, Sha1};

const MAX_MESSAGE: usize = 1 << 20;
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong,
    Close,
}

/// The client broke the protocol: the close code to leave with.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation(pub u16);

/// The value of `Sec-WebSocket-Accept` for a client's key.
pub fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key.trim()).chain_update(GUID).finalize())
}

pub fn binary(data: &[u8]) -> Vec<u8> {
    encode(2, data)
}

pub fn text(data: &str) -> Vec<u8> {
    encode(1, data.as_bytes())
}

pub fn ping() -> Vec<u8> {
    encode(9, b"")
}

pub fn pong(data: &[u8]) -> Vec<u8> {
    encode(10, data)
}

/// A close frame with its code and reason.
pub fn close(code: u16, reason: &str) -> Vec<u8> {
    let mut body = code.to_be_bytes().to_vec();
    body.extend_from_slice(&reason.as_bytes()[..reason.len().min(123)]);
    encode(8, &body)
}

fn encode(opcode: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(data.len() + 10);
    frame.push(0x80 | opcode);
    match data.len() {
        length @ 0..=125 => frame.push(length as u8),
        length @ 126..=0xffff => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(data);
    frame
}

/// Collects bytes until messages are whole.
#[derive(Default)]
pub struct Parser {
    buffer: Vec<u8>,
    fragments: Option<(u8, Vec<u8>)>,
}

impl Parser {
    pub fn feed(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next whole message, `None` when more bytes are needed.
    ///
    /// # Errors
    /// `Violation` with 1002 (protocol), 1007 (text that is not UTF-8) or 1009 (too big).
    pub fn next(&mut self) -> Result<Option<Message>, Violation> {
        while let Some((fin, opcode, payload)) = self.frame()? {
            if let Some(message) = self.take(fin, opcode, payload)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    fn frame(&mut self) -> Result<Option<(bool, u8, Vec<u8>)>, Violation> {
        let Some(header) = Header::read(&self.buffer)? else { return Ok(None) };
        let end = header.start + header.length;
        if self.buffer.len() < end {
            return Ok(None);
        }
        let mut payload = self.buffer[header.start..end].to_vec();
        payload.iter_mut().zip(header.mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        self.buffer.drain(..end);
        Ok(Some((header.fin, header.opcode, payload)))
    }

    fn take(&mut self, fin: bool, opcode: u8, payload: Vec<u8>) -> Result<Option<Message>, Violation> {
        match (opcode, fin) {
            (8, true) => Ok(Some(Message::Close)),
            (9, true) => Ok(Some(Message::Ping(payload))),
            (10, true) => Ok(Some(Message::Pong)),
            (1 | 2, true) if self.fragments.is_none() => whole(opcode, payload).map(Some),
            (1 | 2, false) if self.fragments.is_none() => {
                self.fragments = Some((opcode, payload));
                Ok(None)
            }
            (0, fin) => self.continued(fin, &payload),
            _ => Err(Violation(1002)),
        }
    }

    fn continued(&mut self, fin: bool, payload: &[u8]) -> Result<Option<Message>, Violation> {
        let (opcode, mut whole_payload) = self.fragments.take().ok_or(Violation(1002))?;
        if whole_payload.len() + payload.len() > MAX_MESSAGE {
            return Err(Violation(1009));
        }
        whole_payload.extend_from_slice(payload);
        if fin {
            return whole(opcode, whole_payload).map(Some);
        }
        self.fragments = Some((opcode, whole_payload));
        Ok(None)
    }
}

fn whole(opcode: u8, payload: Vec<u8>) -> Result<Message, Violation> {
    match opcode {
        1 => String::from_utf8(payload).map(Message::Text).map_err(|_| Violation(1007)),
        _ => Ok(Message::Binary(payload)),
    }
}

struct Header {
    fin: bool,
    opcode: u8,
    start: usize,
    length: usize,
    mask: [u8; 4],
}

impl Header {
    fn read(buffer: &[u8]) -> Result<Option<Header>, Violation> {
        let [first, second, ..] = *buffer else { return Ok(None) };
        if first & 0x70 != 0 || second & 0x80 == 0 {
            return Err(Violation(1002));
        }
        let (length, at) = match second & 0x7f {
            126 => match buffer.get(2..4) {
                Some(bytes) => (u64::from(bytes[0]) << 8 | u64::from(bytes[1]), 4),
                None => return Ok(None),
            },
            127 => match buffer.get(2..10) {
                Some(bytes) => (bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)), 10),
                None => return Ok(None),
            },
            short => (u64::from(short), 2),
        };
        if first & 0x08 != 0 && (length > 125 || first & 0x80 == 0) {
            return Err(Violation(1002));
        }
        let length = usize::try_from(length).ok().filter(|&length| length <= MAX_MESSAGE).ok_or(Violation(1009))?;
        let Some(mask) = buffer.get(at..at + 4) else { return Ok(None) };
        let mask = [mask[0], mask[1], mask[2], mask[3]];
        Ok(Some(Header { fin: first & 0x80 != 0, opcode: first & 0x0f, start: at + 4, length, mask }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, data: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![first];
        match data.len() {
            length if length < 126 => frame.push(0x80 | length as u8),
            length => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
        }
        frame.extend_from_slice(&mask);
        frame.extend(data.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    #[test]
    fn the_accept_value_is_that_of_the_rfc() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn messages_come_out_whole_however_the_bytes_come_in() {
        let mut bytes = masked(0x82, b"\0ls\n");
        bytes.extend(masked(0x01, b"{\"a\""));
        bytes.extend(masked(0x89, b"hi"));
        bytes.extend(masked(0x80, b":1}"));
        bytes.extend(masked(0x82, &[7; 300]));
        let mut parser = Parser::default();
        let mut seen = Vec::new();
        for byte in bytes {
            parser.feed(&[byte]);
            while let Some(message) = parser.next().expect("well-formed") {
                seen.push(message);
            }
        }
        let expected = [
            Message::Binary(b"\0ls\n".to_vec()),
            Message::Ping(b"hi".to_vec()),
            Message::Text("{\"a\":1}".to_owned()),
            Message::Binary(vec![7; 300]),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn violations_end_with_the_right_code() {
        let cases: [(Vec<u8>, u16); 4] = [
            (vec![0x82, 0x01, 0x00], 1002),
            (masked(0x81, b"\xff"), 1007),
            (vec![0x82, 0xff, 0, 0, 0, 0, 0xff, 0, 0, 0, 1, 2, 3, 4], 1009),
            (masked(0x80, b"x"), 1002),
        ];
        for (bytes, code) in cases {
            let mut parser = Parser::default();
            parser.feed(&bytes);
            assert_eq!(parser.next(), Err(Violation(code)));
        }
    }
}
