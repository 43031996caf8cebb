//! The native data plane below `/v2`: commands, processes, metrics; its files are in `files`. Specification: api/agent.yaml.
//!
//! Called by `router`.

use std::rc::Rc;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{Request, Response};

mod command;
mod exec;
mod meters;
mod output;
mod processes;

pub async fn handle(agent: Rc<Agent>, request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), &path[1..]) {
        ("POST", ["exec"]) => exec::run(agent, request).await,
        (_, ["processes", rest @ ..]) => processes::handle(agent, request, rest).await,
        ("GET", ["metrics"]) => Ok(meters::read(&agent)),
        (_, ["exec" | "metrics"]) => Err(Error::method_not_allowed(&request.method, &request.path)),
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}
