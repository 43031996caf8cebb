//! `POST /v2/exec`: run a command and answer with its output and end, at once or as events.
//!
//! Invariant: when the client leaves, the command and all it started end, unless `detach` was asked for.

use std::collections::BTreeMap;
use std::rc::Rc;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde::Deserialize;
use serde_json::{json, Value};

use super::command::{ending, spec, Command, Wanted};
use super::output::{send_events, started, Collected, Encoding};
use crate::agent::Agent;
use crate::commands::follow::{Follower, KillOnDrop, Next};
use crate::commands::process::{Input, Process};
use crate::error::{Error, Result};
use crate::http::{sse, Request, Response};

const DEFAULT_OUTPUT_BYTES: usize = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exec {
    command: Command,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    user: Option<String>,
    timeout_s: Option<f64>,
    stdin: Option<String>,
    stdin_base64: Option<String>,
    max_output_bytes: Option<usize>,
    #[serde(default)]
    detach: bool,
    name: Option<String>,
}

pub async fn run(agent: Rc<Agent>, mut request: Request) -> Result<Response> {
    let encoding = Encoding::of(&request.query)?;
    let events = request.wants_events();
    let exec: Exec = request.json().await?;
    let (detach, limit) = (exec.detach, exec.max_output_bytes.unwrap_or(DEFAULT_OUTPUT_BYTES));
    let process = Process::start(&agent, spec(&agent, wanted(exec)?)?)?;
    let guard = (!detach).then(|| KillOnDrop::new(process.clone()));
    if !events {
        let answer = collect(process, limit, encoding).await;
        guard.into_iter().for_each(KillOnDrop::keep);
        return Ok(Response::json(200, &answer));
    }
    Ok(sse::response(move |mut out| async move {
        out.write(&started(&process)).await?;
        send_events(Follower::new(process, 0, None), encoding, &mut out).await?;
        guard.into_iter().for_each(KillOnDrop::keep);
        Ok(())
    }))
}

fn wanted(exec: Exec) -> Result<Wanted> {
    let stdin = match (exec.stdin, exec.stdin_base64) {
        (None, None) => Input::Closed,
        (Some(text), None) => Input::Bytes(text.into_bytes()),
        (None, Some(code)) => {
            Input::Bytes(STANDARD.decode(code).map_err(|_| Error::invalid("stdin_base64 is no base64"))?)
        }
        (Some(_), Some(_)) => {
            return Err(Error::invalid("both stdin and stdin_base64 are given").remedy("give one of them"))
        }
    };
    Ok(Wanted {
        command: exec.command,
        cwd: exec.cwd,
        env: exec.env,
        user: exec.user,
        timeout_s: exec.timeout_s,
        name: exec.name,
        stdin,
        foreground: !exec.detach,
    })
}

async fn collect(process: Rc<Process>, limit: usize, encoding: Encoding) -> Value {
    let mut collected = Collected::new(limit);
    let mut follower = Follower::new(process.clone(), 0, None);
    let outcome = loop {
        match follower.next().await {
            Next::Output(read) => collected.take(&read),
            Next::End(outcome) => break outcome,
        }
    };
    let mut answer = ending(&outcome);
    answer["process_id"] = json!(process.id);
    answer["stdout"] = json!(encoding.whole(collected.stdout));
    answer["stderr"] = json!(encoding.whole(collected.stderr));
    answer["stdout_truncated"] = json!(collected.stdout_truncated);
    answer["stderr_truncated"] = json!(collected.stderr_truncated);
    answer
}
