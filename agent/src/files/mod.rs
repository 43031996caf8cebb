//! Files of the sandbox: the OpenSandbox file routes and the native `/v2/fs` routes, on one set of operations.
//!
//! Called by `router`. `execd` and `native` are the two dialects; `path`, `modes`, `range`, `glob`, `multipart` are pure; `draft`,
//! `download`, `edit`, `walk`, `replace`, `archive` do the work with the identity `work` gives them; `fault` explains what failed.
//! Invariants: each operation has the permissions of the user asked for, nothing more; no special file can block the agent.

use std::rc::Rc;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{Request, Response};
use crate::users::{self, Identity};

mod archive;
mod changes;
mod download;
mod draft;
mod edit;
mod execd;
mod fault;
mod glob;
mod info;
mod modes;
mod multipart;
mod native;
mod path;
mod range;
mod record;
mod replace;
mod upload;
mod walk;
mod work;

pub use archive::Unpacking;
pub use changes::stream as changes;

/// `/files…`, `/directories…`, and both below `/v1/filesystem/{uid}/{gid}`.
pub async fn execd(agent: Rc<Agent>, request: Request, path: &[&str]) -> Result<Response> {
    let (identity, rest) = match path {
        ["v1", "filesystem", uid, gid, rest @ ..] => (identity_of(uid, gid)?, rest),
        _ => (agent.identity(None)?, path),
    };
    let call = execd::Call { agent: &agent, identity };
    call.answer(request, rest).await.map_err(documented)
}

/// The native routes, `["v2", "fs", …]`.
pub async fn native(agent: Rc<Agent>, request: Request, path: &[&str]) -> Result<Response> {
    let identity = agent.identity(request.query.get("user"))?;
    work::brief(&identity, || Ok(())).map_err(|_: Error| unusable(&identity))?;
    let call = native::Call { agent: &agent, identity };
    call.answer(request, &path[2..]).await
}

fn identity_of(uid: &str, gid: &str) -> Result<Identity> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|&id| id != u32::MAX);
    let (Some(uid), Some(gid)) = (number(uid), number(gid)) else {
        return Err(Error::invalid("uid and gid must be numbers from 0 to 4294967294"));
    };
    let identity = users::identify_ids(uid, Some(gid));
    work::brief(&identity, || Ok(())).map_err(|_: Error| unusable(&identity))?;
    Ok(identity)
}

fn unusable(identity: &Identity) -> Error {
    Error::invalid(format!("user {}:{} does not exist on this host's range of ids", identity.uid, identity.gid))
        .code("unknown_user")
        .remedy("use ids below 65536")
}

/// The statuses the execd API has for file operations.
fn documented(error: Error) -> Error {
    match error.status {
        403 | 409 => error.status(400),
        507 => error.status(500),
        _ => error,
    }
}
