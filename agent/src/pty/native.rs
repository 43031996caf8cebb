//! `/v2/terminals`: create, list, attach, resize, signal, read, wait, kill. Specification: api/agent.yaml.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::terminal::{surroundings, Spec, Terminal};
use super::{attach, signals, Entry};
use crate::agent::Agent;
use crate::commands::process::new_id;
use crate::commands::spawn;
use crate::error::{Error, Result};
use crate::http::{Request, Response};

const MAX_READ: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(untagged)]
enum Command {
    Shell(String),
    Argv(Vec<String>),
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Creation {
    command: Option<Command>,
    cwd: Option<String>,
    env: BTreeMap<String, String>,
    user: Option<String>,
    cols: Option<u16>,
    rows: Option<u16>,
}

#[derive(Deserialize)]
struct Size {
    cols: u16,
    rows: u16,
}

#[derive(Deserialize)]
struct Signal {
    signal: String,
}

pub async fn handle(agent: Rc<Agent>, mut request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), &path[2..]) {
        ("POST", []) => {
            let terminal = create(&agent, request.json().await?)?;
            Ok(Response::json(201, &terminal.describe()))
        }
        ("GET", []) => {
            let items: Vec<_> = agent.terminals.all().iter().map(|terminal| terminal.describe()).collect();
            Ok(Response::json(200, &json!({"items": items})))
        }
        ("GET", [id]) => Ok(Response::json(200, &agent.terminals.get(id)?.describe())),
        ("DELETE", [id]) => {
            if let Entry::Started(terminal) = agent.terminals.remove(id)? {
                terminal.kill().await;
            }
            Ok(Response::empty(204))
        }
        ("GET", [id, "attach"]) => {
            let terminal = agent.terminals.get(id)?;
            attach(&request, terminal, false)
        }
        ("POST", [id, verb]) => {
            let terminal = agent.terminals.get(id)?;
            act(&terminal, verb, &mut request).await
        }
        ("GET", [id, "output"]) => {
            let terminal = agent.terminals.get(id)?;
            output(&terminal, &request)
        }
        ("GET", [id, "wait"]) => {
            let terminal = agent.terminals.get(id)?;
            wait(&terminal, request.query.number("timeout_s")?).await;
            Ok(Response::json(200, &terminal.describe()))
        }
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}

fn create(agent: &Rc<Agent>, wanted: Creation) -> Result<Rc<Terminal>> {
    let (identity, env) = surroundings(agent, wanted.user.as_deref(), &wanted.env)?;
    let (argv, shown) = match wanted.command {
        None => (vec![spawn::shell("").remove(0)], "shell".to_owned()),
        Some(Command::Shell(command)) => (spawn::shell(&command), command),
        Some(Command::Argv(argv)) => (argv.clone(), argv.join(" ")),
    };
    let (cols, rows) = (wanted.cols.unwrap_or(80), wanted.rows.unwrap_or(24));
    if cols == 0 || rows == 0 {
        return Err(Error::invalid("a terminal has at least one column and one row"));
    }
    let cwd = wanted.cwd.unwrap_or_else(|| agent.workdir());
    let id = format!("term_{}", &new_id()?[..12]);
    let spec = Spec { argv, shown, cwd, env, identity, cols, rows, pty: true };
    let terminal = Terminal::start(agent, id.as_str().into(), spec)?;
    agent.terminals.add(id, Entry::Started(terminal.clone()))?;
    Ok(terminal)
}

async fn act(terminal: &Terminal, verb: &str, request: &mut Request) -> Result<Response> {
    match verb {
        "resize" => {
            let Size { cols, rows } = request.json().await?;
            terminal.resize(cols, rows)?;
        }
        "signal" => {
            let Signal { signal } = request.json().await?;
            terminal.signal(signals::number(&signal)?)?;
        }
        "input" => {
            while let Some(data) = request.body.chunk().await? {
                terminal.write(&data).await?;
            }
        }
        _ => return Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
    Ok(Response::empty(204))
}

fn output(terminal: &Terminal, request: &Request) -> Result<Response> {
    let since = request.query.number("since")?.unwrap_or(0);
    let limit = request.query.number("limit")?.unwrap_or(MAX_READ).min(MAX_READ);
    let (from, data) = terminal.output.borrow().read(since, limit);
    let next = from + data.len() as u64;
    Ok(Response::bytes(200, "application/octet-stream", data)
        .header("X-Talon-Offset", from.to_string())
        .header("X-Talon-Next-Offset", next.to_string()))
}

async fn wait(terminal: &Terminal, timeout_s: Option<f64>) {
    let ended = async {
        loop {
            let changed = terminal.changed.notified();
            if terminal.outcome().is_some() {
                return;
            }
            changed.await;
        }
    };
    match timeout_s.filter(|seconds| seconds.is_finite() && *seconds >= 0.0) {
        // Running on is an answer too: the state in the reply tells.
        Some(seconds) => drop(tokio::time::timeout(Duration::from_secs_f64(seconds.min(86_400.0)), ended).await),
        None => ended.await,
    }
}
