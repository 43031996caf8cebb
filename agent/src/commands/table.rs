//! Remembers processes: the running ones, and ended ones for a day or until there are too many.
//!
//! Held by `Agent`. Invariant: what it keeps of ended processes is bounded in number, age and memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use super::process::Process;
use crate::error::{Error, Result};

const MAX_ENDED: usize = 256;
const MAX_ENDED_BYTES: usize = 512 << 10;
const MAX_ENDED_DISK_BYTES: u64 = 256 << 20;
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

#[derive(Default)]
pub struct Table {
    running: RefCell<Vec<Rc<Process>>>,
    ended: RefCell<VecDeque<Rc<Process>>>,
}

impl Table {
    pub fn add(&self, process: Rc<Process>) {
        self.running.borrow_mut().push(process);
    }

    pub fn get(&self, id: &str) -> Option<Rc<Process>> {
        let found = self.running.borrow().iter().find(|p| p.id == id || p.name.as_deref() == Some(id)).cloned();
        found
            .or_else(|| self.ended.borrow().iter().rev().find(|p| p.id == id || p.name.as_deref() == Some(id)).cloned())
    }

    /// As `get`, or a 404 that says what can be done.
    pub fn find(&self, id: &str) -> Result<Rc<Process>> {
        self.get(id).ok_or_else(|| {
            Error::not_found(format!("no process '{id}'"))
                .code("process_not_found")
                .remedy("list the processes; ended ones are kept for a day at most")
        })
    }

    /// Ended ones first, each part oldest first.
    pub fn all(&self) -> Vec<Rc<Process>> {
        self.expire();
        self.ended.borrow().iter().chain(self.running.borrow().iter()).cloned().collect()
    }

    /// Moves a process to the ended ones.
    pub fn retire(&self, id: &str) {
        let mut running = self.running.borrow_mut();
        if let Some(at) = running.iter().position(|p| p.id == id) {
            let process = running.remove(at);
            if process.background {
                process.log.borrow_mut().put_away();
            }
            self.ended.borrow_mut().push_back(process);
        }
        drop(running);
        self.expire();
    }

    fn expire(&self) {
        let mut ended = self.ended.borrow_mut();
        let oldest = SystemTime::now() - MAX_AGE;
        ended.retain(|process| process.outcome().is_none_or(|outcome| outcome.finished_at >= oldest));
        let mut memory: usize = ended.iter().map(|process| process.log.borrow().memory()).sum();
        let mut disk: u64 = ended.iter().map(|process| process.log.borrow().disk()).sum();
        while ended.len() > MAX_ENDED || memory > MAX_ENDED_BYTES || disk > MAX_ENDED_DISK_BYTES {
            // What a client has waited for has been read: such go before those in the background.
            let at = ended.iter().position(|process| !process.background).unwrap_or(0);
            let Some(process) = ended.remove(at) else { return };
            memory -= process.log.borrow().memory().min(memory);
            disk -= process.log.borrow().disk().min(disk);
        }
    }
}
