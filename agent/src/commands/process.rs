//! One process of the table: its supervision from start to end, its log, its standard input.
//!
//! Made by the execd and v2 routes through `Process::start`. Invariants: it ends when its own process ends, never later because a
//! descendant holds its output; a timeout or a kill takes all descendants; what was printed before is in the log.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::pump::Pump;
use super::reaper::{Exit, Status};
use super::spawn::{self, Child, Launch, Stdio};
use super::spool::{Spool, Stream};
use super::tree::Tag;
use crate::agent::Agent;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::record::{self, Recorder};
use crate::sys;
use crate::users::Identity;

/// How far a foreground reader may lag before the process is made to wait.
/// With what both pumps read at once it fits into the smallest log.
const WINDOW_BYTES: u64 = 128 << 10;

pub struct Spec {
    pub argv: Vec<String>,
    /// As shown to clients.
    pub shown: String,
    pub name: Option<String>,
    pub cwd: String,
    pub env: Environment,
    pub identity: Identity,
    pub timeout: Option<Duration>,
    pub stdin: Input,
    /// Its client reads along: the process waits for a slow one.
    pub foreground: bool,
}

pub enum Input {
    Closed,
    /// Written and then closed.
    Bytes(Vec<u8>),
    /// Kept open for later writes.
    Open,
}

/// The end of a process, as told to clients.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub status: Status,
    pub timed_out: bool,
    /// Ended by a request or by its client's leaving.
    pub killed: bool,
    pub oom_killed: bool,
    pub finished_at: SystemTime,
    pub duration_s: f64,
    /// Log offset at the end; later output is of its descendants.
    pub log_end: u64,
}

pub struct Process {
    pub id: String,
    pub shown: String,
    pub name: Option<String>,
    pub cwd: String,
    pub user: String,
    /// Not of a client that waits for it; such are listed.
    pub background: bool,
    pub pid: i32,
    pub tag: Tag,
    pub started_at: SystemTime,
    started_s: f64,
    pub exit: Rc<Exit>,
    pub log: RefCell<Spool>,
    outcome: Cell<Option<Outcome>>,
    /// Output or the end came.
    pub changed: Notify,
    /// Offset up to which the foreground reader has taken the log.
    taken: Cell<Option<u64>>,
    made_room: Notify,
    stdin: RefCell<Option<Rc<AsyncFd<File>>>>,
    timed_out: Cell<bool>,
    killed: Cell<bool>,
    oom_kills_before: u64,
    pub(super) recorder: Rc<Recorder>,
    record_id: Arc<str>,
}

impl Process {
    /// Starts it and everything that watches it; it is in the table from here on.
    pub fn start(agent: &Rc<Agent>, spec: Spec) -> Result<Rc<Self>> {
        if agent.recorder.refuses() {
            return Err(record::refusal());
        }
        let oom_kills_before = agent.meters.oom_kills();
        let (foreground, timeout) = (spec.foreground, spec.timeout);
        let (stdin_mode, launch, about) = split(spec);
        let mut child = spawn::spawn(agent, launch)?;
        let pumps = pumps(&mut child)?;
        let stdin = child.stdin.take().map(sys::watch).transpose()?.map(Rc::new);
        let id = new_id()?;
        let process = Rc::new(Self {
            record_id: id.as_str().into(),
            recorder: agent.recorder.clone(),
            id,
            shown: about.shown,
            name: about.name,
            cwd: about.cwd,
            user: about.user,
            background: !foreground,
            pid: child.pid,
            tag: child.tag,
            started_at: SystemTime::now(),
            started_s: sys::monotonic_seconds(),
            exit: child.exit,
            log: RefCell::default(),
            outcome: Cell::new(None),
            changed: Notify::new(),
            taken: Cell::new(foreground.then_some(0)),
            made_room: Notify::new(),
            stdin: RefCell::new(stdin),
            timed_out: Cell::new(false),
            killed: Cell::new(false),
            oom_kills_before,
        });
        agent.table.add(process.clone());
        process.record_start();
        process.watch(agent, pumps, timeout, stdin_mode);
        Ok(process)
    }

    fn watch(self: &Rc<Self>, agent: &Rc<Agent>, pumps: Vec<Rc<Pump>>, timeout: Option<Duration>, stdin: Input) {
        for pump in &pumps {
            tokio::task::spawn_local(pump.clone().run(self.clone()));
        }
        if let Input::Bytes(data) = stdin {
            let process = self.clone();
            tokio::task::spawn_local(async move {
                // A process that does not read its input ends the write with an error nobody waits for.
                let _unread = process.write_stdin(&data).await;
                process.close_stdin();
            });
        }
        let (process, agent) = (self.clone(), agent.clone());
        tokio::task::spawn_local(async move { process.supervise(&agent, &pumps, timeout).await });
    }

    async fn supervise(self: Rc<Self>, agent: &Rc<Agent>, pumps: &[Rc<Pump>], timeout: Option<Duration>) {
        let exit = self.exit.clone();
        let status = match timeout {
            None => exit.wait().await,
            Some(limit) => match tokio::time::timeout(limit, exit.wait()).await {
                Ok(status) => status,
                Err(_) => {
                    self.timed_out.set(true);
                    self.tag.kill().await;
                    exit.wait().await
                }
            },
        };
        pumps.iter().for_each(|pump| pump.drain(&self));
        self.finish(agent, status);
    }

    fn finish(&self, agent: &Agent, status: Status) {
        let deadly = status.code() == 128 + libc::SIGKILL;
        let by_us = self.timed_out.get() || self.killed.get();
        self.outcome.set(Some(Outcome {
            status,
            timed_out: self.timed_out.get(),
            killed: self.killed.get(),
            oom_killed: deadly && !by_us && agent.meters.oom_kills() > self.oom_kills_before,
            finished_at: SystemTime::now(),
            duration_s: sys::monotonic_seconds() - self.started_s,
            log_end: self.log.borrow().end(),
        }));
        self.record_exit();
        self.close_stdin();
        self.release();
        self.changed.notify_waiters();
        agent.table.retire(&self.id);
    }

    fn record_start(&self) {
        if self.recorder.commands() {
            let about = json!({"id": self.id, "command": self.shown, "cwd": self.cwd, "user": self.user});
            self.recorder.fact("cmd.start", record::fields(about));
        }
    }

    fn record_exit(&self) {
        if let (true, Some(end)) = (self.recorder.commands(), self.outcome.get()) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                self.recorder.end("cmd.out", &self.record_id, Some(stream.name()));
            }
            let about = json!({
                "id": self.id,
                "exit_code": end.status.code(),
                "signal": end.status.signal(),
                "duration_s": end.duration_s,
                "timed_out": end.timed_out,
                "oom_killed": end.oom_killed,
            });
            self.recorder.fact("cmd.exit", record::fields(about));
        }
    }

    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.get()
    }

    pub async fn finished(&self) -> Outcome {
        loop {
            let changed = self.changed.notified();
            if let Some(outcome) = self.outcome.get() {
                return outcome;
            }
            changed.await;
        }
    }

    /// Ends it and all its descendants.
    pub async fn kill(&self) {
        if self.outcome.get().is_none() {
            self.killed.set(true);
        }
        self.tag.kill().await;
    }

    /// As `kill`, after a polite SIGTERM and `grace`.
    pub async fn interrupt(&self, grace: Duration) {
        if self.outcome.get().is_some() {
            return;
        }
        self.killed.set(true);
        self.tag.signal(libc::SIGTERM);
        let _late = tokio::time::timeout(grace, self.exit.wait()).await;
        self.tag.kill().await;
        self.finished().await;
    }

    /// Signals its process group, as a terminal would.
    ///
    /// # Errors
    /// 409 when it has ended.
    pub fn signal(&self, signal: i32) -> Result<()> {
        if self.exit.status().is_some() {
            return Err(Error::new(409, "process_finished", "RUNTIME_ERROR", format!("process {} has ended", self.id)));
        }
        if signal == libc::SIGKILL {
            self.killed.set(true);
        }
        sys::kill(-self.pid, signal).or_else(|_| sys::kill(self.pid, signal)).map_err(Error::from)
    }

    pub(super) fn note_output(&self, stream: Stream, data: &[u8]) {
        if self.recorder.commands() {
            self.recorder.data("cmd.out", &self.record_id, Some(stream.name()), data);
        }
        self.log.borrow_mut().append(stream, data);
        self.changed.notify_waiters();
    }

    /// Waits while a foreground reader lags behind.
    pub(super) async fn room_for_output(&self) {
        loop {
            let made_room = self.made_room.notified();
            if self.taken.get().is_none_or(|taken| self.log.borrow().end() < taken + WINDOW_BYTES) {
                return;
            }
            made_room.await;
        }
    }

    /// The foreground reader has the log up to `offset`.
    pub(super) fn take(&self, offset: u64) {
        if self.taken.get().is_some_and(|taken| offset > taken) {
            self.taken.set(Some(offset));
            self.made_room.notify_waiters();
        }
    }

    /// No reader holds the process back any more.
    pub fn release(&self) {
        self.taken.set(None);
        self.made_room.notify_waiters();
    }

    /// Writes to its standard input, waiting while the pipe is full.
    ///
    /// # Errors
    /// 409 when the input is not open (any more).
    pub async fn write_stdin(&self, mut data: &[u8]) -> Result<()> {
        let pipe = self.stdin.borrow().clone().ok_or_else(closed_stdin)?;
        while !data.is_empty() {
            let mut guard = tokio::select! {
                guard = pipe.writable() => guard?,
                _ended = self.exit.wait() => return Err(closed_stdin()),
            };
            match guard.try_io(|pipe| pipe.get_ref().write(data)) {
                Ok(Ok(count)) => data = &data[count..],
                Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Err(closed_stdin()),
                Ok(Err(error)) => return Err(error.into()),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }

    pub fn close_stdin(&self) {
        self.stdin.borrow_mut().take();
    }
}

fn closed_stdin() -> Error {
    Error::new(409, "stdin_closed", "RUNTIME_ERROR", "the process does not read its standard input")
        .remedy("start it with \"stdin\": true and write before it ends")
}

/// What of a spec is only shown.
struct About {
    shown: String,
    name: Option<String>,
    cwd: String,
    user: String,
}

fn split(spec: Spec) -> (Input, Launch, About) {
    let about = About { shown: spec.shown, name: spec.name, cwd: spec.cwd.clone(), user: spec.identity.name.clone() };
    let launch = Launch {
        argv: spec.argv,
        cwd: spec.cwd,
        env: spec.env,
        identity: spec.identity,
        stdin: if matches!(spec.stdin, Input::Closed) { Stdio::Null } else { Stdio::Pipe },
        stdout: Stdio::Pipe,
        stderr: Stdio::Pipe,
        terminal: false,
    };
    (spec.stdin, launch, about)
}

fn pumps(child: &mut Child) -> io::Result<Vec<Rc<Pump>>> {
    let stdout = child.stdout.take().map(|pipe| Pump::new(pipe, Stream::Stdout));
    let stderr = child.stderr.take().map(|pipe| Pump::new(pipe, Stream::Stderr));
    stdout.into_iter().chain(stderr).collect()
}

/// 32 random hexadecimal digits, the form of the OpenSandbox protocol.
pub fn new_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    sys::random(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
