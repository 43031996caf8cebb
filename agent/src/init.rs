//! PID 1 of a sandbox: waits for the claim, serves, reaps, passes signals on, ends with the entrypoint's exit code.
//!
//! Called by `main`. Invariants: one thread runs everything; nobody in the sandbox can look into this process or end it other than by an
//! orderly SIGTERM; when it ends, all processes of the sandbox have ended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::LocalSet;

use crate::agent::{Agent, Settings};
use crate::commands::process::{Input, Process, Spec};
use crate::error::{Error, Result};
use crate::{code, control, environment, http, loopback, router, seal, sys};

const HTTP_FD: i32 = 3;
const CONTROL_FD: i32 = 4;
/// What clients of the execd protocol look for as the first process.
const NAME: &CStr = c"execd";
/// So long without a request the agent counts as idle.
const QUIET: Duration = Duration::from_secs(2);
const DEFAULT_GRACE: Duration = Duration::from_secs(2);
const SIGINFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();
/// Passed on to the entrypoint, as a container's init does.
const FORWARDED: [i32; 5] = [libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];
const STOPPING: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// State of PID 1 before and after the claim.
pub struct Init {
    pub agent: RefCell<Option<Rc<Agent>>>,
    http: RefCell<Option<UnixListener>>,
    entrypoint: RefCell<Option<Rc<Process>>>,
    exit_code: Cell<Option<u8>>,
    ended: Notify,
}

pub fn main() -> u8 {
    sys::tune_allocator();
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("talon-agent init: {error}");
            70
        }
    }
}

fn run() -> io::Result<u8> {
    sys::set_name(NAME)?;
    sys::set_undumpable()?;
    let http = UnixListener::from(sys::inherit(HTTP_FD)?);
    let control = sys::inherit(CONTROL_FD)?;
    http.set_nonblocking(true)?;
    sys::set_nonblocking(&control, true)?;
    let (runtime, signals) = prepare()?;
    let init = Init::new(http);
    sys::relax_memory();
    LocalSet::new().block_on(&runtime, async move {
        tokio::task::spawn_local(control::serve(sys::watch(control)?, init.clone()));
        init.serve(signals).await
    })
}

/// Serves one isolated session as the first process of its namespaces, claimed from the start.
pub fn serve_claimed(http: UnixListener, settings: Settings) -> io::Result<u8> {
    sys::tune_allocator();
    sys::set_undumpable()?;
    http.set_nonblocking(true)?;
    let (runtime, signals) = prepare()?;
    let init = Init::new(http);
    LocalSet::new().block_on(&runtime, async move {
        let claimed = Agent::new(settings, BTreeMap::new()).and_then(|agent| {
            seal::agent()?;
            init.claimed(Rc::new(agent))
        });
        claimed.map_err(io::Error::other)?;
        init.serve(signals).await
    })
}

fn prepare() -> io::Result<(tokio::runtime::Runtime, OwnedFd)> {
    let watched: Vec<i32> = [libc::SIGCHLD].into_iter().chain(STOPPING).chain(FORWARDED).collect();
    let signals = sys::signal_fd(&watched)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(4)
        .thread_stack_size(256 << 10)
        .thread_keep_alive(Duration::from_secs(1))
        .build()?;
    Ok((runtime, signals))
}

impl Init {
    fn new(http: UnixListener) -> Rc<Self> {
        Rc::new(Self {
            agent: RefCell::default(),
            http: RefCell::new(Some(http)),
            entrypoint: RefCell::default(),
            exit_code: Cell::new(None),
            ended: Notify::new(),
        })
    }

    async fn serve(self: Rc<Self>, signals: OwnedFd) -> io::Result<u8> {
        let signals = sys::watch(File::from(signals))?;
        loop {
            tokio::select! {
                guard = signals.readable() => {
                    let mut guard = guard?;
                    while let Ok(Ok(signal)) = guard.try_io(|fd| next_signal(fd.get_ref())) {
                        self.on_signal(signal);
                    }
                }
                () = self.ended.notified() => {}
            }
            if let Some(code) = self.exit_code.get() {
                return Ok(code);
            }
        }
    }

    fn on_signal(self: &Rc<Self>, signal: i32) {
        let agent = self.agent.borrow().clone();
        match (signal, agent) {
            (libc::SIGCHLD, Some(agent)) => agent.reaper.reap(),
            (0, _) => {}
            (libc::SIGCHLD, None) => while sys::reap().is_some() {},
            (signal, None) if STOPPING.contains(&signal) => self.end(0),
            (signal, Some(_)) if STOPPING.contains(&signal) => {
                let init = self.clone();
                tokio::task::spawn_local(async move { init.stop(DEFAULT_GRACE).await });
            }
            (signal, _) => {
                if let Some(entrypoint) = self.entrypoint.borrow().as_ref() {
                    // It may have just ended: then there is nobody to tell.
                    let _ended = entrypoint.signal(signal);
                }
            }
        }
    }

    /// The sandbox is claimed: serve its clients and start its entrypoint.
    pub fn claimed(self: &Rc<Self>, agent: Rc<Agent>) -> Result<()> {
        let listener = self.http.borrow_mut().take().ok_or_else(already_claimed)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        self.agent.replace(Some(agent.clone()));
        self.start_entrypoint(&agent)?;
        code::claimed(&agent);
        tokio::task::spawn_local(rest_when_quiet(agent.clone()));
        if agent.settings.borrow().loopback {
            // A program of the image may have the port: then it is not ours to answer there.
            tokio::task::spawn_local(loopback::serve(agent.clone()));
        }
        let handle = Rc::new(move |request| router::answer(agent.clone(), request));
        tokio::task::spawn_local(http::listener::serve(listener, handle));
        Ok(())
    }

    fn start_entrypoint(self: &Rc<Self>, agent: &Rc<Agent>) -> Result<()> {
        let Some(argv) = agent.settings.borrow().entrypoint.clone().filter(|argv| !argv.is_empty()) else {
            return Ok(());
        };
        let identity = agent.identity(None)?;
        let spec = Spec {
            shown: argv.join(" "),
            argv,
            name: Some("entrypoint".into()),
            cwd: agent.workdir(),
            env: environment::compose(agent, &identity, &Default::default()),
            identity,
            timeout: None,
            stdin: Input::Closed,
            foreground: false,
        };
        let process = Process::start(agent, spec)?;
        self.entrypoint.replace(Some(process.clone()));
        let init = self.clone();
        tokio::task::spawn_local(async move {
            process.finished().await;
            init.stop(DEFAULT_GRACE).await;
        });
        Ok(())
    }

    /// Ends every process, politely first, and then PID 1 with the entrypoint's code.
    pub async fn stop(&self, grace: Duration) {
        let Some(agent) = self.agent.borrow().clone() else { return self.end(0) };
        if agent.stopping.replace(true) {
            return;
        }
        sys::kill_all(libc::SIGTERM);
        sys::kill_all(libc::SIGCONT);
        let _late = tokio::time::timeout(grace, all_gone()).await;
        sys::kill_all(libc::SIGKILL);
        let entrypoint = self.entrypoint.borrow().clone();
        let code = match entrypoint {
            Some(process) => tokio::time::timeout(grace, process.exit.wait()).await.map_or(137, |status| status.code()),
            None => 0,
        };
        // The worker takes this line as the reason of the end.
        eprintln!("the entrypoint exited with code {code}");
        self.end(u8::try_from(code).unwrap_or(255));
    }

    fn end(&self, code: u8) {
        self.exit_code.set(Some(code));
        self.ended.notify_one();
    }
}

fn already_claimed() -> Error {
    Error::new(409, "already_claimed", "RUNTIME_ERROR", "the sandbox is claimed already").remedy("claim another shell")
}

/// Gives memory back each time the clients have been quiet for a moment, and sleeps until they are back.
async fn rest_when_quiet(agent: Rc<Agent>) {
    loop {
        while tokio::time::timeout(QUIET, agent.activity.notified()).await.is_ok() {}
        sys::relax_memory();
        agent.activity.notified().await;
    }
}

/// Waits until no process but this one is left; each end wakes the reaper, so looking again soon is cheap and short.
async fn all_gone() {
    while std::process::id() == 1 && others_alive() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn others_alive() -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(|n| n != "1" && n.parse::<u32>().is_ok()))
}

/// The next signal that is to be heeded: 0 for an order to stop from inside, where nobody may end the sandbox's first process.
fn next_signal(mut fd: &File) -> io::Result<i32> {
    let mut info = [0; SIGINFO_BYTES];
    fd.read_exact(&mut info)?;
    // `ssi_signo` is the first field, `ssi_pid` the fourth; senders outside the PID namespace have no number in it.
    let field = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let (signal, sender) = (field(0), field(12));
    Ok(if sender != 0 && STOPPING.contains(&signal) { 0 } else { signal })
}
