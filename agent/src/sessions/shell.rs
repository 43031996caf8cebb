//! One living shell of a session: its process, its control socket, its two outputs.
//!
//! Owned by `session`. Invariants: the outputs are read at all times, so that background jobs never wait for a reader; what comes between
//! two runs is kept, bounded, for the next; SIGINT reaches foreground commands only, because jobs of the shell ignore it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use memchr::memmem;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::script::{parse, Dialect, Said, LAST};
use crate::agent::Agent;
use crate::commands::process::new_id;
use crate::commands::reaper::Exit;
use crate::commands::spawn::{self, Launch, Stdio};
use crate::commands::spool::Stream;
use crate::commands::tree::Tag;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::sys;
use crate::users::Identity;

const READ_BYTES: usize = 64 << 10;
/// Output that may wait for the client of a run before the command has to wait.
const WINDOW_BYTES: usize = 1 << 20;
/// Output of background jobs that is kept between runs.
const IDLE_BYTES: usize = 256 << 10;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_SAID_BYTES: usize = 8 << 20;

pub struct Shell {
    pub pid: i32,
    pub tag: Tag,
    pub exit: Rc<Exit>,
    dialect: Dialect,
    control: UnixStream,
    said: RefCell<Vec<u8>>,
    output: Rc<Output>,
    outputs: [Rc<AsyncFd<File>>; 2],
}

/// Output on its way to the client.
#[derive(Default)]
struct Output {
    pieces: RefCell<VecDeque<(Stream, Vec<u8>)>>,
    bytes: Cell<usize>,
    /// A run's client takes it.
    wanted: Cell<bool>,
    changed: Notify,
}

impl Output {
    fn push(&self, stream: Stream, data: Vec<u8>) {
        self.bytes.set(self.bytes.get() + data.len());
        self.pieces.borrow_mut().push_back((stream, data));
        while !self.wanted.get() && self.bytes.get() > IDLE_BYTES && self.pop().is_some() {}
        self.changed.notify_waiters();
    }

    fn pop(&self) -> Option<(Stream, Vec<u8>)> {
        let piece = self.pieces.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - piece.1.len());
        self.changed.notify_waiters();
        Some(piece)
    }

    async fn room(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.wanted.get() || self.bytes.get() < WINDOW_BYTES {
                return;
            }
            changed.await;
        }
    }
}

pub struct Start {
    pub cwd: String,
    pub env: Environment,
    pub identity: Identity,
    /// Commands that bring back the state of an earlier shell.
    pub state: String,
}

impl Shell {
    /// Starts the shell and waits until it is ready.
    pub async fn start(agent: &Agent, start: Start) -> Result<Self> {
        let dialect = Dialect::find();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut env = start.env;
        env.extend([("PS1".to_owned(), String::new()), ("PS2".to_owned(), String::new())]);
        let launch = Launch {
            argv: dialect.argv(),
            cwd: start.cwd,
            env,
            identity: start.identity,
            stdin: Stdio::Fd(OwnedFd::from(theirs)),
            stdout: Stdio::Pipe,
            stderr: Stdio::Pipe,
            terminal: false,
        };
        let child = spawn::spawn(agent, launch)?;
        let pipes = child.stdout.zip(child.stderr).ok_or_else(|| Error::runtime("the shell has no output"))?;
        let shell = Self {
            pid: child.pid,
            tag: child.tag,
            exit: child.exit,
            dialect,
            control: UnixStream::from_std(ours)?,
            said: RefCell::default(),
            output: Rc::default(),
            outputs: [Rc::new(sys::watch(pipes.0)?), Rc::new(sys::watch(pipes.1)?)],
        };
        shell.settle(&start.state).await?;
        for (stream, pipe) in [Stream::Stdout, Stream::Stderr].into_iter().zip(&shell.outputs) {
            tokio::task::spawn_local(pump(stream, pipe.clone(), shell.output.clone()));
        }
        Ok(shell)
    }

    async fn settle(&self, state: &str) -> Result<()> {
        self.send(&self.dialect.greeting(state, &delimiter()?)).await?;
        let ready = tokio::time::timeout(START_TIMEOUT, self.listen()).await;
        if !matches!(ready, Ok(Ok(Some(Said::Ready)))) {
            self.tag.kill().await;
            return Err(Error::runtime("the session's shell did not start")
                .remedy("check that /bin/bash or /bin/sh works in this image"));
        }
        // What an interactive shell says of a missing terminal is nobody's output.
        self.outputs.iter().try_for_each(|pipe| drain(pipe.get_ref(), |_| ())).map_err(Error::from)
    }

    /// Sends one run.
    pub async fn send_run(&self, command: &str, cwd: Option<&str>) -> Result<()> {
        self.output.wanted.set(true);
        self.send(&self.dialect.run(command, cwd, &delimiter()?)).await
    }

    async fn send(&self, text: &str) -> Result<()> {
        let mut data = text.as_bytes();
        while !data.is_empty() {
            self.control.writable().await?;
            match self.control.try_write(data) {
                Ok(count) => data = &data[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next thing the shell says, `None` when it is gone. Other lines are skipped. Nothing is lost when dropped while waiting.
    pub async fn listen(&self) -> io::Result<Option<Said>> {
        loop {
            let line = take_line(&mut self.said.borrow_mut());
            match line {
                Some(line) => {
                    if let Some(said) = parse(&line) {
                        return Ok(Some(said));
                    }
                }
                None if !self.hear().await? => return Ok(None),
                None => {}
            }
        }
    }

    /// What an exiting shell says to bring its state back; nothing when it does not come to its last line.
    pub async fn last_words(&self) -> String {
        loop {
            if let Some(end) = memmem::find(&self.said.borrow(), LAST.as_bytes()) {
                return String::from_utf8_lossy(&self.said.borrow()[..end]).into_owned();
            }
            let heard = tokio::select! {
                biased;
                heard = self.hear() => heard,
                _gone = self.exit.wait() => return String::new(),
            };
            if !matches!(heard, Ok(true)) || self.said.borrow().len() >= MAX_SAID_BYTES {
                return String::new();
            }
        }
    }

    async fn hear(&self) -> io::Result<bool> {
        let mut buffer = vec![0; 4096];
        loop {
            self.control.readable().await?;
            match self.control.try_read(&mut buffer) {
                Ok(0) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    let mut said = self.said.borrow_mut();
                    let room = MAX_SAID_BYTES.saturating_sub(said.len());
                    said.extend_from_slice(&buffer[..count.min(room)]);
                    return Ok(true);
                }
            }
        }
    }

    /// The next output.
    pub async fn output(&self) -> (Stream, Vec<u8>) {
        loop {
            let changed = self.output.changed.notified();
            if let Some(piece) = self.output.pop() {
                return piece;
            }
            changed.await;
        }
    }

    /// Output that is here already: all that was written before the shell said that the run is done.
    pub fn rest(&self) -> Vec<(Stream, Vec<u8>)> {
        for (stream, pipe) in [Stream::Stdout, Stream::Stderr].into_iter().zip(&self.outputs) {
            // A pipe that cannot be read has nothing more to give.
            let _ended = drain(pipe.get_ref(), |data| self.output.push(stream, data.to_vec()));
        }
        std::iter::from_fn(|| self.output.pop()).collect()
    }

    /// The run is over: output is kept for the next, and never holds a job back.
    pub fn rested(&self) {
        self.output.wanted.set(false);
        self.output.changed.notify_waiters();
    }

    /// As Control-C.
    pub fn interrupt(&self) {
        // Gone already: then there is nothing to interrupt.
        let _gone = sys::kill(-self.pid, libc::SIGINT);
    }
}

async fn pump(stream: Stream, pipe: Rc<AsyncFd<File>>, output: Rc<Output>) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        output.room().await;
        let Ok(mut guard) = pipe.readable().await else { return };
        match guard.try_io(|pipe| pipe.get_ref().read(&mut buffer)) {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(count)) => output.push(stream, buffer[..count].to_vec()),
            Err(_would_block) => {}
        }
    }
}

/// Reads what is there, at most a pipe's worth and some more.
fn drain(mut pipe: &File, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    for _ in 0..32 {
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => take(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn take_line(said: &mut Vec<u8>) -> Option<String> {
    let end = said.iter().position(|&b| b == b'\n')?;
    let line: Vec<u8> = said.drain(..=end).collect();
    Some(String::from_utf8_lossy(&line).into_owned())
}

fn delimiter() -> io::Result<String> {
    Ok(format!("TALON_{}", new_id()?))
}
