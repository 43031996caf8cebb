//! The last output of a terminal, with exact byte offsets: what a client that attaches gets to see first.
//!
//! Output is counted from the terminal's first byte. Each client reads at its own pace from its own offset; one that
//! falls behind more than the buffer holds goes on at the oldest byte kept, and sees that from the offset.

use std::collections::VecDeque;

/// Bytes kept; OpenSandbox's replay buffer has the same size.
pub const KEPT: usize = 1 << 20;

/// A bounded tail of a byte stream.
pub struct Scrollback {
    bytes: VecDeque<u8>,
    end: u64,
    kept: usize,
}

impl Default for Scrollback {
    fn default() -> Self {
        Scrollback::new(KEPT)
    }
}

impl Scrollback {
    /// Keeps the last `kept` bytes; takes memory only as output comes.
    pub fn new(kept: usize) -> Scrollback {
        Scrollback { bytes: VecDeque::new(), end: 0, kept }
    }

    /// Add output.
    pub fn push(&mut self, data: &[u8]) {
        self.end += data.len() as u64;
        let data = &data[data.len().saturating_sub(self.kept)..];
        let over = (self.bytes.len() + data.len()).saturating_sub(self.kept);
        self.bytes.drain(..over);
        self.bytes.extend(data);
    }

    /// Offset after the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Offset of the oldest byte kept.
    pub fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// Up to `limit` bytes from `offset` on, and the offset they really start at.
    pub fn read(&self, offset: u64, limit: usize) -> (u64, Vec<u8>) {
        let from = offset.clamp(self.start(), self.end);
        let skip = usize::try_from(from - self.start()).unwrap_or(usize::MAX);
        let (front, back) = self.bytes.as_slices();
        let mut data = Vec::new();
        if skip < front.len() {
            data.extend_from_slice(&front[skip..front.len().min(skip.saturating_add(limit))]);
        }
        let left = limit - data.len();
        let skip = skip.saturating_sub(front.len());
        if left > 0 && skip < back.len() {
            data.extend_from_slice(&back[skip..back.len().min(skip.saturating_add(left))]);
        }
        (from, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_offset() {
        let mut tail = Scrollback::new(8);
        tail.push(b"hello");
        assert_eq!(tail.read(0, 100), (0, b"hello".to_vec()));
        assert_eq!(tail.read(2, 2), (2, b"ll".to_vec()));
        assert_eq!(tail.read(5, 100), (5, Vec::new()));
    }

    #[test]
    fn a_client_too_far_behind_goes_on_at_the_oldest_byte() {
        let mut tail = Scrollback::new(8);
        tail.push(b"0123456789");
        assert_eq!((tail.start(), tail.end()), (2, 10));
        assert_eq!(tail.read(0, 100), (2, b"23456789".to_vec()));
        tail.push(b"ab");
        assert_eq!(tail.read(9, 100), (9, b"9ab".to_vec()));
    }

    #[test]
    fn pieces_read_one_after_another_are_the_whole() {
        let mut tail = Scrollback::new(1000);
        let mut at = 0;
        let mut seen = Vec::new();
        for number in 0..500_u32 {
            tail.push(number.to_string().as_bytes());
            let (from, data) = tail.read(at, 7);
            assert_eq!(from, at);
            at += data.len() as u64;
            seen.extend(data);
        }
        while at < tail.end() {
            let (from, data) = tail.read(at, 64);
            assert_eq!(from, at);
            at += data.len() as u64;
            seen.extend(data);
        }
        let whole: String = (0..500_u32).map(|number| number.to_string()).collect();
        assert_eq!(seen, whole.as_bytes());
    }
}
