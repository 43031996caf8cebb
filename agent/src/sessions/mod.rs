use std::rc::Rc;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{Request, Response};

pub async fn handle(_agent: Rc<Agent>, request: Request, _path: &[&str]) -> Result<Response> {
    Err(Error::not_found(format!("no route {} {}", request.method, request.path)))
}
