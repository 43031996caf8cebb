//! `/code`, `/code/context` and `/code/contexts` as OpenSandbox clients expect them.
//!
//! Invariants: `init` first, exactly one terminal event last; a context that lost its kernel gets a fresh one, as Jupyter does it.

use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, Value};

use super::execution::{Client, Event};
use super::{bridge, Cell, Wanted};
use crate::agent::Agent;
use crate::clock;
use crate::error::{Error, Result};
use crate::http::{sse, BodyWriter, Request, Response};

const PING_PERIOD: Duration = Duration::from_secs(3);
/// What code without a context is, by this protocol.
const DEFAULT_LANGUAGE: &str = "bash";

#[derive(Deserialize, Default)]
#[serde(default)]
struct Context {
    id: Option<String>,
    language: Option<String>,
    cwd: Option<String>,
}

#[derive(Deserialize)]
struct RunRequest {
    code: String,
    context: Option<Context>,
}

pub async fn handle(agent: Rc<Agent>, mut request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), &path[1..]) {
        ("POST", []) => run(&agent, request.json().await?).await,
        ("DELETE", []) => {
            bridge(&agent)?.ask("interrupt", json!({"id": request.query.required("id")?})).await?;
            Ok(Response::empty(200))
        }
        ("POST", ["context"]) => {
            let wanted: Context = request.json().await?;
            let language = wanted.language.filter(|name| !name.is_empty());
            let language = language.ok_or_else(|| Error::invalid("'language' is missing"))?;
            let context = super::create(&agent, Wanted { language, cwd: wanted.cwd, ..Wanted::default() }).await?;
            Ok(Response::json(200, &describe(&context)))
        }
        ("GET", ["contexts"]) => {
            let items: Vec<Value> = list(&agent, request.query.get("language")).await?.iter().map(describe).collect();
            Ok(Response::json(200, &items))
        }
        ("DELETE", ["contexts"]) => {
            for context in list(&agent, Some(request.query.required("language")?)).await? {
                forgiving(bridge(&agent)?.ask("delete", json!({"id": context["id"]})).await)?;
            }
            Ok(Response::empty(200))
        }
        ("GET", ["contexts", id]) => {
            let answer = bridge(&agent)?.ask("get", json!({"id": id})).await?;
            Ok(Response::json(200, &describe(&answer["context"])))
        }
        ("DELETE", ["contexts", id]) => {
            bridge(&agent)?.ask("delete", json!({"id": id})).await?;
            Ok(Response::empty(200))
        }
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}

async fn list(agent: &Rc<Agent>, language: Option<&str>) -> Result<Vec<Value>> {
    let mut answer = bridge(agent)?.ask("list", json!({"language": language})).await?;
    Ok(answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Another client may have deleted it meanwhile.
fn forgiving(result: Result<Value>) -> Result<()> {
    match result {
        Err(error) if error.status != 404 => Err(error),
        _ => Ok(()),
    }
}

fn describe(context: &Value) -> Value {
    json!({"id": context["id"], "language": context["language"]})
}

async fn run(agent: &Rc<Agent>, wanted: RunRequest) -> Result<Response> {
    if wanted.code.is_empty() {
        return Err(Error::invalid("'code' is empty"));
    }
    let asked = wanted.context.unwrap_or_default();
    let context = match asked.id.filter(|id| !id.is_empty()) {
        Some(id) => id,
        None => default(agent, asked.language.as_deref().unwrap_or(DEFAULT_LANGUAGE), asked.cwd).await?,
    };
    let code = wanted.code;
    let cell = Cell { context, code, timeout_s: None, stdin: false, outlives: false, revive: true };
    let (client, _) = super::execute(agent, cell).await.map_err(|error| match error.status {
        // The protocol has no 409 here; its own server answers 500 to a busy context.
        409 => error.status(500),
        _ => error,
    })?;
    Ok(sse::response(move |out| stream(client, out)))
}

/// The context that code without one runs in, one for each language.
async fn default(agent: &Rc<Agent>, language: &str, cwd: Option<String>) -> Result<String> {
    let language = if language.is_empty() { DEFAULT_LANGUAGE } else { language };
    // Held while the context is made: two first cells at once share it.
    let mut defaults = agent.kernels.defaults.lock().await;
    if let Some(id) = defaults.get(language) {
        if bridge(agent)?.ask("get", json!({"id": id})).await.is_ok() {
            return Ok(id.clone());
        }
    }
    let context = super::create(agent, Wanted { language: language.to_owned(), cwd, ..Wanted::default() }).await?;
    let id = context["id"].as_str().unwrap_or_default().to_owned();
    defaults.insert(language.to_owned(), id.clone());
    Ok(id)
}

async fn stream(mut client: Client, mut out: BodyWriter) -> Result<()> {
    let context = client.execution.context.clone();
    out.write(&frame(json!({"type": "init", "text": context}))).await?;
    let mut counted = false;
    loop {
        let Ok(event) = tokio::time::timeout(PING_PERIOD, client.next()).await else {
            out.write(&frame(json!({"type": "ping", "text": "pong"}))).await?;
            continue;
        };
        let data: Value = serde_json::from_str(event.data.get()).unwrap_or_default();
        let mut frames = Vec::new();
        if let (Some(count), false) = (data["execution_count"].as_u64(), counted) {
            counted = true;
            frames.extend(frame(json!({"type": "execution_count", "execution_count": count})));
        }
        frames.extend(translated(&event, data).map(frame).unwrap_or_default());
        out.write(&frames).await?;
        if event.terminal() {
            return Ok(());
        }
    }
}

fn frame(mut event: Value) -> Vec<u8> {
    event["timestamp"] = json!(clock::unix_millis());
    sse::bare(&event)
}

/// An event of the native form in this protocol's words.
fn translated(event: &Event, mut data: Value) -> Option<Value> {
    match event.kind.as_str() {
        kind @ ("stdout" | "stderr") => Some(json!({"type": kind, "text": data["data"]})),
        "result" => {
            let mut results = data["data"].take();
            if let Some(text) = results.as_object_mut().and_then(|results| results.remove("text/plain")) {
                results["text"] = text;
            }
            Some(json!({"type": "result", "results": results}))
        }
        "complete" => {
            let took = (data["duration_s"].as_f64().unwrap_or_default() * 1000.0) as u64;
            Some(json!({"type": "execution_complete", "execution_time": took}))
        }
        "error" => {
            let error = json!({"ename": data["name"], "evalue": data["value"], "traceback": data["traceback"]});
            Some(json!({"type": "error", "error": error}))
        }
        _ => None,
    }
}
