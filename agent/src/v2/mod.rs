//! The native data plane below `/v2`: commands, processes, metrics; its files are in `files`. Specification: api/agent.yaml.
//!
//! Called by `router`.

use std::rc::Rc;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{Request, Response};

mod meters;

pub async fn handle(agent: Rc<Agent>, request: Request, path: &[&str]) -> Result<Response> {
    match (request.method.as_str(), &path[1..]) {
        ("GET", ["metrics"]) => Ok(meters::read(&agent)),
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}
