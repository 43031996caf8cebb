//! Collects ended children and tells those who wait for them; adopts and collects orphans too, being PID 1.
//!
//! Fed by `init` on SIGCHLD. Invariant: a pid is registered before the loop can reap it, because both run on one thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::sys;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub i32);

impl Status {
    /// Exit code, 128 + n after signal n.
    pub fn code(self) -> i32 {
        match self.signal() {
            Some(signal) => 128 + signal,
            None => libc::WEXITSTATUS(self.0),
        }
    }

    pub fn signal(self) -> Option<i32> {
        libc::WIFSIGNALED(self.0).then(|| libc::WTERMSIG(self.0))
    }
}

/// The coming end of one child.
#[derive(Default)]
pub struct Exit {
    status: Cell<Option<Status>>,
    ended: Notify,
}

impl Exit {
    pub fn status(&self) -> Option<Status> {
        self.status.get()
    }

    /// Waits for the end; any number of tasks may wait.
    pub async fn wait(&self) -> Status {
        loop {
            let ended = self.ended.notified();
            if let Some(status) = self.status.get() {
                return status;
            }
            ended.await;
        }
    }

    fn set(&self, status: Status) {
        self.status.set(Some(status));
        self.ended.notify_waiters();
    }
}

#[derive(Default)]
pub struct Reaper {
    children: RefCell<HashMap<i32, Rc<Exit>>>,
}

impl Reaper {
    /// Registers a child that was just started.
    pub fn expect(&self, pid: i32) -> Rc<Exit> {
        let exit = Rc::new(Exit::default());
        self.children.borrow_mut().insert(pid, exit.clone());
        exit
    }

    /// Collects all that have ended.
    pub fn reap(&self) {
        while let Some((pid, status)) = sys::reap() {
            if let Some(exit) = self.children.borrow_mut().remove(&pid) {
                exit.set(Status(status));
            }
        }
    }
}
