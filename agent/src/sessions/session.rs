//! A session: a shell that remembers, one run at a time.
//!
//! Called by the `/session` and `/v1/isolated` routes. Invariants: a run that times out or whose client leaves is interrupted, the session
//! lives on; when a run ends its shell (`exit`, `set -e`), the next run finds the same state in a new one, jobs aside; a killed shell
//! leaves none.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::script::Said;
use super::shell::{Shell, Start};
use crate::agent::Agent;
use crate::commands::process::new_id;
use crate::commands::spool::Stream;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::users::Identity;
use crate::{record, sys};

/// How long a run may take to obey an interrupt, and then a kill.
const PATIENCE: Duration = Duration::from_secs(2);
const PIECES_AHEAD: usize = 16;

pub struct Session {
    pub id: String,
    agent: Rc<Agent>,
    identity: Identity,
    env: Environment,
    cwd: String,
    shell: RefCell<Option<Rc<Shell>>>,
    /// Brings back the state of a shell that has ended.
    state: RefCell<String>,
    busy: Cell<bool>,
}

pub struct Run {
    pub command: String,
    pub cwd: Option<String>,
    pub timeout: Option<Duration>,
}

/// What comes of a run.
pub enum Event {
    Output(Stream, Vec<u8>),
    End(Ended),
}

#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub code: i32,
    pub timed_out: bool,
    /// The shell ended with it.
    pub exited: bool,
}

impl Session {
    pub async fn start(agent: Rc<Agent>, identity: Identity, env: Environment, cwd: String) -> Result<Rc<Self>> {
        let session = Rc::new(Self {
            id: new_id()?,
            agent,
            identity,
            env,
            cwd,
            shell: RefCell::default(),
            state: RefCell::default(),
            busy: Cell::new(false),
        });
        session.shell().await?;
        Ok(session)
    }

    /// The living shell, a new one when the last has ended.
    async fn shell(&self) -> Result<Rc<Shell>> {
        let living = self.shell.borrow().clone().filter(|shell| shell.exit.status().is_none());
        if let Some(shell) = living {
            return Ok(shell);
        }
        let state = self.state.borrow().clone();
        let start = Start { cwd: self.cwd.clone(), env: self.env.clone(), identity: self.identity.clone(), state };
        let shell = Rc::new(Shell::start(&self.agent, start).await?);
        self.shell.replace(Some(shell.clone()));
        Ok(shell)
    }

    /// Begins a run, which goes on by itself; dropping the receiver interrupts it.
    ///
    /// # Errors
    /// 409 while another run is on.
    pub async fn run(self: &Rc<Self>, run: Run) -> Result<mpsc::Receiver<Event>> {
        if run.command.contains('\0') {
            return Err(Error::invalid("the command has a NUL byte"));
        }
        if self.agent.recorder.refuses() {
            return Err(record::refusal());
        }
        if self.busy.replace(true) {
            return Err(busy());
        }
        let free = Free(self.clone());
        let shell = self.shell().await?;
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let running = Running::new(self, shell, sender, run.timeout)?;
        running.record_start(&run);
        running.shell.send_run(&run.command, run.cwd.as_deref()).await?;
        tokio::task::spawn_local(async move {
            let _free = free;
            running.drive().await;
        });
        Ok(receiver)
    }

    /// Ends the shell and all it started.
    pub async fn close(&self) {
        let shell = self.shell.borrow_mut().take();
        if let Some(shell) = shell {
            shell.tag.kill().await;
        }
    }
}

fn busy() -> Error {
    let mut error = Error::new(409, "session_busy", "RUNTIME_ERROR", "session is busy: another run has not ended yet");
    error.retryable = true;
    error.remedy("wait for the run, or use another session")
}

/// Lets the next run begin.
struct Free(Rc<Session>);

impl Drop for Free {
    fn drop(&mut self) {
        self.0.busy.set(false);
    }
}

/// One run from its start to its end.
struct Running {
    session: Rc<Session>,
    shell: Rc<Shell>,
    sender: mpsc::Sender<Event>,
    id: Arc<str>,
    started_s: f64,
    timeout: Option<Instant>,
    /// Living when it began: background jobs of earlier runs.
    before: Vec<i32>,
}

/// How far ending a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pressure {
    None,
    Interrupted,
    Killed,
    Ended,
}

impl Running {
    fn new(
        session: &Rc<Session>,
        shell: Rc<Shell>,
        sender: mpsc::Sender<Event>,
        timeout: Option<Duration>,
    ) -> Result<Self> {
        Ok(Self {
            session: session.clone(),
            before: shell.tag.members(),
            shell,
            sender,
            id: new_id()?.into(),
            started_s: sys::monotonic_seconds(),
            timeout: timeout.map(|timeout| Instant::now() + timeout),
        })
    }

    async fn drive(self) {
        let (mut pressure, mut timed_out, mut deadline) = (Pressure::None, false, self.timeout);
        let (code, exited) = loop {
            tokio::select! {
                biased;
                said = self.shell.listen() => match said {
                    Ok(Some(Said::Done(code))) => break (code, false),
                    Ok(Some(Said::Exiting(code))) => {
                        self.session.state.replace(self.shell.last_words().await);
                        break (code, true);
                    }
                    Ok(Some(Said::Ready)) => {}
                    Ok(None) | Err(_) => {
                        self.session.state.take();
                        break (self.shell.exit.wait().await.code(), true);
                    }
                },
                // Background jobs may still hold its socket open.
                status = self.shell.exit.wait() => {
                    self.session.state.take();
                    break (status.code(), true);
                }
                (stream, data) = self.shell.output() => self.emit(stream, data).await,
                () = self.sender.closed(), if pressure == Pressure::None => {
                    (pressure, deadline) = self.press(pressure).await;
                }
                () = until(deadline) => {
                    timed_out |= pressure == Pressure::None;
                    (pressure, deadline) = self.press(pressure).await;
                }
            }
        };
        for (stream, data) in self.shell.rest() {
            // An interrupted shell ends its line.
            if pressure == Pressure::None || stream == Stream::Stdout || data != b"\n" {
                self.emit(stream, data).await;
            }
        }
        self.shell.rested();
        self.end(Ended { code, timed_out, exited }).await;
    }

    /// Interrupts, then kills the run's processes, then the shell: one step a call.
    async fn press(&self, pressure: Pressure) -> (Pressure, Option<Instant>) {
        let next = match pressure {
            Pressure::None => {
                self.shell.interrupt();
                Pressure::Interrupted
            }
            Pressure::Interrupted => {
                let members = self.shell.tag.members();
                let of_run = members.into_iter().filter(|pid| *pid != self.shell.pid && !self.before.contains(pid));
                // It may have ended since: nothing to do then.
                of_run.for_each(|pid| drop(sys::kill(pid, libc::SIGKILL)));
                self.shell.interrupt();
                Pressure::Killed
            }
            Pressure::Killed | Pressure::Ended => {
                self.shell.tag.kill().await;
                Pressure::Ended
            }
        };
        (next, Some(Instant::now() + PATIENCE))
    }

    async fn emit(&self, stream: Stream, data: Vec<u8>) {
        let recorder = &self.session.agent.recorder;
        if recorder.commands() {
            recorder.data("cmd.out", &self.id, Some(stream.name()), &data);
        }
        // Nobody reads any more: the run is being interrupted.
        let _unread = self.sender.send(Event::Output(stream, data)).await;
    }

    fn record_start(&self, run: &Run) {
        if self.session.agent.recorder.commands() {
            let user = &self.session.identity.name;
            let about = json!({"id": &*self.id, "command": run.command, "session": self.session.id, "user": user, "cwd": run.cwd});
            self.session.agent.recorder.fact("cmd.start", record::fields(about));
        }
    }

    async fn end(&self, ended: Ended) {
        let recorder = &self.session.agent.recorder;
        if recorder.commands() {
            for stream in [Stream::Stdout, Stream::Stderr] {
                recorder.end("cmd.out", &self.id, Some(stream.name()));
            }
            let duration_s = sys::monotonic_seconds() - self.started_s;
            let about = json!({"id": &*self.id, "exit_code": ended.code, "duration_s": duration_s, "timed_out": ended.timed_out});
            recorder.fact("cmd.exit", record::fields(about));
        }
        let _unread = self.sender.send(Event::End(ended)).await;
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
