//! One terminal: a program on a pseudo terminal (or on pipes), the output it made, and who looks on.
//!
//! Made by the routes, run by its own tasks; it belongs to the sandbox and outlives its clients. Invariants: at most one
//! client holds it (may type); output is counted from its first byte; a holder that reads slowly holds the program back
//! for a while, never for ever, and no client makes it use more memory than its scrollback.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{json, Value};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::scrollback::Scrollback;
use crate::agent::Agent;
use crate::commands::reaper::{Exit, Status};
use crate::commands::spawn::{self, Launch, Stdio};
use crate::commands::tree::Tag;
use crate::environment::{self, Environment};
use crate::error::{Error, Result};
use crate::record::{self, Recorder};
use crate::users::Identity;
use crate::{clock, sys, sys_pty};

const READ_BYTES: usize = 64 << 10;
/// How far the holder may lag before the program is made to wait, and how long it waits at most.
const WINDOW_BYTES: u64 = 512 << 10;
const PATIENCE: Duration = Duration::from_secs(2);
/// How long output may go on arriving after the program's own end.
const DRAIN: Duration = Duration::from_millis(50);

/// What a terminal is to run.
pub struct Spec {
    pub argv: Vec<String>,
    /// As shown to clients.
    pub shown: String,
    pub cwd: String,
    pub env: Environment,
    pub identity: Identity,
    pub cols: u16,
    pub rows: u16,
    /// A pseudo terminal, or plain pipes.
    pub pty: bool,
}

/// How it ended.
#[derive(Clone, Copy)]
pub struct Outcome {
    pub status: Status,
    pub at: SystemTime,
}

pub struct Terminal {
    pub id: Arc<str>,
    pub shown: String,
    pub cwd: String,
    pub user: String,
    pub pid: i32,
    pub pty: bool,
    pub started_at: SystemTime,
    pub output: RefCell<Scrollback>,
    /// Output, the end, or a change of holder came.
    pub changed: Notify,
    pub clients: Cell<usize>,
    tag: Tag,
    exit: Rc<Exit>,
    size: Cell<(u16, u16)>,
    input: RefCell<Option<Rc<AsyncFd<File>>>>,
    outcome: Cell<Option<Outcome>>,
    holder: Cell<u64>,
    last_holder: Cell<u64>,
    taken: Cell<Option<u64>>,
    made_room: Notify,
    /// Where standard error begins and ends in the output, for pipes: (offset, is it standard error).
    marks: RefCell<Vec<(u64, bool)>>,
    recorder: Rc<Recorder>,
}

impl Terminal {
    /// Start the program and the tasks that carry its output.
    pub fn start(agent: &Rc<Agent>, id: Arc<str>, spec: Spec) -> Result<Rc<Terminal>> {
        let recorder = agent.recorder.clone();
        if recorder.refuses() {
            return Err(record::refusal());
        }
        let mut env = spec.env;
        env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
        let (master, ends) = if spec.pty {
            let (master, slave) = sys_pty::open(spec.cols, spec.rows, spec.identity.uid)?;
            let copies = (slave.try_clone()?, slave.try_clone()?);
            (Some(master), [Stdio::Fd(slave), Stdio::Fd(copies.0), Stdio::Fd(copies.1)])
        } else {
            (None, [Stdio::Pipe, Stdio::Pipe, Stdio::Pipe])
        };
        let [stdin, stdout, stderr] = ends;
        let (cwd, user, terminal) = (spec.cwd, spec.identity.name.clone(), spec.pty);
        let launch =
            Launch { argv: spec.argv, cwd: cwd.clone(), env, identity: spec.identity, stdin, stdout, stderr, terminal };
        let child = spawn::spawn(agent, launch)?;
        let outputs: Vec<(File, bool)> = match &master {
            Some(master) => vec![(master.try_clone()?, false)],
            None => child
                .stdout
                .map(|pipe| (pipe, false))
                .into_iter()
                .chain(child.stderr.map(|pipe| (pipe, true)))
                .collect(),
        };
        let input = master.or(child.stdin).map(sys::watch).transpose()?.map(Rc::new);
        let terminal = Rc::new(Terminal {
            id,
            shown: spec.shown,
            cwd,
            user,
            pid: child.pid,
            pty: spec.pty,
            started_at: SystemTime::now(),
            output: RefCell::default(),
            changed: Notify::new(),
            clients: Cell::new(0),
            tag: child.tag,
            exit: child.exit,
            size: Cell::new((spec.cols, spec.rows)),
            input: RefCell::new(input),
            outcome: Cell::new(None),
            holder: Cell::new(0),
            last_holder: Cell::new(0),
            taken: Cell::new(None),
            made_room: Notify::new(),
            marks: RefCell::default(),
            recorder,
        });
        terminal.record_open();
        let pumps: Vec<_> = outputs
            .into_iter()
            .map(|(file, error)| tokio::task::spawn_local(terminal.clone().pump(file, error)))
            .collect();
        tokio::task::spawn_local(terminal.clone().supervise(pumps));
        Ok(terminal)
    }

    async fn pump(self: Rc<Self>, file: File, error: bool) {
        let Ok(file) = sys::watch(file) else { return };
        let mut buffer = vec![0; READ_BYTES];
        loop {
            self.room().await;
            let Ok(mut guard) = file.readable().await else { return };
            match guard.try_io(|file| file.get_ref().read(&mut buffer)) {
                Ok(Ok(0)) => return,
                Ok(Ok(count)) => self.note(&buffer[..count], error),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_hung_up)) => return,
                Err(_would_block) => {}
            }
        }
    }

    fn note(&self, data: &[u8], error: bool) {
        self.recorder.data("term.out", &self.id, None, data);
        let offset = self.output.borrow().end();
        let mut marks = self.marks.borrow_mut();
        if marks.last().map_or(error, |&(_, last)| last != error) {
            let oldest = self.output.borrow().start();
            let kept = marks.iter().rposition(|&(at, _)| at <= oldest).unwrap_or(0);
            marks.drain(..kept);
            marks.push((offset, error));
        }
        drop(marks);
        self.output.borrow_mut().push(data);
        self.changed.notify_waiters();
    }

    /// Wait for the holder to catch up, as long as patience lasts.
    async fn room(&self) {
        self.recorder.room().await;
        let lags = || self.taken.get().is_some_and(|taken| self.output.borrow().end() > taken + WINDOW_BYTES);
        while lags() {
            let made_room = self.made_room.notified();
            if lags() && tokio::time::timeout(PATIENCE, made_room).await.is_err() {
                self.taken.set(None);
            }
        }
    }

    async fn supervise(self: Rc<Self>, pumps: Vec<tokio::task::JoinHandle<()>>) {
        let status = self.exit.wait().await;
        for pump in pumps {
            // A descendant may hold the terminal open; what it writes later is still shown.
            let _still_open = tokio::time::timeout(DRAIN, pump).await;
        }
        self.recorder.end("term.out", &self.id, None);
        self.recorder.fact("term.exit", record::fields(json!({"id": &*self.id, "exit_code": status.code()})));
        self.outcome.set(Some(Outcome { status, at: SystemTime::now() }));
        self.changed.notify_waiters();
    }

    fn record_open(&self) {
        let (cols, rows) = self.size.get();
        let about = json!({"id": &*self.id, "command": self.shown, "cwd": self.cwd, "user": self.user, "cols": cols, "rows": rows});
        self.recorder.fact("term.open", record::fields(about));
    }

    /// Type at it; waits while the program does not read.
    ///
    /// # Errors
    /// 409 when it has ended.
    pub async fn write(&self, mut data: &[u8]) -> Result<()> {
        let input = self.input.borrow().clone().filter(|_| self.outcome.get().is_none()).ok_or_else(ended)?;
        if self.recorder.input() {
            self.recorder.room().await;
            self.recorder.data("term.in", &self.id, None, data);
        }
        while !data.is_empty() {
            let mut guard = tokio::select! {
                guard = input.writable() => guard?,
                _ended = self.exit.wait() => return Err(ended()),
            };
            match guard.try_io(|file| file.get_ref().write(data)) {
                Ok(Ok(count)) => data = &data[count..],
                Ok(Err(_hung_up)) => return Err(ended()),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }

    /// Give it another size.
    pub fn resize(&self, cols: u16, rows: u16) -> Result<()> {
        if cols == 0 || rows == 0 {
            return Err(Error::invalid("a terminal has at least one column and one row")
                .remedy("send cols and rows of 1 or more"));
        }
        if self.pty && self.size.replace((cols, rows)) != (cols, rows) {
            if let Some(master) = &*self.input.borrow() {
                sys_pty::resize(master.get_ref(), cols, rows)?;
            }
            self.recorder.fact("term.resize", record::fields(json!({"id": &*self.id, "cols": cols, "rows": rows})));
        }
        Ok(())
    }

    /// Signal what runs in its foreground.
    pub fn signal(&self, signal: i32) -> Result<()> {
        if self.outcome.get().is_some() {
            return Err(ended());
        }
        let group = match &*self.input.borrow() {
            Some(master) if self.pty => sys_pty::foreground(master.get_ref()).unwrap_or(self.pid),
            _ => self.pid,
        };
        sys::kill(-group, signal).or_else(|_| sys::kill(self.pid, signal)).map_err(Error::from)
    }

    /// End it and all that it started.
    pub async fn kill(&self) {
        self.tag.kill().await;
        self.input.borrow_mut().take();
    }

    /// Become its holder: the number of this holding.
    ///
    /// # Errors
    /// 409 when another holds it and `takeover` is not asked for.
    pub fn hold(&self, takeover: bool) -> Result<u64> {
        if self.holder.get() != 0 && !takeover {
            return Err(Error::new(409, "terminal_held", "ALREADY_CONNECTED", "another client holds this terminal")
                .remedy("add takeover=1 to take it over, or mode=viewer to look on"));
        }
        self.last_holder.set(self.last_holder.get() + 1);
        self.holder.set(self.last_holder.get());
        self.changed.notify_waiters();
        Ok(self.last_holder.get())
    }

    /// Is this holding still the one?
    pub fn holds(&self, holding: u64) -> bool {
        self.holder.get() == holding
    }

    /// The client with this holding has gone.
    pub fn let_go(&self, holding: u64) {
        if self.holds(holding) {
            self.holder.set(0);
            self.taken.set(None);
            self.made_room.notify_waiters();
        }
    }

    /// The holder has the output up to `offset`.
    pub fn take(&self, offset: u64) {
        self.taken.set(Some(offset));
        self.made_room.notify_waiters();
    }

    /// Up to `limit` bytes from `offset`, all of one stream: (their real offset, bytes, are they standard error).
    pub fn read(&self, offset: u64, limit: usize) -> (u64, Vec<u8>, bool) {
        let output = self.output.borrow();
        let from = offset.max(output.start());
        let marks = self.marks.borrow();
        let after = marks.iter().position(|&(at, _)| at > from).unwrap_or(marks.len());
        let error = after.checked_sub(1).is_some_and(|index| marks[index].1);
        let until = marks.get(after).map_or(output.end(), |&(at, _)| at);
        let room = usize::try_from(until.saturating_sub(from)).unwrap_or(usize::MAX);
        let (from, data) = output.read(from, limit.min(room));
        (from, data, error)
    }

    /// How it ended, once all its own output is there.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.get()
    }

    pub fn size(&self) -> (u16, u16) {
        self.size.get()
    }

    pub fn describe(&self) -> Value {
        let outcome = self.outcome.get();
        let (cols, rows) = self.size.get();
        json!({
            "id": &*self.id,
            "command": self.shown,
            "cwd": self.cwd,
            "user": self.user,
            "pid": self.pid,
            "state": if outcome.is_some() { "exited" } else { "running" },
            "exit_code": outcome.map(|end| end.status.code()),
            "cols": cols,
            "rows": rows,
            "clients": self.clients.get(),
            "output_offset": self.output.borrow().end(),
            "started_at": clock::rfc3339(self.started_at),
            "finished_at": outcome.map(|end| clock::rfc3339(end.at)),
        })
    }
}

/// The environment and identity of a terminal's program.
pub fn surroundings(
    agent: &Agent,
    user: Option<&str>,
    extra: &BTreeMap<String, String>,
) -> Result<(Identity, Environment)> {
    let identity = agent.identity(user)?;
    let env = environment::compose(agent, &identity, extra);
    Ok((identity, env))
}

fn ended() -> Error {
    Error::new(409, "terminal_ended", "RUNTIME_ERROR", "the terminal's program has ended")
        .remedy("read its output and exit code, or create another terminal")
}
