//! `/pty` of the OpenSandbox protocol: create, look, attach, delete.
//!
//! The program starts with the first client, which chooses a pseudo terminal or pipes (`?pty=0`).

use std::rc::Rc;

use serde::Deserialize;
use serde_json::json;

use super::terminal::{surroundings, Spec, Terminal};
use super::{attach, unknown, Entry};
use crate::agent::Agent;
use crate::commands::process::new_id;
use crate::commands::spawn;
use crate::error::{Error, Result};
use crate::http::{Request, Response};

/// What is to run once a client comes.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct Order {
    cwd: Option<String>,
    command: Option<String>,
}

pub async fn handle(agent: Rc<Agent>, mut request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), path) {
        ("POST", ["pty"]) => {
            let order: Order = request.json().await?;
            let id = new_id()?;
            agent.terminals.add(id.clone(), Entry::Waiting(order))?;
            Ok(Response::json(201, &json!({"session_id": id})))
        }
        ("GET", ["pty", id]) => status(&agent, id),
        ("DELETE", ["pty", id]) => {
            if let Entry::Started(terminal) = agent.terminals.remove(id)? {
                terminal.kill().await;
            }
            Ok(Response::empty(200))
        }
        ("GET", ["pty", id, "ws"]) => {
            let terminal = started(&agent, &request, id)?;
            attach(&request, terminal, false)
        }
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}

fn status(agent: &Agent, id: &str) -> Result<Response> {
    let (running, offset) = match agent.terminals.0.borrow().get(id) {
        None => return Err(unknown(id)),
        Some(Entry::Waiting(_)) => (false, 0),
        Some(Entry::Started(terminal)) => (terminal.outcome().is_none(), terminal.output.borrow().end()),
    };
    Ok(Response::json(200, &json!({"session_id": id, "running": running, "output_offset": offset})))
}

fn started(agent: &Rc<Agent>, request: &Request, id: &str) -> Result<Rc<Terminal>> {
    let order = match agent.terminals.0.borrow().get(id) {
        None => return Err(unknown(id)),
        Some(Entry::Started(terminal)) => return Ok(terminal.clone()),
        Some(Entry::Waiting(order)) => order.clone(),
    };
    if !request.wants_upgrade() {
        return Err(Error::invalid("this route is a WebSocket").status(426));
    }
    let (identity, env) = surroundings(agent, None, &Default::default())?;
    let pty = request.query.get("pty") != Some("0");
    let argv = match &order.command {
        Some(command) => spawn::shell(command),
        None => vec![spawn::shell("").remove(0)],
    };
    let spec = Spec {
        argv,
        shown: order.command.unwrap_or_else(|| "shell".to_owned()),
        cwd: order.cwd.unwrap_or_else(|| agent.workdir()),
        env,
        identity,
        cols: request.query.number("cols")?.unwrap_or(80),
        rows: request.query.number("rows")?.unwrap_or(24),
        pty,
    };
    let terminal = Terminal::start(agent, id.into(), spec)?;
    agent.terminals.0.borrow_mut().insert(id.to_owned(), Entry::Started(terminal.clone()));
    Ok(terminal)
}
