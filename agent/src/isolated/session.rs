//! One isolated session: the helper process that is its root, and the way to the agent inside.
//!
//! Owned by `isolated`. Invariant: when it is closed, or its helper ends, all its processes and changes are gone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as std_unix;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::spec::Spec;
use crate::agent::Agent;
use crate::commands::process::new_id;
use crate::commands::reaper::Exit;
use crate::commands::spawn::{self, Launch, Stdio};
use crate::environment::{self, Environment};
use crate::error::{Error, Result};
use crate::proxy::{self, Target};
use crate::sys;
use crate::users::{self, Identity};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Ids that are mapped one to one, as many as the sandbox has.
const MAP: &str = "/proc/self/uid_map";

pub struct Session {
    pub id: String,
    pub spec: Spec,
    pub created_at: SystemTime,
    pub last_run_at: Cell<SystemTime>,
    pub idle_since: Cell<Instant>,
    /// Runs that are on.
    pub running: Cell<usize>,
    /// Background runs: start by id.
    pub runs: RefCell<HashMap<String, SystemTime>>,
    /// Id of the shell inside.
    pub shell: String,
    pid: i32,
    pub exit: Rc<Exit>,
    address: std_unix::SocketAddr,
    token: String,
}

impl Session {
    pub async fn start(agent: &Agent, spec: Spec) -> Result<Self> {
        let identity = match spec.uid {
            Some(uid) => users::identify_ids(uid, spec.gid),
            None => agent.identity(None)?,
        };
        let name = format!("talon-isolated-{}", new_id()?);
        let address = std_unix::SocketAddr::from_abstract_name(name)?;
        let listener = std_unix::UnixListener::bind_addr(&address)?;
        let (ours, theirs) = std_unix::UnixStream::pair()?;
        let launch = helper(&spec, OwnedFd::from(listener), OwnedFd::from(theirs))?;
        let child = spawn::spawn_self(agent, launch)?;
        let token = new_id()?;
        let mut session = Self {
            id: uuid_of(&new_id()?),
            created_at: SystemTime::now(),
            last_run_at: Cell::new(SystemTime::now()),
            idle_since: Cell::new(Instant::now()),
            running: Cell::new(0),
            runs: RefCell::default(),
            shell: String::new(),
            pid: child.pid,
            exit: child.exit,
            address,
            token,
            spec,
        };
        let settings = session.settings(agent, &identity);
        let entered = tokio::time::timeout(START_TIMEOUT, session.admit(ours, &settings)).await;
        entered.unwrap_or_else(|_| Err(unavailable("the session did not start in time")))?;
        let body = json!({"cwd": session.spec.workspace.path});
        let (status, answer) = session.ask("POST", "/session", &body).await?;
        match answer.get("session_id").and_then(Value::as_str) {
            Some(shell) if status == 200 => session.shell = shell.to_owned(),
            _ => return Err(unavailable(&format!("its shell did not start: {answer}"))),
        }
        Ok(session)
    }

    /// What the agent inside is claimed with.
    fn settings(&self, agent: &Agent, identity: &Identity) -> Value {
        let env = self.spec.pass(environment::compose(agent, identity, &Environment::new()));
        json!({
            "id": self.id,
            "token": self.token,
            "mode": "isolated",
            "user": format!("{}:{}", identity.uid, identity.gid),
            "workdir": self.spec.workspace.path,
            "env": env,
            "hardening": {"capabilities": agent.settings.borrow().hardening.capabilities},
        })
    }

    /// Maps the helper's ids, sends the settings, waits until it has entered its namespaces.
    async fn admit(&self, channel: std_unix::UnixStream, settings: &Value) -> Result<()> {
        channel.set_nonblocking(true)?;
        let mut channel = BufReader::new(UnixStream::from_std(channel)?);
        expect(&mut channel, "map").await?;
        for kind in ["uid", "gid"] {
            let count = mapped(&format!("/proc/self/{kind}_map")).map_err(|error| unavailable(&error.to_string()))?;
            let path = format!("/proc/{}/{kind}_map", self.pid);
            let mut file = fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(|error| unavailable(&format!("{path}: {error}")))?;
            file.write_all(count.as_bytes()).map_err(|error| unavailable(&format!("{path}: {error}")))?;
        }
        channel.get_mut().write_all(format!("{settings}\n").as_bytes()).await?;
        expect(&mut channel, "ok").await
    }

    /// A connection to the agent inside.
    fn connect(&self, path: String) -> Result<Target> {
        if self.exit.status().is_some() {
            return Err(unavailable("the session is dead"));
        }
        let stream =
            std_unix::UnixStream::connect_addr(&self.address).map_err(|error| unavailable(&error.to_string()))?;
        stream.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(stream)?.into_split();
        let extra = format!("Host: isolated\r\nX-EXECD-ACCESS-TOKEN: {}\r\n", self.token);
        Ok(Target {
            reader: Box::new(reader),
            writer: Box::new(writer),
            path,
            extra,
            name: "the isolated session".to_owned(),
        })
    }

    /// Passes a client's request on.
    pub async fn forward(
        &self,
        request: crate::http::Request,
        path: String,
        token: &str,
    ) -> Result<crate::http::Response> {
        proxy::forward(request, token, self.connect(path)?).await
    }

    /// A request of our own; its answer streams.
    pub async fn send(&self, method: &str, path: &str, body: &Value) -> Result<proxy::Streaming> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        proxy::send(self.connect(path.to_owned())?, method, &body).await
    }

    /// A request of our own with a small JSON answer.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        let mut answer = self.send(method, path, body).await?;
        let text = answer.read_all().await?;
        Ok((answer.status(), serde_json::from_slice(&text).unwrap_or_default()))
    }

    pub fn status(&self) -> &'static str {
        if self.exit.status().is_some() {
            "dead"
        } else {
            "active"
        }
    }

    pub fn idle_remaining(&self) -> Option<u64> {
        let limit = self.spec.idle_timeout_seconds.filter(|&seconds| seconds > 0)?;
        let idle = if self.running.get() > 0 { 0 } else { self.idle_since.get().elapsed().as_secs() };
        Some(limit.saturating_sub(idle))
    }

    pub async fn close(&self) {
        // Gone already: then it only needs to be waited for.
        let _gone = sys::kill(self.pid, libc::SIGKILL);
        self.exit.wait().await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.exit.status().is_none() {
            // It may be ending right now.
            let _gone = sys::kill(self.pid, libc::SIGKILL);
        }
    }
}

fn helper(spec: &Spec, http: OwnedFd, channel: OwnedFd) -> Result<Launch> {
    Ok(Launch {
        argv: vec!["isolate".to_owned(), serde_json::to_string(spec)?],
        cwd: "/".to_owned(),
        env: Environment::new(),
        identity: Identity::root(),
        stdin: Stdio::Fd(http),
        stdout: Stdio::Fd(channel),
        stderr: Stdio::Null,
        terminal: false,
    })
}

async fn expect(channel: &mut BufReader<UnixStream>, word: &str) -> Result<()> {
    let mut line = String::new();
    channel.read_line(&mut line).await?;
    if line.trim() == word {
        return Ok(());
    }
    let said = if line.is_empty() { "its helper ended" } else { line.trim() };
    Err(unavailable(said))
}

/// A map of each of our own ids to itself.
fn mapped(path: &str) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (inside, _, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some(format!("{inside} {inside} {count}\n"))
    });
    Ok(lines.collect())
}

pub fn unavailable(why: &str) -> Error {
    Error::new(503, "isolation_unavailable", "NOT_SUPPORTED", format!("the isolated session is not available: {why}"))
        .remedy("see /v1/isolated/capabilities")
}

/// 32 hexadecimal digits in the form of a UUID.
pub fn uuid_of(hex: &str) -> String {
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// Can the agent make user namespaces here?
pub fn possible() -> bool {
    let limit = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    limit.trim().parse::<u64>().is_ok_and(|limit| limit > 0) && fs::metadata(MAP).is_ok()
}
