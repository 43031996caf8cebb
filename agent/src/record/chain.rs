//! The recording's line format: JSON records bound by a hash chain.
//!
//! A line is a JSON object whose last member is `"h"`, the SHA-256 of the hash before it and of the line's own
//! bytes up to that member. The server's `model/recording.py` checks the same format to the byte.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The hash before the first record.
pub const START: [u8; 32] = [0; 32];

/// Where a recording stands: the number of the next record and the hash of the last.
#[derive(Clone)]
pub struct Chain {
    next: u64,
    last: [u8; 32],
}

impl Default for Chain {
    fn default() -> Self {
        Chain { next: 0, last: START }
    }
}

impl Chain {
    /// The line of a record of this `kind` at `at_us` (Unix microseconds), newline included. The chain moves on.
    pub fn line(&mut self, at_us: u64, kind: &str, fields: &Map<String, Value>) -> Vec<u8> {
        let mut line = head(self.next, at_us, kind);
        for (name, value) in fields {
            line.extend_from_slice(b",\"");
            line.extend_from_slice(name.as_bytes());
            line.extend_from_slice(b"\":");
            if serde_json::to_writer(&mut line, value).is_err() {
                line.extend_from_slice(b"null");
            }
        }
        self.finish(line)
    }

    /// A record of output or input: text as it is when it is UTF-8, else base64.
    pub fn data_line(&mut self, at_us: u64, kind: &str, id: &str, stream: Option<&str>, data: &[u8]) -> Vec<u8> {
        let mut line = head(self.next, at_us, kind);
        line.reserve(data.len() + data.len() / 8 + 256);
        line.extend_from_slice(format!(",\"id\":\"{id}\"").as_bytes());
        if let Some(stream) = stream {
            line.extend_from_slice(format!(",\"stream\":\"{stream}\"").as_bytes());
        }
        match std::str::from_utf8(data) {
            Ok(text) => {
                line.extend_from_slice(b",\"data\":");
                if serde_json::to_writer(&mut line, text).is_err() {
                    line.extend_from_slice(b"\"\"");
                }
            }
            Err(_) => {
                line.extend_from_slice(b",\"b64\":\"");
                base64_into(data, &mut line);
                line.push(b'"');
            }
        }
        self.finish(line)
    }

    fn finish(&mut self, mut line: Vec<u8>) -> Vec<u8> {
        let digest: [u8; 32] = Sha256::new().chain_update(self.last).chain_update(&line).finalize().into();
        line.extend_from_slice(b",\"h\":\"");
        for byte in digest {
            line.push(HEX[usize::from(byte >> 4)]);
            line.push(HEX[usize::from(byte & 15)]);
        }
        line.extend_from_slice(b"\"}\n");
        self.last = digest;
        self.next += 1;
        line
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn head(number: u64, at_us: u64, kind: &str) -> Vec<u8> {
    let (seconds, micros) = (at_us / 1_000_000, at_us % 1_000_000);
    format!("{{\"n\":{number},\"at\":{seconds}.{micros:06},\"kind\":\"{kind}\"").into_bytes()
}

fn base64_into(data: &[u8], out: &mut Vec<u8>) {
    for group in data.chunks(3) {
        let word = group.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let sextet = (word >> (18 - 6 * place)) & 63;
            out.push(if place <= group.len() { BASE64[sextet as usize] } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_that_ends_with_its_hash() {
        let mut chain = Chain::default();
        let first = chain.data_line(1_500_000, "cmd.out", "p1", Some("stdout"), "h\u{e9}\n".as_bytes());
        let value: Value = serde_json::from_slice(&first).expect("JSON");
        assert_eq!(value["data"], "h\u{e9}\n");
        assert_eq!(value["at"], 1.5);
        let body = &first[..first.len() - 73];
        let digest = Sha256::new().chain_update(START).chain_update(body).finalize();
        let told = value["h"].as_str().expect("hash");
        assert_eq!(told, digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }

    #[test]
    fn the_second_record_follows_from_the_first() {
        let (mut one, mut two) = (Chain::default(), Chain::default());
        one.line(1, "open", &Map::new());
        two.line(2, "open", &Map::new());
        assert_ne!(one.line(3, "gap", &Map::new()), two.line(3, "gap", &Map::new()));
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_as_base64() {
        for (data, expected) in [(&b"\xff"[..], "/w=="), (b"\xff\xfe", "//4="), (b"\xff\xfe\xfd", "//79")] {
            let line = Chain::default().data_line(0, "term.out", "t1", None, data);
            let value: Value = serde_json::from_slice(&line).expect("JSON");
            assert_eq!(value["b64"], expected);
        }
    }
}
