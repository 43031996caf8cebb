//! `/v1/isolated/*`: sessions in namespaces of their own inside the sandbox, with a workspace that can be thrown away or committed.
//!
//! Called by `router`. Opt-in by the extension `bootstrap.execd.isolation=enable`. Each session is a helper process (`enter`) with an agent of
//! its own, to which runs and file requests are passed on. Invariant: what is said in the capabilities is so.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::{json, Value};
use tokio::time::Instant;

use crate::agent::Agent;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::http::{Request, Response};
use crate::{clock, files};

mod capabilities;
mod commit;
pub mod enter;
pub mod probe;
mod session;
mod spec;

use session::{unavailable, Session};
use spec::{Mode, Spec};

const MAX_SESSIONS: usize = 64;
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// The isolated sessions of a sandbox by id.
#[derive(Default)]
pub struct Isolated {
    sessions: RefCell<HashMap<String, Rc<Session>>>,
    /// What the probe saw.
    seen: Cell<Option<probe::Seen>>,
}

#[derive(Deserialize)]
struct RunRequest {
    code: String,
    #[serde(default)]
    envs: Environment,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    background: bool,
}

pub async fn handle(agent: Rc<Agent>, mut request: Request, path: &[&str]) -> Result<Response> {
    if agent.settings.borrow().mode == "isolated" {
        // Asked by the outer agent; the directory of the changes is where this one works.
        return files::changes(std::path::Path::new("."));
    }
    let method = request.method.clone();
    match (method.as_str(), &path[2..]) {
        ("GET", ["capabilities"]) => Ok(Response::json(200, &capabilities::read(&agent).await?)),
        _ if !capabilities::enabled(&agent) => Err(unavailable("the sandbox was created without it")
            .remedy("create it with extensions {\"bootstrap.execd.isolation\": \"enable\"}")),
        ("POST", ["session"]) => create(agent, request.json().await?).await,
        ("GET", ["sessions"]) => Ok(list(&agent)),
        ("GET", ["session", id]) => Ok(Response::json(200, &state(&*find(&agent, id)?)?)),
        ("DELETE", ["session", id]) => delete(&agent, id).await,
        ("POST", ["session", id, "run"]) => run(find(&agent, id)?, request.json().await?).await,
        ("GET", ["session", id, "runs", run]) => run_status(&*find(&agent, id)?, run).await,
        ("GET", ["session", id, "runs", run, "logs"]) => {
            let cursor = request.query.number::<u64>("cursor")?.unwrap_or(0);
            run_logs(&*find(&agent, id)?, run, cursor).await
        }
        ("GET", ["session", id, "diff"]) => commit::diff(&*find(&agent, id)?).await,
        ("POST", ["session", id, "commit"]) => commit::commit(&*find(&agent, id)?).await,
        (_, ["session", id, "files" | "directories", ..]) => forward(&agent, id, request).await,
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}

fn find(agent: &Agent, id: &str) -> Result<Rc<Session>> {
    let found = agent.isolated.sessions.borrow().get(id).cloned();
    found.ok_or_else(|| Error::not_found(format!("no isolated session '{id}'")).execd("CONTEXT_NOT_FOUND"))
}

async fn create(agent: Rc<Agent>, spec: Spec) -> Result<Response> {
    spec.check()?;
    let writable = [&spec.workspace.path].into_iter().chain(spec.overlays.iter().map(|overlay| &overlay.path));
    if let Some(missing) = writable.into_iter().find(|path| !std::path::Path::new(path).is_dir()) {
        return Err(Error::invalid(format!("no directory {missing} in the sandbox")).remedy("make it first"));
    }
    if agent.isolated.sessions.borrow().len() >= MAX_SESSIONS {
        return Err(unavailable(&format!("there are {MAX_SESSIONS} sessions already")));
    }
    let session = Rc::new(Session::start(&agent, spec).await?);
    let body = json!({"session_id": session.id, "created_at": clock::rfc3339(session.created_at)});
    agent.isolated.sessions.borrow_mut().insert(session.id.clone(), session.clone());
    tokio::task::spawn_local(expire(agent, session));
    Ok(Response::json(201, &body))
}

/// Ends the session when it has been idle for too long.
async fn expire(agent: Rc<Agent>, session: Rc<Session>) {
    while session.idle_remaining() != Some(0) {
        tokio::select! {
            _dead = session.exit.wait() => return,
            () = tokio::time::sleep(IDLE_PERIOD) => refresh(&session).await,
        }
    }
    agent.isolated.sessions.borrow_mut().remove(&session.id);
    session.close().await;
}

/// Background runs keep a session busy.
async fn refresh(session: &Session) {
    let runs: Vec<String> = session.runs.borrow().keys().cloned().collect();
    if session.spec.idle_timeout_seconds.is_none() {
        return;
    }
    for run in runs {
        let status = session.ask("GET", &format!("/command/status/{run}"), &Value::Null).await;
        if status.is_ok_and(|(_, body)| body["running"] == true) {
            session.idle_since.set(Instant::now());
        }
    }
}

fn summary(session: &Session) -> Value {
    let mut body = json!({
        "status": session.status(),
        "created_at": clock::rfc3339(session.created_at),
        "last_run_at": clock::rfc3339(session.last_run_at.get()),
    });
    if let Some(seconds) = session.idle_remaining() {
        body["idle_remaining_seconds"] = json!(seconds);
    }
    body
}

fn state(session: &Session) -> Result<Value> {
    let mut body = serde_json::to_value(&session.spec)?;
    if let (Value::Object(all), Value::Object(more)) = (&mut body, summary(session)) {
        all.extend(more);
    }
    Ok(body)
}

fn list(agent: &Agent) -> Response {
    let sessions = agent.isolated.sessions.borrow();
    let mut all: Vec<&Rc<Session>> = sessions.values().collect();
    all.sort_by_key(|session| session.created_at);
    let items = all.into_iter().map(|session| {
        let mut body = summary(session);
        body["session_id"] = json!(session.id);
        body
    });
    Response::json(200, &json!({"sessions": items.collect::<Vec<_>>()}))
}

async fn delete(agent: &Agent, id: &str) -> Result<Response> {
    let session = find(agent, id)?;
    agent.isolated.sessions.borrow_mut().remove(id);
    session.close().await;
    Ok(Response::empty(200))
}

/// Counts a run while it lives.
struct Busy(Rc<Session>);

impl Busy {
    fn new(session: &Rc<Session>) -> Self {
        session.running.set(session.running.get() + 1);
        session.last_run_at.set(SystemTime::now());
        Self(session.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        self.0.idle_since.set(Instant::now());
    }
}

async fn run(session: Rc<Session>, wanted: RunRequest) -> Result<Response> {
    if wanted.code.trim().is_empty() {
        return Err(Error::invalid("'code' is empty"));
    }
    let busy = Busy::new(&session);
    if wanted.background {
        return run_in_background(&session, wanted).await;
    }
    let exports: String =
        wanted.envs.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
    let timeout = wanted.timeout_seconds.unwrap_or(0).saturating_mul(1000).min(i64::MAX as u64);
    let body = json!({"command": exports + &wanted.code, "timeout": timeout, "isolated": true});
    let answer = session.send("POST", &format!("/session/{}/run", session.shell), &body).await?;
    Ok(answer.pass_on(busy))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

async fn run_in_background(session: &Rc<Session>, wanted: RunRequest) -> Result<Response> {
    if session.spec.workspace.mode == Mode::Ro {
        return Err(Error::invalid("background runs need a writable workspace").remedy("use the mode rw or overlay"));
    }
    let body =
        json!({"command": wanted.code, "envs": wanted.envs, "cwd": session.spec.workspace.path, "background": true});
    let mut answer = session.send("POST", "/command", &body).await?;
    let text = answer.read_all().await?;
    let first = text.split(|&b| b == b'\n').next().unwrap_or_default();
    let init: Value = serde_json::from_slice(first).unwrap_or_default();
    let id = init["text"].as_str().filter(|_| init["type"] == "init" && answer.status() == 200);
    let id = id.ok_or_else(|| unavailable(&format!("the run did not start: {}", String::from_utf8_lossy(&text))))?;
    let now = SystemTime::now();
    session.runs.borrow_mut().insert(id.to_owned(), now);
    let body = json!({"session_id": session.id, "run_id": session::uuid_of(id), "started_at": clock::rfc3339(now)});
    Ok(Response::json(202, &body))
}

/// The command inside that a run is.
fn command_of(session: &Session, run: &str) -> Result<String> {
    let id = run.replace('-', "");
    let known = session.runs.borrow().contains_key(&id);
    known
        .then_some(id)
        .ok_or_else(|| Error::not_found(format!("no run '{run}' in this session")).execd("CONTEXT_NOT_FOUND"))
}

async fn run_status(session: &Session, run: &str) -> Result<Response> {
    let (_, told) = session.ask("GET", &format!("/command/status/{}", command_of(session, run)?), &Value::Null).await?;
    let mut body = json!({"session_id": session.id, "run_id": run});
    for field in ["running", "exit_code", "error", "started_at", "finished_at"] {
        // A plain exit code is no error of the run.
        let plain = told[field].as_str().is_some_and(|said| said.starts_with("exit status") && !said.contains(':'));
        if !(told[field].is_null() || (field == "error" && plain)) {
            body[field] = told[field].clone();
        }
    }
    Ok(Response::json(200, &body))
}

async fn run_logs(session: &Session, run: &str, cursor: u64) -> Result<Response> {
    let path = format!("/command/{}/logs?cursor={cursor}", command_of(session, run)?);
    let mut answer = session.send("GET", &path, &Value::Null).await?;
    let next = answer.header("EXECD-COMMANDS-TAIL-CURSOR").unwrap_or("0").to_owned();
    let body = answer.read_all().await?;
    Ok(Response::bytes(200, "text/plain; charset=utf-8", body).header("EXECD-ISOLATED-TAIL-CURSOR", next))
}

/// File requests see the merged view, because the agent inside answers them.
async fn forward(agent: &Agent, id: &str, request: Request) -> Result<Response> {
    let session = find(agent, id)?;
    let below = request.path.splitn(6, '/').nth(5).unwrap_or_default();
    let query = if request.raw_query.is_empty() { String::new() } else { format!("?{}", request.raw_query) };
    let path = format!("/{below}{query}");
    let token = agent.settings.borrow().token.clone();
    session.forward(request, path, &token).await
}
