//! `/command`: run in the foreground or background, interrupt, status, logs, as OpenSandbox clients expect.
//!
//! Invariants: the first event is `init`, exactly one terminal event comes last; output before a timeout is delivered; a client
//! that leaves ends its foreground command, whose log stays readable.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::agent::Agent;
use crate::clock;
use crate::commands::follow::{Follower, KillOnDrop, Next, Stream};
use crate::commands::process::{Input, Outcome, Process, Spec};
use crate::commands::spawn;
use crate::commands::text::Lines;
use crate::environment;
use crate::error::{Error, Result};
use crate::http::{sse, BodyWriter, Query, Request, Response};
use crate::users;

const GRACE: Duration = Duration::from_secs(3);
const PING_PERIOD: Duration = Duration::from_secs(3);
const MAX_LOG_BYTES: usize = 16 << 20;
const READ_BYTES: usize = 256 << 10;

#[derive(Deserialize)]
struct RunRequest {
    command: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    #[serde(default)]
    background: bool,
    /// Milliseconds.
    timeout: Option<i64>,
    uid: Option<u32>,
    gid: Option<u32>,
    envs: Option<BTreeMap<String, String>>,
}

pub async fn run(agent: Rc<Agent>, mut request: Request) -> Result<Response> {
    let wanted: RunRequest = request.json().await?;
    let background = wanted.background;
    let spec = spec(&agent, wanted)?;
    let process = match Process::start(&agent, spec) {
        Ok(process) => process,
        Err(error) if error.code == "command_not_found" => return Ok(not_started(error)),
        Err(error) => return Err(error.execd("INVALID_REQUEST_BODY")),
    };
    if background {
        return Ok(sse::response(move |mut out| async move {
            let done = json!({"type": "execution_complete", "execution_time": 0, "timestamp": clock::unix_millis()});
            let frames = [sse::bare(&text_event("init", &process.id)), sse::bare(&done)].concat();
            Ok(out.write(&frames).await?)
        }));
    }
    let guard = KillOnDrop::new(process.clone());
    Ok(sse::response(move |out| stream(process, guard, out)))
}

fn spec(agent: &Agent, wanted: RunRequest) -> Result<Spec> {
    let (argv, shown) = match (wanted.command, wanted.argv) {
        (Some(command), None) if !command.trim().is_empty() => (spawn::shell(&command), command),
        (None, Some(argv)) if !argv.is_empty() => (argv.clone(), argv.join(" ")),
        _ => return Err(Error::invalid("give exactly one of 'command' and 'argv', not empty")),
    };
    let timeout = match wanted.timeout {
        Some(millis) if millis < 0 => return Err(Error::invalid("timeout must not be negative")),
        Some(millis) if millis > 0 => Some(Duration::from_millis(millis.unsigned_abs())),
        _ => None,
    };
    let identity = match (wanted.uid, wanted.gid) {
        (None, None) => agent.identity(None)?,
        (Some(uid), gid) => users::identify_ids(uid, gid),
        (None, Some(_)) => return Err(Error::invalid("uid is required when gid is given")),
    };
    let env = environment::compose(agent, &identity, &wanted.envs.unwrap_or_default());
    let cwd = wanted.cwd.filter(|cwd| !cwd.is_empty()).unwrap_or_else(|| agent.workdir());
    let foreground = !wanted.background;
    Ok(Spec { argv, shown, name: None, cwd, env, identity, timeout, stdin: Input::Closed, foreground })
}

/// A program that cannot be executed ends like a shell's: 127.
fn not_started(error: Error) -> Response {
    sse::response(move |mut out| async move {
        let failure = json!({"ename": "CommandExecError", "evalue": "127", "traceback": [error.to_string()]});
        let ended = json!({"type": "error", "error": failure, "timestamp": clock::unix_millis()});
        let init = text_event("init", &crate::commands::process::new_id()?);
        Ok(out.write(&[sse::bare(&init), sse::bare(&ended)].concat()).await?)
    })
}

async fn stream(process: Rc<Process>, guard: KillOnDrop, mut out: BodyWriter) -> Result<()> {
    let mut follower = Follower::new(process.clone(), 0, None);
    let (mut stdout, mut stderr) = (Lines::default(), Lines::default());
    let mut frames = sse::bare(&text_event("init", &process.id));
    out.write(&frames).await?;
    let outcome = loop {
        let next = match tokio::time::timeout(PING_PERIOD, follower.next()).await {
            Ok(next) => next,
            Err(_quiet) => {
                out.write(&sse::bare(&text_event("ping", "pong"))).await?;
                continue;
            }
        };
        frames.clear();
        match next {
            Next::Output(read) if read.stream == Stream::Stdout => {
                stdout.push(&read.data, |line| frames.extend(sse::bare(&text_event("stdout", &line))));
            }
            Next::Output(read) => {
                stderr.push(&read.data, |line| frames.extend(sse::bare(&text_event("stderr", &line))));
            }
            Next::End(outcome) => break outcome,
        }
        out.write(&frames).await?;
    };
    guard.keep();
    for (kind, tail) in [("stdout", stdout.finish()), ("stderr", stderr.finish())] {
        frames.extend(tail.map(|line| sse::bare(&text_event(kind, &line))).unwrap_or_default());
    }
    frames.extend(sse::bare(&terminal_event(&outcome)));
    Ok(out.write(&frames).await?)
}

fn text_event(kind: &str, text: &str) -> Value {
    json!({"type": kind, "text": text, "timestamp": clock::unix_millis()})
}

fn terminal_event(outcome: &Outcome) -> Value {
    let (timestamp, code) = (clock::unix_millis(), outcome.status.code());
    if code == 0 && !outcome.timed_out {
        let took = (outcome.duration_s * 1000.0) as u64;
        return json!({"type": "execution_complete", "execution_time": took, "timestamp": timestamp});
    }
    let failure = json!({"ename": "CommandExecError", "evalue": code.to_string(), "traceback": [ending(outcome)]});
    json!({"type": "error", "error": failure, "timestamp": timestamp})
}

/// How it ended, in words.
fn ending(outcome: &Outcome) -> String {
    let base = match outcome.status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("exit status {}", outcome.status.code()),
    };
    match outcome {
        Outcome { timed_out: true, .. } => {
            format!("{base}: the command ran into its timeout; its output so far was kept")
        }
        Outcome { oom_killed: true, .. } => format!("{base}: killed because the sandbox is out of memory"),
        _ => base,
    }
}

pub async fn interrupt(agent: &Agent, request: &Request) -> Result<Response> {
    let process = find(agent, request.query.required("id")?)?;
    process.interrupt(GRACE).await;
    Ok(Response::empty(200))
}

fn find(agent: &Agent, id: &str) -> Result<Rc<Process>> {
    agent.table.get(id).ok_or_else(|| Error::not_found(format!("command not found: {id}")).execd("CONTEXT_NOT_FOUND"))
}

pub fn status(agent: &Agent, id: &str) -> Result<Response> {
    let process = find(agent, id)?;
    let mut body = json!({
        "id": process.id,
        "content": process.shown,
        "running": process.outcome().is_none(),
        "started_at": clock::rfc3339(process.started_at),
    });
    if let Some(outcome) = process.outcome() {
        body["exit_code"] = json!(outcome.status.code());
        body["finished_at"] = json!(clock::rfc3339(outcome.finished_at));
        if outcome.status.code() != 0 {
            body["error"] = json!(ending(&outcome));
        }
    }
    Ok(Response::json(200, &body))
}

/// Both streams from byte `cursor` on, at most 16 MiB; the header tells the next cursor.
pub fn logs(agent: &Agent, id: &str, query: &Query) -> Result<Response> {
    let process = find(agent, id)?;
    let mut cursor = query.number::<u64>("cursor")?.unwrap_or(0);
    let log = process.log.borrow();
    let mut body = Vec::new();
    while let Some(read) = log.read(cursor, u64::MAX, None, READ_BYTES) {
        if body.len() + read.data.len() > MAX_LOG_BYTES {
            break;
        }
        body.extend_from_slice(&read.data);
        cursor = read.next;
    }
    let response = Response::bytes(200, "text/plain; charset=utf-8", body);
    Ok(response.header("EXECD-COMMANDS-TAIL-CURSOR", cursor.to_string()))
}
