//! Frames of event streams: the standard form for `/v2`, the bare form for the execd routes.
//!
//! The OpenSandbox SDKs expect one JSON object followed by a blank line, without `data:`; the two forms never mix in a stream.

use std::future::Future;

use serde::Serialize;

use super::{BodyWriter, Response};
use crate::error::Result;

/// `event: NAME`, `data: JSON`.
pub fn event<T: Serialize>(name: &str, data: &T) -> Vec<u8> {
    let json = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {json}\n\n").into_bytes()
}

/// The execd form: the object alone.
pub fn bare<T: Serialize>(data: &T) -> Vec<u8> {
    let mut frame = serde_json::to_vec(data).unwrap_or_default();
    frame.extend_from_slice(b"\n\n");
    frame
}

/// A comment, to keep a silent stream alive.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// A streaming answer with the headers proxies need to leave it unbuffered.
pub fn response<F, W>(write: W) -> Response
where
    F: Future<Output = Result<()>> + 'static,
    W: FnOnce(BodyWriter) -> F + 'static,
{
    Response::stream(200, "text/event-stream", write)
        .header("Cache-Control", "no-cache")
        .header("X-Accel-Buffering", "no")
}
