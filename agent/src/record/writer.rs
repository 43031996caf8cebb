//! Writes records to the descriptor that the worker handed in, on a thread of its own, in order.
//!
//! The file lies outside the sandbox and was opened for appending. A write that fails (a full disk) follows the
//! sandbox's policy: best effort counts what is lost and tells it in a `gap` record as soon as it can write again;
//! strict waits, so that what cannot be recorded does not happen.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{json, Map, Value};
use tokio::sync::{mpsc, OwnedSemaphorePermit};

use super::chain::Chain;

const RETRY: Duration = Duration::from_millis(500);
/// Output records of one stream that wait together become one record up to this size.
const MERGED: usize = 64 * 1024;

/// What is to be recorded; `at_us` is the time it happened, Unix microseconds.
pub enum Entry {
    /// All before it is written: tell.
    Flush(tokio::sync::oneshot::Sender<()>),
    Fact {
        at_us: u64,
        kind: &'static str,
        fields: Map<String, Value>,
    },
    Data {
        at_us: u64,
        kind: &'static str,
        id: Arc<str>,
        stream: Option<&'static str>,
        data: Vec<u8>,
    },
}

/// An entry and the room in the queue that it takes until it is written.
pub type Queued = (Entry, Option<OwnedSemaphorePermit>);

/// The state of one recording file.
pub struct Writer {
    file: File,
    chain: Chain,
    good: u64,
    strict: bool,
    lost: u64,
    failing: Arc<AtomicBool>,
}

impl Writer {
    /// Over the descriptor `file`; `failing` is raised while nothing can be written.
    pub fn new(file: File, strict: bool, failing: Arc<AtomicBool>) -> Writer {
        let good = file.metadata().map_or(0, |meta| meta.len());
        Writer { file, chain: Chain::default(), good, strict, lost: 0, failing }
    }

    /// Write until every sender is gone; what comes in while one write runs goes out with the next.
    pub fn run(mut self, mut queue: mpsc::UnboundedReceiver<Queued>) {
        let mut waiting = None;
        while let Some(first) = waiting.take().or_else(|| queue.blocking_recv()) {
            let (mut entry, mut permits) = (first.0, vec![first.1]);
            while let Ok(next) = queue.try_recv() {
                if !merge(&mut entry, &next.0) {
                    waiting = Some(next);
                    break;
                }
                permits.push(next.1);
            }
            match entry {
                Entry::Flush(done) => drop(done.send(())),
                entry => self.put(&entry),
            }
        }
    }

    /// Write one entry now, by the policy.
    fn put(&mut self, entry: &Entry) {
        loop {
            if self.lost > 0 && !self.tell_gap() {
                self.lost += 1;
                return;
            }
            if self.append(|chain| line(chain, entry)) {
                return;
            }
            if !self.strict {
                self.lost += 1;
                return;
            }
            std::thread::sleep(RETRY);
        }
    }

    fn tell_gap(&mut self) -> bool {
        let fields = Map::from_iter([
            ("lost".to_owned(), json!(self.lost)),
            ("reason".to_owned(), json!("the recording could not be written")),
        ]);
        let told = self.append(|chain| chain.line(super::now_us(), "gap", &fields));
        if told {
            self.lost = 0;
        }
        told
    }

    /// Append the line that `make` gives; on failure the file and the chain are as before.
    fn append(&mut self, make: impl Fn(&mut Chain) -> Vec<u8>) -> bool {
        let mut next = self.chain.clone();
        let line = make(&mut next);
        let written = self.file.write_all(&line).is_ok();
        if written {
            self.chain = next;
            self.good += line.len() as u64;
        } else if self.file.set_len(self.good).is_err() {
            // Nothing more can be done here: the half line stays, and `verify` will name it.
        }
        self.failing.store(!written, Ordering::Relaxed);
        written
    }
}

fn line(chain: &mut Chain, entry: &Entry) -> Vec<u8> {
    match entry {
        Entry::Flush(_) => Vec::new(),
        Entry::Fact { at_us, kind, fields } => chain.line(*at_us, kind, fields),
        Entry::Data { at_us, kind, id, stream, data } => chain.data_line(*at_us, kind, id, *stream, data),
    }
}

/// Add `next` to `entry` when both are output of one stream of a command; terminals keep each write's time.
fn merge(entry: &mut Entry, next: &Entry) -> bool {
    match (entry, next) {
        (
            Entry::Data { kind, id, stream, data, .. },
            Entry::Data { kind: next_kind, id: next_id, stream: next_stream, data: more, .. },
        ) if kind == next_kind
            && id == next_id
            && stream == next_stream
            && data.len() + more.len() <= MERGED
            && *kind == "cmd.out" =>
        {
            data.extend_from_slice(more);
            true
        }
        _ => false,
    }
}
