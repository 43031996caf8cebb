//! The log of one process: both streams in the order they were read, bounded, oldest dropped first.
//!
//! Written by `pump`, read by followers and the log routes. Small logs are in memory; larger ones in a nameless file, used as a
//! ring. Offsets count bytes of both streams since the start and stay valid when old bytes are dropped.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use crate::sys;

const MEMORY_BYTES: u64 = 256 << 10;
/// Not worth a file.
const SMALL_BYTES: u64 = 4 << 10;
const FILE_BYTES: u64 = 64 << 20;
const MAX_PIECES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// As clients and recordings call it.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// A run of bytes of one stream.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    length: u64,
    stream: Stream,
}

enum Store {
    Memory(Vec<u8>),
    File(File),
}

pub struct Spool {
    pieces: VecDeque<Piece>,
    store: Store,
    capacity: u64,
    end: u64,
    /// Not yet tried to move to a file.
    may_spill: bool,
}

/// Bytes read from the log.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    pub stream: Stream,
    pub data: Vec<u8>,
    /// Offset behind `data`.
    pub next: u64,
    /// Bytes that were dropped between the wanted offset and `data`.
    pub lost: u64,
}

impl Default for Spool {
    fn default() -> Self {
        Self {
            pieces: VecDeque::new(),
            store: Store::Memory(Vec::new()),
            capacity: MEMORY_BYTES,
            end: 0,
            may_spill: true,
        }
    }
}

impl Spool {
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Offset of the oldest byte that is still here.
    pub fn start(&self) -> u64 {
        self.pieces.front().map_or(self.end, |piece| piece.start)
    }

    /// Memory held, for the table's bound.
    pub fn memory(&self) -> usize {
        let data = if let Store::Memory(data) = &self.store { data.capacity() } else { 0 };
        data + self.pieces.len() * size_of::<Piece>()
    }

    /// Disk held, likewise.
    pub fn disk(&self) -> u64 {
        if matches!(self.store, Store::File(_)) {
            self.end.min(self.capacity)
        } else {
            0
        }
    }

    /// Offset behind the first `limit` bytes of `only` (or any) stream at or after `offset`.
    pub fn reach(&self, offset: u64, only: Option<Stream>, limit: u64) -> u64 {
        let mut left = limit;
        for piece in self.pieces.iter().filter(|piece| only.is_none_or(|stream| stream == piece.stream)) {
            let (from, end) = (piece.start.max(offset), piece.start + piece.length);
            if end > from {
                if end - from > left {
                    return from + left;
                }
                left -= end - from;
            }
        }
        self.end.max(offset)
    }

    /// Nothing much comes any more, but it is to be kept: a log of some size does not stay in memory.
    pub fn put_away(&mut self) {
        if self.may_spill && self.end > SMALL_BYTES {
            self.may_spill = false;
            self.spill();
        }
    }

    pub fn append(&mut self, stream: Stream, data: &[u8]) {
        if self.may_spill && self.end + data.len() as u64 > MEMORY_BYTES {
            self.may_spill = false;
            self.spill();
        }
        for part in data.chunks(MEMORY_BYTES as usize / 2) {
            self.write(part);
            self.note(stream, part.len() as u64);
        }
    }

    fn note(&mut self, stream: Stream, length: u64) {
        match self.pieces.back_mut() {
            Some(last) if last.stream == stream => last.length += length,
            _ => self.pieces.push_back(Piece { start: self.end, length, stream }),
        }
        self.end += length;
        self.forget(self.end.saturating_sub(self.capacity));
        while self.pieces.len() > MAX_PIECES {
            self.pieces.pop_front();
        }
    }

    /// Drops what lies before `offset`.
    fn forget(&mut self, offset: u64) {
        while let Some(first) = self.pieces.front_mut() {
            if first.start >= offset {
                return;
            }
            let cut = (offset - first.start).min(first.length);
            first.start += cut;
            first.length -= cut;
            if first.length > 0 {
                return;
            }
            self.pieces.pop_front();
        }
    }

    /// First bytes of `only` (or any) stream in `offset..end`, at most `limit`; `None` when there are none yet.
    pub fn read(&self, offset: u64, end: u64, only: Option<Stream>, limit: usize) -> Option<Read> {
        let first = self.pieces.partition_point(|piece| piece.start + piece.length <= offset);
        let piece = self.pieces.range(first..).find(|piece| only.is_none_or(|stream| stream == piece.stream))?;
        let from = piece.start.max(offset);
        let length = (piece.start + piece.length).min(end).checked_sub(from).filter(|&length| length > 0)?;
        let length = length.min(limit as u64);
        let data = self.load(from, length as usize);
        Some(Read { stream: piece.stream, data, next: from + length, lost: self.start().saturating_sub(offset) })
    }

    /// Moves the log to a nameless file; without one (disk full, read-only) it stays a small ring in memory.
    fn spill(&mut self) {
        let Store::Memory(data) = &self.store else { return };
        if let Ok(file) = nameless_file().and_then(|file| file.write_all_at(data, 0).map(|()| file)) {
            self.store = Store::File(file);
            self.capacity = FILE_BYTES;
        }
    }

    fn write(&mut self, data: &[u8]) {
        let (at, capacity) = (self.end % self.capacity, self.capacity);
        let first = data.len().min((capacity - at) as usize);
        let (head, tail) = data.split_at(first);
        let written = match &mut self.store {
            Store::Memory(memory) => {
                put(memory, at as usize, head);
                put(memory, 0, tail);
                Ok(())
            }
            Store::File(file) => file.write_all_at(head, at).and_then(|()| file.write_all_at(tail, 0)),
        };
        if written.is_err() {
            self.fall_back(data);
        }
    }

    /// The disk is full: start again as a ring in memory, the older bytes are lost.
    fn fall_back(&mut self, data: &[u8]) {
        self.pieces.clear();
        self.capacity = MEMORY_BYTES;
        self.store = Store::Memory(Vec::new());
        self.write(data);
    }

    fn load(&self, from: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        let at = from % self.capacity;
        let first = length.min((self.capacity - at) as usize);
        let (head, tail) = data.split_at_mut(first);
        match &self.store {
            Store::Memory(memory) => {
                let at = at as usize;
                head.copy_from_slice(&memory[at..at + head.len()]);
                tail.copy_from_slice(&memory[..tail.len()]);
            }
            Store::File(file) => {
                // A failed read of our own file leaves zeros: the length, and so every offset, stays right.
                let _unreadable = file.read_exact_at(head, at).and_then(|()| file.read_exact_at(tail, 0));
            }
        }
        data
    }
}

fn put(memory: &mut Vec<u8>, at: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    if memory.len() < at + data.len() {
        memory.resize(at + data.len(), 0);
    }
    memory[at..at + data.len()].copy_from_slice(data);
}

fn nameless_file() -> io::Result<File> {
    let open = |dir: &str| {
        OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC).open(dir)
    };
    open("/var/tmp").or_else(|_| open("/")).or_else(|_| sys::memory_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(spool: &Spool, only: Option<Stream>) -> (Vec<u8>, u64) {
        let (mut offset, mut out, mut lost) = (0, Vec::new(), 0);
        while let Some(read) = spool.read(offset, u64::MAX, only, 1000) {
            lost += read.lost;
            out.extend(read.data);
            offset = read.next;
        }
        (out, lost)
    }

    #[test]
    fn both_streams_keep_their_order() {
        let mut spool = Spool::default();
        for (stream, data) in
            [(Stream::Stdout, "a"), (Stream::Stderr, "b"), (Stream::Stderr, "c"), (Stream::Stdout, "d")]
        {
            spool.append(stream, data.as_bytes());
        }
        assert_eq!(all(&spool, None).0, b"abcd");
        assert_eq!(all(&spool, Some(Stream::Stderr)).0, b"bc");
        assert_eq!(
            (spool.reach(0, Some(Stream::Stdout), 1), spool.reach(1, None, 9), spool.reach(9, None, 1)),
            (3, 4, 9)
        );
        assert_eq!(spool.read(2, u64::MAX, None, 10).unwrap().data, b"c");
    }

    #[test]
    fn a_large_log_moves_to_a_file_and_reads_the_same() {
        let mut spool = Spool::default();
        let line = |i: u32| format!("{i:07}\n").into_bytes();
        (0..100_000).for_each(|i| spool.append(Stream::Stdout, &line(i)));
        let (out, lost) = all(&spool, None);
        assert_eq!((out.len(), lost), (800_000, 0));
        assert_eq!(out, (0..100_000).flat_map(line).collect::<Vec<_>>());
        assert!(spool.memory() < 4096);
    }

    #[test]
    fn the_oldest_bytes_are_dropped_and_told() {
        let mut spool = Spool::default();
        let block = vec![7_u8; 1 << 20];
        (0..70).for_each(|_| spool.append(Stream::Stderr, &block));
        let read = spool.read(0, u64::MAX, None, 16).unwrap();
        assert_eq!((read.lost, spool.end()), (6 << 20, 70 << 20));
    }

    #[test]
    fn without_a_disk_the_last_bytes_stay_in_memory() {
        let mut spool = Spool { may_spill: false, ..Spool::default() };
        let block = vec![1_u8; 100_000];
        (0..5).for_each(|_| spool.append(Stream::Stdout, &block));
        spool.fall_back(b"after");
        spool.note(Stream::Stdout, 5);
        assert_eq!(all(&spool, None).0, b"after");
        spool.append(Stream::Stdout, &block);
        spool.append(Stream::Stdout, &[2; 300_000]);
        assert_eq!(spool.end() - spool.start(), MEMORY_BYTES);
        assert!(spool.memory() < 600_000);
    }
}
