//! The changes of an isolated session's workspace: shown as a tar, or made to the real workspace.
//!
//! Called by `isolated`. Invariant: what is committed is exactly what the diff shows; nothing outside the workspace is touched.

use std::path::Path;

use serde_json::{json, Value};

use super::session::{unavailable, Session};
use super::spec::Mode;
use crate::error::{Error, Result};
use crate::files::Unpacking;
use crate::http::Response;
use crate::proxy::Streaming;
use crate::users::Identity;

/// A tar with `.wh.` marks for what was removed, as container layers have them.
pub async fn diff(session: &Session) -> Result<Response> {
    Ok(changes(session).await?.pass_on(()))
}

pub async fn commit(session: &Session) -> Result<Response> {
    let mut changes = changes(session).await?;
    let unpacking = Unpacking::begin(&Identity::root(), Path::new(&session.spec.workspace.path), true)?;
    while let Some(data) = changes.next().await? {
        if !unpacking.feed(data).await {
            break;
        }
    }
    let committed = unpacking.finish().await?;
    Ok(Response::json(200, &json!({"entries": committed.entries, "bytes": committed.bytes})))
}

async fn changes(session: &Session) -> Result<Streaming> {
    if session.spec.workspace.mode != Mode::Overlay {
        return Err(Error::invalid("only a workspace in the mode 'overlay' has changes of its own")
            .remedy("create the session with workspace.mode = overlay"));
    }
    let answer = session.send("GET", "/v1/isolated/upper", &Value::Null).await?;
    if answer.status() != 200 {
        return Err(unavailable("its changes cannot be read"));
    }
    Ok(answer)
}
