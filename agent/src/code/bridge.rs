//! The agent's end of the kernel bridge: a program of the image that drives the kernels, asked over a unix socket by lines of JSON.
//!
//! Started by `mod` at the claim or with the first use. The other end is deploy/images/code-interpreter/bridge. Invariants: every request
//! is answered once, also when the bridge dies; every execution gets a terminal event.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::value::{to_raw_value, RawValue};
use serde_json::{json, Value};
use tokio::net::UnixStream;
use tokio::sync::{oneshot, Notify};

use super::execution::{Event, Execution};
use crate::agent::Agent;
use crate::commands::spawn::{self, Launch, Stdio};
use crate::commands::tree::Tag;
use crate::environment;
use crate::error::{Error, Result};

const PROGRAM: &str = "/opt/talon/code/bridge";
const PYTHON: &str = "/usr/bin/python3";
const READ_BYTES: usize = 64 << 10;

pub struct Bridge {
    stream: UnixStream,
    tag: Tag,
    unsent: RefCell<Vec<u8>>,
    wants_to_send: Notify,
    answers: RefCell<HashMap<u64, oneshot::Sender<Value>>>,
    executions: RefCell<HashMap<String, Rc<Execution>>>,
    last: Cell<u64>,
    dead: Cell<bool>,
}

/// A line that is an execution's event.
#[derive(Deserialize)]
struct Told {
    x: Option<String>,
    event: Option<String>,
    data: Option<Box<RawValue>>,
}

/// Whether the image has it.
pub fn is_installed() -> bool {
    Path::new(PROGRAM).exists()
}

impl Bridge {
    pub fn start(agent: &Rc<Agent>) -> Result<Rc<Self>> {
        if !is_installed() {
            return Err(Error::new(501, "code_unsupported", "NOT_SUPPORTED", "this image has no kernels to run code")
                .remedy("create the sandbox from the image code-interpreter, or one built from it"));
        }
        let identity = agent.identity(None)?;
        let extra = [("PYTHONPATH".to_owned(), PROGRAM.to_owned())].into();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let launch = Launch {
            argv: [PYTHON, "-m", "talon_bridge"].map(str::to_owned).to_vec(),
            cwd: "/".to_owned(),
            env: environment::compose(agent, &identity, &extra),
            identity,
            stdin: Stdio::Fd(OwnedFd::from(theirs)),
            stdout: Stdio::Null,
            stderr: Stdio::Null,
            terminal: false,
        };
        let child = spawn::spawn(agent, launch)?;
        let bridge = Rc::new(Self {
            stream: UnixStream::from_std(ours)?,
            tag: child.tag,
            unsent: RefCell::default(),
            wants_to_send: Notify::new(),
            answers: RefCell::default(),
            executions: RefCell::default(),
            last: Cell::new(0),
            dead: Cell::new(false),
        });
        tokio::task::spawn_local(bridge.clone().write());
        tokio::task::spawn_local(bridge.clone().read());
        Ok(bridge)
    }

    pub fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Asks and waits for the answer.
    pub async fn ask(&self, op: &str, mut request: Value) -> Result<Value> {
        self.last.set(self.last.get() + 1);
        let seq = self.last.get();
        request["op"] = json!(op);
        request["seq"] = json!(seq);
        let (sender, answer) = oneshot::channel();
        self.answers.borrow_mut().insert(seq, sender);
        self.send(&request);
        let answer = if self.dead.get() { None } else { answer.await.ok() };
        let answer = answer.ok_or_else(died)?;
        if answer["ok"] == json!(true) {
            return Ok(answer);
        }
        Err(refused(&answer))
    }

    /// Says something about an execution that needs no answer.
    pub fn tell(&self, op: &str, execution: &str) {
        self.send(&json!({"seq": 0, "op": op, "x": execution}));
    }

    pub fn expect(&self, execution: Rc<Execution>) {
        self.executions.borrow_mut().insert(execution.id.clone(), execution);
    }

    pub fn forget(&self, execution: &str) {
        self.executions.borrow_mut().remove(execution);
    }

    /// The execution of a context that a client may take up again.
    pub fn execution_of(&self, context: &str) -> Option<Rc<Execution>> {
        self.executions.borrow().values().find(|one| one.context == context && one.outlives).cloned()
    }

    /// Drops what an execution left that nobody came back for.
    pub fn forget_ended(&self, context: &str) {
        self.executions.borrow_mut().retain(|_, one| one.context != context || !one.has_ended());
    }

    fn send(&self, request: &Value) {
        let mut unsent = self.unsent.borrow_mut();
        unsent.extend(serde_json::to_vec(request).unwrap_or_default());
        unsent.push(b'\n');
        self.wants_to_send.notify_one();
    }

    async fn write(self: Rc<Self>) {
        while !self.dead.get() {
            self.wants_to_send.notified().await;
            let data = self.unsent.take();
            if self.write_all(&data).await.is_err() {
                return;
            }
        }
    }

    async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(data) {
                Ok(sent) => data = &data[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes what the bridge says until it is gone; then ends all that waits for it.
    async fn read(self: Rc<Self>) {
        let mut held = Vec::new();
        while let Ok(true) = self.fill(&mut held).await {
            let Some(end) = memchr::memrchr(b'\n', &held) else { continue };
            let rest = held.split_off(end + 1);
            held.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(|line| self.take(line));
            held = rest;
        }
        self.dead.set(true);
        self.answers.borrow_mut().clear();
        self.wants_to_send.notify_one();
        let words = "the kernels' bridge ended, as happens when the sandbox runs out of memory; all contexts are gone";
        let failure = json!({"name": "KernelDied", "value": words, "traceback": [words], "execution_count": null, "duration_s": 0});
        for (_, execution) in self.executions.borrow_mut().drain() {
            if let (Ok(data), false) = (to_raw_value(&failure), execution.has_ended()) {
                execution.push(Event { kind: "error".to_owned(), data });
            }
        }
        self.tag.kill().await;
    }

    async fn fill(&self, held: &mut Vec<u8>) -> io::Result<bool> {
        loop {
            self.stream.readable().await?;
            // Room is made only once there is something to read: an idle bridge costs the agent nothing.
            held.reserve(READ_BYTES);
            match self.stream.try_read_buf(held) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&self, line: &[u8]) {
        match serde_json::from_slice::<Told>(line) {
            Ok(Told { x: Some(name), event: Some(kind), data: Some(data) }) => {
                let execution = self.executions.borrow().get(&name).cloned();
                if execution.is_some_and(|execution| execution.push(Event { kind, data })) {
                    self.tell("hold", &name);
                }
            }
            _ => self.take_answer(line),
        }
    }

    fn take_answer(&self, line: &[u8]) {
        let Ok(answer) = serde_json::from_slice::<Value>(line) else { return };
        let waiting = answer["seq"].as_u64().and_then(|seq| self.answers.borrow_mut().remove(&seq));
        if let Some(waiting) = waiting {
            // Who asked may have left.
            let _left = waiting.send(answer);
        }
    }
}

fn died() -> Error {
    let mut error = Error::new(503, "kernel_failed", "RUNTIME_ERROR", "the kernels' bridge has ended")
        .remedy("try again: it is started anew; give the sandbox more memory if this happens often");
    error.retryable = true;
    error
}

/// The bridge's refusal; its codes are those of api/errors.yaml.
fn refused(answer: &Value) -> Error {
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let (code, execd) = match answer["code"].as_str().unwrap_or_default() {
        "unsupported_language" => ("unsupported_language", "INVALID_REQUEST_BODY"),
        "invalid_working_directory" => ("invalid_working_directory", "INVALID_REQUEST_BODY"),
        "context_busy" => ("context_busy", "RUNTIME_ERROR"),
        "context_stopped" => ("context_stopped", "RUNTIME_ERROR"),
        "context_not_found" => ("context_not_found", "CONTEXT_NOT_FOUND"),
        "too_many_contexts" => ("too_many_contexts", "RUNTIME_ERROR"),
        "no_input_wanted" => ("no_input_wanted", "RUNTIME_ERROR"),
        _ => ("kernel_failed", "RUNTIME_ERROR"),
    };
    let status = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(500);
    Error::new(status, code, execd, text("message")).remedy(text("remedy"))
}
