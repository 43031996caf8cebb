//! What `/v2/exec` and `/v2/processes` have in common: the command a request describes, a process as JSON.
//!
//! Without I/O but the look-up of users. Invariant: an unknown field is refused, so that a misspelt one is not silently ignored.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::agent::Agent;
use crate::clock;
use crate::commands::process::{Input, Outcome, Process, Spec};
use crate::commands::spawn;
use crate::environment;
use crate::error::{Error, Result};

/// A shell's text or argv.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Command {
    Shell(String),
    Argv(Vec<String>),
}

/// Where, as whom and how long a command runs.
pub struct Wanted {
    pub command: Command,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    pub user: Option<String>,
    pub timeout_s: Option<f64>,
    pub name: Option<String>,
    pub stdin: Input,
    pub foreground: bool,
}

/// # Errors
/// 400 for an empty command, an unknown user, a timeout that is none.
pub fn spec(agent: &Agent, wanted: Wanted) -> Result<Spec> {
    let (argv, shown) = match wanted.command {
        Command::Shell(text) if !text.trim().is_empty() => (spawn::shell(&text), text),
        Command::Argv(argv) if !argv.is_empty() => (argv.clone(), argv.join(" ")),
        _ => return Err(Error::invalid("the command is empty").remedy("give a shell's text or a list of arguments")),
    };
    let identity = agent.identity(wanted.user.as_deref())?;
    Ok(Spec {
        argv,
        shown,
        name: wanted.name.filter(|name| !name.is_empty()),
        cwd: absolute(agent, wanted.cwd.as_deref().unwrap_or_default()),
        env: environment::compose(agent, &identity, &wanted.env),
        identity,
        timeout: wanted.timeout_s.map(seconds).transpose()?,
        stdin: wanted.stdin,
        foreground: wanted.foreground,
    })
}

fn absolute(agent: &Agent, cwd: &str) -> String {
    let workdir = agent.workdir();
    if cwd.is_empty() {
        return workdir;
    }
    Path::new(&workdir).join(cwd).to_string_lossy().into_owned()
}

/// # Errors
/// 400 unless it is a positive number.
pub fn seconds(value: f64) -> Result<Duration> {
    let valid = Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    valid.ok_or_else(|| {
        Error::invalid(format!("{value} is no time in seconds")).remedy("give a positive number, or none")
    })
}

/// A process as the API shows it.
pub fn describe(process: &Process) -> Value {
    let outcome = process.outcome();
    json!({
        "id": process.id,
        "name": process.name,
        "command": process.shown,
        "cwd": process.cwd,
        "user": process.user,
        "pid": process.pid,
        "state": outcome.map_or("running", |outcome| state(&outcome)),
        "exit_code": outcome.map(|outcome| outcome.status.code()),
        "signal": outcome.and_then(|outcome| outcome.status.signal()),
        "timed_out": outcome.is_some_and(|outcome| outcome.timed_out),
        "oom_killed": outcome.is_some_and(|outcome| outcome.oom_killed),
        "started_at": clock::rfc3339(process.started_at),
        "finished_at": outcome.map(|outcome| clock::rfc3339(outcome.finished_at)),
    })
}

fn state(outcome: &Outcome) -> &'static str {
    if outcome.killed || outcome.timed_out || outcome.status.signal().is_some() {
        "killed"
    } else {
        "exited"
    }
}

/// The end of a process, as `exec` and its last event tell it.
pub fn ending(outcome: &Outcome) -> Value {
    json!({
        "exit_code": outcome.status.code(),
        "signal": outcome.status.signal(),
        "duration_s": outcome.duration_s,
        "timed_out": outcome.timed_out,
        "oom_killed": outcome.oom_killed,
    })
}
