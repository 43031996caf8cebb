//! `/session`: shells that remember between runs.
//!
//! Called by `router`. `script` is what is said to a shell, `shell` the living process, `session` its runs, `stream` their events.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::agent::Agent;
use crate::environment::{self, Environment};
use crate::error::{Error, Result};
use crate::http::{Request, Response};

mod script;
mod session;
mod shell;
mod stream;

use session::{Ended, Run, Session};

const MAX_SESSIONS: usize = 256;

/// The sessions of a sandbox by id.
#[derive(Default)]
pub struct Sessions(RefCell<HashMap<String, Rc<Session>>>);

#[derive(Deserialize)]
struct Create {
    cwd: Option<String>,
}

#[derive(Deserialize)]
struct RunRequest {
    command: String,
    cwd: Option<String>,
    /// Milliseconds.
    timeout: Option<i64>,
    /// Asked by the outer agent for an isolated session, whose failures have another name.
    #[serde(default)]
    isolated: bool,
}

pub async fn handle(agent: Rc<Agent>, mut request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), path) {
        ("POST", ["session"]) => create(agent, request.json().await?).await,
        ("POST", ["session", id, "run"]) => run(&agent, id, request.json().await?).await,
        ("DELETE", ["session", id]) => delete(&agent, id).await,
        (_, ["session"] | ["session", _] | ["session", _, "run"]) => {
            Err(Error::method_not_allowed(&request.method, &request.path))
        }
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}

async fn create(agent: Rc<Agent>, wanted: Create) -> Result<Response> {
    if agent.sessions.0.borrow().len() >= MAX_SESSIONS {
        return Err(Error::new(
            503,
            "sandbox_exhausted",
            "RUNTIME_ERROR",
            format!("there are {MAX_SESSIONS} sessions already"),
        )
        .remedy("delete sessions that are not needed"));
    }
    let identity = agent.identity(None)?;
    let env = environment::compose(&agent, &identity, &Environment::new());
    let cwd = wanted.cwd.filter(|cwd| !cwd.is_empty()).unwrap_or_else(|| agent.workdir());
    let session = Session::start(agent.clone(), identity, env, cwd).await.map_err(|error| match error.status {
        400 => error.execd("INVALID_REQUEST_BODY"),
        _ => error,
    })?;
    let id = session.id.clone();
    agent.sessions.0.borrow_mut().insert(id.clone(), session);
    Ok(Response::json(200, &json!({"session_id": id})))
}

async fn run(agent: &Agent, id: &str, wanted: RunRequest) -> Result<Response> {
    let session = agent.sessions.0.borrow().get(id).cloned().ok_or_else(|| unknown(id))?;
    if wanted.command.trim().is_empty() {
        return Err(Error::invalid("'command' is empty"));
    }
    let timeout = match wanted.timeout {
        Some(millis) if millis < 0 => {
            return Err(Error::invalid("'timeout' must not be negative: give milliseconds, or 0 for none"))
        }
        Some(millis) if millis > 0 => Some(Duration::from_millis(millis.unsigned_abs())),
        _ => None,
    };
    let cwd = wanted.cwd.filter(|cwd| !cwd.is_empty());
    // The protocol has no 409 here; its own server answers 500 to a busy session.
    let events =
        session.run(Run { command: wanted.command, cwd, timeout }).await.map_err(|error| match error.status {
            409 => error.status(500),
            _ => error,
        })?;
    Ok(stream::respond(session.id.clone(), events, if wanted.isolated { isolated_failure } else { failure }))
}

/// Terminal event of a run that failed; clients read `evalue` as its exit code.
fn failure(ended: &Ended) -> Value {
    let mut told = format!("exit status {}", ended.code);
    if ended.timed_out {
        told.push_str(": interrupted at its timeout; the session lives on");
    }
    if ended.exited {
        told.push_str(": the shell ended with it, the next run gets a new one");
    }
    let code = if ended.timed_out && ended.code == 0 { 130 } else { ended.code };
    json!({"ename": "CommandExecError", "evalue": code.to_string(), "traceback": [told]})
}

/// As above, by the name that isolated sessions give to an interrupted run.
fn isolated_failure(ended: &Ended) -> Value {
    let mut told = failure(ended);
    if ended.timed_out {
        told["ename"] = Value::from("IsolatedError");
    }
    told
}

async fn delete(agent: &Agent, id: &str) -> Result<Response> {
    let session = agent.sessions.0.borrow_mut().remove(id).ok_or_else(|| unknown(id))?;
    session.close().await;
    Ok(Response::empty(200))
}

fn unknown(id: &str) -> Error {
    Error::not_found(format!("no session '{id}'"))
        .execd("CONTEXT_NOT_FOUND")
        .remedy("create one with POST /session; sessions end with the sandbox")
}
