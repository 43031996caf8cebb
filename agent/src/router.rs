//! From a request to the module that answers it: checks the token, looks at the path, turns errors into bytes.
//!
//! Called by `http::listener` for every request, and by `loopback`. Invariant: `answer` answers nothing without the sandbox's token.

use std::rc::Rc;

use serde_json::json;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{Headers, Request, Response};
use crate::{code, execd, files, isolated, ports, proxy, pty, sessions, v2};

/// Answers any request.
pub async fn answer(agent: Rc<Agent>, request: Request) -> Response {
    let request_id = request.headers.get("x-request-id").map(str::to_owned);
    let native = request.path.starts_with("/v2/");
    agent.activity.notify_one();
    let result = if authorized(&agent, &request.headers) { route(agent, request).await } else { Err(unauthorized()) };
    finish(result, native, request_id)
}

/// Answers a request that needs no token.
pub async fn answer_anyone(agent: Rc<Agent>, request: Request) -> Response {
    let request_id = request.headers.get("x-request-id").map(str::to_owned);
    finish(route(agent, request).await, false, request_id)
}

fn finish(result: Result<Response>, native: bool, request_id: Option<String>) -> Response {
    let response = result.unwrap_or_else(|error| refusal(&error, native, request_id.as_deref()));
    match request_id {
        Some(id) if response.status != 101 => response.header("X-Request-ID", id),
        _ => response,
    }
}

async fn route(agent: Rc<Agent>, request: Request) -> Result<Response> {
    let segments = request.segments();
    let path: Vec<&str> = segments.iter().map(String::as_str).collect();
    match path[..] {
        ["ping"] | ["command", ..] | ["metrics", ..] => execd::handle(agent, request, &path).await,
        ["v2", "fs", ..] => files::native(agent, request, &path).await,
        ["files" | "directories", ..] => files::execd(agent, request, &path).await,
        ["v1", "filesystem", ..] => files::execd(agent, request, &path).await,
        ["v1", "isolated", ..] => isolated::handle(agent, request, &path).await,
        ["session", ..] => sessions::handle(agent, request, &path).await,
        ["proxy", ..] => proxy::handle(agent, request, &path).await,
        ["pty", ..] => pty::execd(agent, request, &path).await,
        ["v2", "terminals", ..] => pty::native(agent, request, &path).await,
        ["code", ..] => code::execd(agent, request, &path).await,
        ["v2", "contexts", ..] => code::native(agent, request, &path).await,
        ["v2", "ports"] => ports::handle(&request),
        ["v2", ..] => v2::handle(agent, request, &path).await,
        _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
    }
}

fn authorized(agent: &Agent, headers: &Headers) -> bool {
    let settings = agent.settings.borrow();
    let bearer = headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let given = headers.get("x-execd-access-token").into_iter().chain(bearer);
    !settings.token.is_empty()
        && given.into_iter().any(|token| same(token.trim().as_bytes(), settings.token.as_bytes()))
}

/// Compares in a time that tells nothing of where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

fn unauthorized() -> Error {
    Error::new(401, "unauthorized", "UNAUTHORIZED", "Unauthorized: the sandbox's access token is missing or wrong")
        .remedy("send the token of this sandbox as X-EXECD-ACCESS-TOKEN or Authorization: Bearer")
}

fn refusal(error: &Error, native: bool, request_id: Option<&str>) -> Response {
    if !native {
        let message = error.to_string();
        // The gateway tells by this field that it was not the user's program that answered.
        return Response::json(error.status, &json!({"code": error.execd_code, "message": message}))
            .header("X-Talon-Error", error.code);
    }
    let body = json!({
        "code": error.code,
        "message": error.message,
        "cause": error.cause,
        "remedy": error.remedy,
        "retryable": error.retryable,
        "request_id": request_id,
    });
    Response::json(error.status, &body)
}
