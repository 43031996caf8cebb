//! `/v2/contexts`: create, list, describe, delete, restart, interrupt, execute, answer input(). Specification: api/agent.yaml.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{json, Value};

use super::execution::Client;
use super::{bridge, Cell, Wanted};
use crate::agent::Agent;
use crate::clock;
use crate::error::{Error, Result};
use crate::http::{sse, BodyWriter, Request, Response};

const QUIET_PERIOD: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    #[serde(default = "python")]
    language: String,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    idle_timeout_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Execute {
    code: String,
    timeout_s: Option<f64>,
    #[serde(default)]
    stdin: bool,
    #[serde(default)]
    on_disconnect: OnDisconnect,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum OnDisconnect {
    #[default]
    Interrupt,
    Continue,
}

#[derive(Deserialize)]
struct Input {
    value: String,
}

fn python() -> String {
    "python".to_owned()
}

pub async fn handle(agent: Rc<Agent>, mut request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), &path[2..]) {
        ("POST", []) => {
            let wanted: Creation = request.json().await?;
            positive(wanted.idle_timeout_s)?;
            let Creation { language, cwd, env, idle_timeout_s } = wanted;
            let context = super::create(&agent, Wanted { language, cwd, env, idle_timeout_s }).await?;
            Ok(Response::json(201, &describe(context)))
        }
        ("GET", []) => {
            let asked = json!({"language": request.query.get("language")});
            let mut answer = bridge(&agent)?.ask("list", asked).await?;
            let items = answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let items: Vec<Value> = items.into_iter().map(describe).collect();
            Ok(Response::json(200, &json!({"items": items})))
        }
        ("GET", [id]) => named(&agent, "get", id).await,
        ("DELETE", [id]) => {
            bridge(&agent)?.ask("delete", json!({"id": id})).await?;
            Ok(Response::empty(204))
        }
        ("POST", [id, "restart"]) => named(&agent, "restart", id).await,
        ("POST", [id, "interrupt"]) => {
            let answer = bridge(&agent)?.ask("interrupt", json!({"id": id})).await?;
            Ok(Response::json(200, &json!({"interrupted": answer["interrupted"]})))
        }
        ("POST", [id, "input"]) => {
            let Input { value } = request.json().await?;
            bridge(&agent)?.ask("input", json!({"id": id, "value": value})).await?;
            Ok(Response::empty(204))
        }
        ("POST", [id, "execute"]) => execute(&agent, id, request.json().await?).await,
        ("GET", [id, "execution"]) => follow(&agent, id),
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}

async fn named(agent: &Rc<Agent>, op: &str, id: &str) -> Result<Response> {
    let mut answer = bridge(agent)?.ask(op, json!({"id": id})).await?;
    Ok(Response::json(200, &describe(answer["context"].take())))
}

fn positive(seconds: Option<f64>) -> Result<()> {
    match seconds {
        Some(seconds) if !seconds.is_finite() || seconds < 0.0 => {
            Err(Error::invalid(format!("{seconds} is no time in seconds")).remedy("give a positive number, or none"))
        }
        _ => Ok(()),
    }
}

async fn execute(agent: &Rc<Agent>, id: &str, wanted: Execute) -> Result<Response> {
    positive(wanted.timeout_s)?;
    let cell = Cell {
        context: id.to_owned(),
        code: wanted.code,
        timeout_s: wanted.timeout_s.filter(|seconds| *seconds > 0.0),
        stdin: wanted.stdin,
        outlives: wanted.on_disconnect == OnDisconnect::Continue,
        revive: false,
    };
    let (client, context) = super::execute(agent, cell).await?;
    Ok(sse::response(move |out| stream(client, context, out)))
}

/// What an execution that outlived its client has said since.
fn follow(agent: &Rc<Agent>, id: &str) -> Result<Response> {
    let bridge = bridge(agent)?;
    let execution = bridge.execution_of(id).filter(|execution| execution.attach());
    let execution = execution.ok_or_else(|| {
        Error::new(404, "execution_not_found", "CONTEXT_NOT_FOUND", format!("nothing to follow in context '{id}'"))
            .remedy("only an execution with on_disconnect: continue can be followed, by one client, until it was read to its end")
    })?;
    let client = Client::new(execution, bridge);
    Ok(sse::response(move |out| stream(client, json!({"id": null}), out)))
}

async fn stream(mut client: Client, context: Value, mut out: BodyWriter) -> Result<()> {
    let begun = json!({
        "execution_id": client.execution.id,
        "context_id": client.execution.context,
        "language": context["language"],
        "dropped_bytes": client.execution.dropped_bytes(),
    });
    out.write(&sse::event("started", &begun)).await?;
    loop {
        let Ok(event) = tokio::time::timeout(QUIET_PERIOD, client.next()).await else {
            out.write(sse::KEEP_ALIVE).await?;
            continue;
        };
        out.write(&sse::event(&event.kind, &event.data)).await?;
        if event.terminal() {
            return Ok(());
        }
    }
}

/// A context as the API shows it.
fn describe(mut context: Value) -> Value {
    let created = context["created_at"].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    context["created_at"] = json!(created.map(|since| clock::rfc3339(UNIX_EPOCH + since)));
    context
}
