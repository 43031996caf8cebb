//! The OpenSandbox execd routes for commands and metrics; its file and session routes are in `files` and `sessions`.
//!
//! Called by `router`. Wire details: the OpenSandbox execd specification.

mod command;
mod meters;

use std::rc::Rc;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{Request, Response};

pub async fn handle(agent: Rc<Agent>, request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), path) {
        ("GET" | "HEAD", ["ping"]) => Ok(Response::empty(200)),
        ("POST", ["command"]) => command::run(agent, request).await,
        ("DELETE", ["command"]) => command::interrupt(&agent, &request).await,
        ("GET", ["command", "status", id]) => command::status(&agent, id),
        ("GET", ["command", id, "logs"]) => command::logs(&agent, id, &request.query),
        ("GET", ["metrics"]) => Ok(meters::once(&agent)),
        ("GET", ["metrics", "watch"]) => Ok(meters::watch(agent)),
        (_, ["ping" | "command" | "metrics"]) => Err(Error::method_not_allowed(&request.method, &request.path)),
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}
