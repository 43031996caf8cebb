//! Reads a process's log as it grows, and ends it when its client is gone.
//!
//! Used by every route that streams output. Invariant: after the last piece the outcome is known.

use std::rc::Rc;

use super::process::{Outcome, Process};
pub use super::spool::{Read, Stream};

const PIECE_BYTES: usize = 64 << 10;

pub struct Follower {
    process: Rc<Process>,
    offset: u64,
    only: Option<Stream>,
}

/// What comes next in a log.
pub enum Next {
    Output(Read),
    End(Outcome),
}

impl Follower {
    pub fn new(process: Rc<Process>, offset: u64, only: Option<Stream>) -> Self {
        Self { process, offset, only }
    }

    /// The next output, or the end once all output before it was given.
    pub async fn next(&mut self) -> Next {
        let process = self.process.clone();
        loop {
            let changed = process.changed.notified();
            let outcome = process.outcome();
            let end = outcome.map_or(u64::MAX, |outcome| outcome.log_end);
            if let Some(read) = self.read(end) {
                return Next::Output(read);
            }
            if let Some(outcome) = outcome {
                return Next::End(outcome);
            }
            changed.await;
        }
    }

    fn read(&mut self, end: u64) -> Option<Read> {
        let read = self.process.log.borrow().read(self.offset, end, self.only, PIECE_BYTES);
        self.offset = read.as_ref().map_or(self.offset, |read| read.next);
        let taken = if read.is_none() { self.process.log.borrow().end() } else { self.offset };
        self.process.take(taken);
        read
    }
}

/// Ends a foreground process when dropped before `keep`: its client has left.
pub struct KillOnDrop(Option<Rc<Process>>);

impl KillOnDrop {
    pub fn new(process: Rc<Process>) -> Self {
        Self(Some(process))
    }

    /// It has ended, or may live on.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = self.0.take().filter(|process| process.outcome().is_none()) {
            process.release();
            tokio::task::spawn_local(async move { process.kill().await });
        }
    }
}
