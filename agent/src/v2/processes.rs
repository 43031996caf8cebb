//! `/v2/processes`: commands in the background, which go on when their client goes: start, list, signal, feed, wait, read logs.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::json;

use super::command::{describe, seconds, spec, Command, Wanted};
use super::output::{send_events, Encoding};
use crate::agent::Agent;
use crate::commands::follow::{Follower, Next, Stream};
use crate::commands::process::{Input, Process};
use crate::error::{Error, Result};
use crate::http::{sse, Query, Request, Response};
use crate::pty::signals;

const PIECE_BYTES: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    command: Command,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    user: Option<String>,
    timeout_s: Option<f64>,
    #[serde(default)]
    stdin: bool,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Signal {
    signal: String,
}

pub async fn handle(agent: Rc<Agent>, mut request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), path) {
        ("GET", []) => {
            let all = agent.table.all();
            let items: Vec<_> =
                all.iter().filter(|process| process.background).map(|process| describe(process)).collect();
            Ok(Response::json(200, &json!({"items": items})))
        }
        ("POST", []) => {
            let process = Process::start(&agent, spec(&agent, wanted(request.json().await?))?)?;
            Ok(Response::json(201, &describe(&process)))
        }
        (_, [id, rest @ ..]) => one(agent.table.find(id)?, request, rest).await,
        _ => Err(Error::method_not_allowed(&request.method, &request.path)),
    }
}

fn wanted(creation: Creation) -> Wanted {
    Wanted {
        command: creation.command,
        cwd: creation.cwd,
        env: creation.env,
        user: creation.user,
        timeout_s: creation.timeout_s,
        name: creation.name,
        stdin: if creation.stdin { Input::Open } else { Input::Closed },
        foreground: false,
    }
}

async fn one(process: Rc<Process>, mut request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), path) {
        ("GET", []) => Ok(Response::json(200, &describe(&process))),
        ("DELETE", []) => end(&process, request.query.get("signal").unwrap_or("KILL")).await,
        ("POST", ["signal"]) => {
            let wanted: Signal = request.json().await?;
            process.signal(signals::number(&wanted.signal)?)?;
            Ok(Response::empty(204))
        }
        ("POST", ["stdin"]) => feed(&process, request).await,
        ("GET", ["wait"]) => wait(&process, &request.query).await,
        ("GET", ["logs"]) => logs(process, &request),
        (_, [] | ["signal" | "stdin" | "wait" | "logs"]) => {
            Err(Error::method_not_allowed(&request.method, &request.path))
        }
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}

/// Signals the whole tree; after KILL all of it has ended.
async fn end(process: &Process, signal: &str) -> Result<Response> {
    match signals::number(signal)? {
        libc::SIGKILL => {
            process.kill().await;
            process.finished().await;
        }
        signal => process.tag.signal(signal),
    }
    Ok(Response::empty(204))
}

async fn feed(process: &Process, mut request: Request) -> Result<Response> {
    while let Some(data) = request.body.chunk().await? {
        process.write_stdin(&data).await?;
    }
    if request.query.flag("eof") {
        process.close_stdin();
    }
    Ok(Response::empty(204))
}

/// Answers when it has ended, or as it is when the time is over.
async fn wait(process: &Process, query: &Query) -> Result<Response> {
    match query.number::<f64>("timeout_s")? {
        None => drop(process.finished().await),
        Some(0.0) => {}
        Some(limit) => drop(tokio::time::timeout(seconds(limit)?, process.finished()).await),
    }
    Ok(Response::json(200, &describe(process)))
}

fn logs(process: Rc<Process>, request: &Request) -> Result<Response> {
    let query = &request.query;
    let only = match query.get("stream").unwrap_or_default() {
        "" | "both" => None,
        "stdout" => Some(Stream::Stdout),
        "stderr" => Some(Stream::Stderr),
        _ => return Err(Error::query("stream").remedy("use both, stdout or stderr")),
    };
    let offset = query.number::<u64>("offset")?.unwrap_or(0);
    if request.wants_events() {
        let encoding = Encoding::of(query)?;
        let follower = Follower::new(process, offset, only);
        return Ok(sse::response(
            move |mut out| async move { send_events(follower, encoding, &mut out).await.map(drop) },
        ));
    }
    if query.flag("follow") {
        return Ok(follow(Follower::new(process, offset, only)));
    }
    let limit = query.number::<u64>("limit")?.unwrap_or(u64::MAX);
    Ok(so_far(process, offset, only, limit))
}

fn follow(mut follower: Follower) -> Response {
    Response::stream(200, "application/octet-stream", move |mut out| async move {
        while let Next::Output(read) = follower.next().await {
            out.write(&read.data).await?;
        }
        Ok(())
    })
}

/// What the log has now, `limit` bytes at most; the header tells where to read on.
fn so_far(process: Rc<Process>, offset: u64, only: Option<Stream>, limit: u64) -> Response {
    let end = process.log.borrow().reach(offset, only, limit);
    let dropped = process.log.borrow().start().saturating_sub(offset);
    let response = Response::stream(200, "application/octet-stream", move |mut out| async move {
        let mut at = offset;
        loop {
            let read = process.log.borrow().read(at, end, only, PIECE_BYTES);
            let Some(read) = read else { return Ok(()) };
            out.write(&read.data).await?;
            at = read.next;
        }
    });
    let response = response.header("X-Talon-Next-Offset", end.to_string());
    if dropped > 0 {
        return response.header("X-Talon-Dropped-Bytes", dropped.to_string());
    }
    response
}
