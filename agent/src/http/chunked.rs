//! Chunked transfer coding (RFC 9112 §7.1), without I/O: feeds on a buffer, says what it needs.
//!
//! Called by `request::RequestBody`. Invariant: never consumes bytes past the terminating chunk.

use std::io;

const MAX_LINE_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    Done,
}

#[derive(Debug)]
pub struct Decoder {
    stage: Stage,
}

/// What one step of decoding gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Data(Vec<u8>),
    NeedMore,
    Done,
}

impl Decoder {
    pub fn new() -> Self {
        Self { stage: Stage::Size }
    }

    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Takes what it can from `input`'s front.
    pub fn step(&mut self, input: &mut Vec<u8>) -> io::Result<Step> {
        loop {
            match self.stage {
                Stage::Done => return Ok(Step::Done),
                Stage::Data(left) => return Ok(self.data(input, left)),
                Stage::Size | Stage::DataEnd | Stage::Trailer => {
                    let Some(line) = take_line(input)? else { return Ok(Step::NeedMore) };
                    self.line(&line)?;
                }
            }
        }
    }

    fn data(&mut self, input: &mut Vec<u8>, left: u64) -> Step {
        if input.is_empty() {
            return Step::NeedMore;
        }
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let rest = input.split_off(take);
        let data = std::mem::replace(input, rest);
        let left = left - take as u64;
        self.stage = if left == 0 { Stage::DataEnd } else { Stage::Data(left) };
        Step::Data(data)
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        self.stage = match self.stage {
            Stage::Size => match parse_size(line)? {
                0 => Stage::Trailer,
                size => Stage::Data(size),
            },
            Stage::DataEnd if line.is_empty() => Stage::Size,
            Stage::DataEnd => return Err(bad("chunk is longer than its size says")),
            Stage::Trailer if line.is_empty() => Stage::Done,
            other => other,
        };
        Ok(())
    }
}

fn take_line(input: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let Some(end) = input.iter().take(MAX_LINE_BYTES).position(|&b| b == b'\n') else {
        return if input.len() >= MAX_LINE_BYTES { Err(bad("chunk line is too long")) } else { Ok(None) };
    };
    let mut line: Vec<u8> = input.drain(..=end).collect();
    line.pop();
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(line))
}

fn parse_size(line: &[u8]) -> io::Result<u64> {
    let text = std::str::from_utf8(line).map_err(|_| bad("chunk size is not text"))?;
    let digits = text.split(';').next().unwrap_or_default().trim();
    u64::from_str_radix(digits, 16).map_err(|_| bad("chunk size is not a hexadecimal number"))
}

fn bad(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_split_anywhere_decodes_to_the_same_bytes() {
        let wire = b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: 1\r\n\r\nNEXT";
        for cut in 0..wire.len() {
            let mut decoder = Decoder::new();
            let (mut input, mut out) = (wire[..cut].to_vec(), Vec::new());
            let mut fed = false;
            loop {
                match decoder.step(&mut input).unwrap() {
                    Step::Data(data) => out.extend(data),
                    Step::NeedMore if fed => panic!("wants more than there is"),
                    Step::NeedMore => {
                        input.extend_from_slice(&wire[cut..]);
                        fed = true;
                    }
                    Step::Done => break,
                }
            }
            if !fed {
                input.extend_from_slice(&wire[cut..]);
            }
            assert_eq!((out.as_slice(), input.as_slice()), (&b"hello world"[..], &b"NEXT"[..]));
        }
    }

    #[test]
    fn a_size_that_is_no_number_is_refused() {
        assert!(Decoder::new().step(&mut b"zz\r\n".to_vec()).is_err());
    }
}
