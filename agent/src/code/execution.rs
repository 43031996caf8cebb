//! One execution of code: its events between the bridge and the client.
//!
//! Filled by `bridge`, read by `native` and `execd`. Invariants: a slow client makes the kernel wait; without a client, output beyond
//! a bound is dropped, oldest first, and told; the last event is the terminal one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::bridge::Bridge;

/// Queued beyond this, the kernel is told to wait.
const HOLD_BYTES: usize = 1 << 20;
/// What is kept of an execution whose client has left and that goes on.
const KEEP_BYTES: usize = 8 << 20;

pub struct Event {
    pub kind: String,
    pub data: Box<RawValue>,
}

impl Event {
    pub fn terminal(&self) -> bool {
        matches!(self.kind.as_str(), "complete" | "error")
    }
}

pub struct Execution {
    pub id: String,
    pub context: String,
    /// It goes on when its client leaves.
    pub outlives: bool,
    events: RefCell<VecDeque<Event>>,
    bytes: Cell<usize>,
    held: Cell<bool>,
    attached: Cell<bool>,
    ended: Cell<bool>,
    dropped: Cell<usize>,
    changed: Notify,
}

impl Execution {
    pub fn new(id: String, context: String, outlives: bool) -> Rc<Self> {
        Rc::new(Self {
            id,
            context,
            outlives,
            events: RefCell::default(),
            bytes: Cell::new(0),
            held: Cell::new(false),
            attached: Cell::new(true),
            ended: Cell::new(false),
            dropped: Cell::new(0),
            changed: Notify::new(),
        })
    }

    /// An event of the kernel; `true` when it must wait from now on.
    pub fn push(&self, event: Event) -> bool {
        self.ended.set(self.ended.get() || event.terminal());
        self.bytes.set(self.bytes.get() + event.data.get().len());
        self.events.borrow_mut().push_back(event);
        if !self.attached.get() {
            self.trim();
        }
        self.changed.notify_waiters();
        let full = self.attached.get() && self.bytes.get() > HOLD_BYTES && !self.ended.get();
        full && !self.held.replace(true)
    }

    fn trim(&self) {
        while self.bytes.get() > KEEP_BYTES && self.events.borrow().len() > 1 {
            self.dropped.set(self.dropped.get() + self.pop().map_or(0, |event| event.data.get().len()));
        }
    }

    fn pop(&self) -> Option<Event> {
        let event = self.events.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - event.data.get().len());
        Some(event)
    }

    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Bytes of events that nobody can read any more.
    pub fn dropped_bytes(&self) -> usize {
        self.dropped.take()
    }

    /// Takes it for a client; `false` when another has it.
    pub fn attach(&self) -> bool {
        !self.attached.replace(true)
    }

    /// The next event; the terminal one is the last there is.
    async fn next(&self, bridge: &Bridge) -> Event {
        loop {
            let changed = self.changed.notified();
            if let Some(event) = self.pop() {
                if self.held.get() && self.bytes.get() < HOLD_BYTES / 2 {
                    self.held.set(false);
                    bridge.tell("release", &self.id);
                }
                return event;
            }
            changed.await;
        }
    }
}

/// A client of an execution; when it is dropped before the end, the execution is interrupted or left alone.
pub struct Client {
    pub execution: Rc<Execution>,
    bridge: Rc<Bridge>,
    done: bool,
}

impl Client {
    pub fn new(execution: Rc<Execution>, bridge: Rc<Bridge>) -> Self {
        Self { execution, bridge, done: false }
    }

    pub async fn next(&mut self) -> Event {
        let event = self.execution.next(&self.bridge).await;
        self.done = event.terminal();
        event
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let execution = &self.execution;
        execution.attached.set(false);
        if self.done {
            self.bridge.forget(&execution.id);
        } else if execution.outlives {
            execution.trim();
            self.bridge.tell("release", &execution.id);
        } else {
            self.bridge.forget(&execution.id);
            self.bridge.tell("abandon", &execution.id);
        }
    }
}
