//! Output of a process as the native API gives it: text that is never cut inside a character, or base64; collected or as events.
//!
//! Used by `exec` and `processes`. Invariant: the last event is `exit`; an event's `next_offset` is where a reader can go on.

use std::rc::Rc;
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde_json::{json, Value};

use super::command::ending;
use crate::commands::follow::{Follower, Next, Read, Stream};
use crate::commands::process::{Outcome, Process};
use crate::commands::text::Utf8;
use crate::error::{Error, Result};
use crate::http::{sse, BodyWriter, Query};

const QUIET_PERIOD: Duration = Duration::from_secs(15);

/// How bytes become JSON strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Text,
    Base64,
}

impl Encoding {
    /// # Errors
    /// 400 for a name that is none.
    pub fn of(query: &Query) -> Result<Self> {
        match query.get("encoding").unwrap_or_default() {
            "" | "utf-8" => Ok(Self::Text),
            "base64" => Ok(Self::Base64),
            _ => Err(Error::query("encoding").remedy("use encoding=base64, or leave it out for text")),
        }
    }

    /// Takes the bytes over, so that large text is not held twice.
    pub fn whole(self, data: Vec<u8>) -> String {
        match self {
            Self::Text => {
                String::from_utf8(data).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
            }
            Self::Base64 => STANDARD.encode(data),
        }
    }
}

/// Both streams of a command that is waited for; what is beyond `limit` bytes of one is dropped and told.
pub struct Collected {
    limit: usize,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
}

impl Collected {
    pub fn new(limit: usize) -> Self {
        Self { limit, stdout: Vec::new(), stderr: Vec::new(), stdout_truncated: false, stderr_truncated: false }
    }

    pub fn take(&mut self, read: &Read) {
        let (data, truncated) = match read.stream {
            Stream::Stdout => (&mut self.stdout, &mut self.stdout_truncated),
            Stream::Stderr => (&mut self.stderr, &mut self.stderr_truncated),
        };
        let room = self.limit.saturating_sub(data.len());
        *truncated |= read.lost > 0 || read.data.len() > room;
        data.extend_from_slice(&read.data[..read.data.len().min(room)]);
    }
}

/// Sends output from the follower's offset on as events, until the end.
pub async fn send_events(mut follower: Follower, encoding: Encoding, out: &mut BodyWriter) -> Result<Outcome> {
    let mut cutters = [Utf8::default(), Utf8::default()];
    loop {
        let Ok(next) = tokio::time::timeout(QUIET_PERIOD, follower.next()).await else {
            out.write(sse::KEEP_ALIVE).await?;
            continue;
        };
        match next {
            Next::Output(read) => {
                let cutter = &mut cutters[usize::from(read.stream == Stream::Stderr)];
                let data =
                    if encoding == Encoding::Text { cutter.push(&read.data) } else { STANDARD.encode(&read.data) };
                if !data.is_empty() || read.lost > 0 {
                    out.write(&sse::event(read.stream.name(), &output(&read, &data))).await?;
                }
            }
            Next::End(outcome) => {
                out.write(&last_events(&mut cutters, &outcome)).await?;
                return Ok(outcome);
            }
        }
    }
}

fn output(read: &Read, data: &str) -> Value {
    let mut event = json!({"data": data, "next_offset": read.next});
    if read.lost > 0 {
        event["dropped_bytes"] = json!(read.lost);
    }
    event
}

fn last_events(cutters: &mut [Utf8; 2], outcome: &Outcome) -> Vec<u8> {
    let mut frames = Vec::new();
    for (cutter, stream) in cutters.iter_mut().zip([Stream::Stdout, Stream::Stderr]) {
        let tail = cutter.finish();
        if !tail.is_empty() {
            frames.extend(sse::event(stream.name(), &json!({"data": tail, "next_offset": outcome.log_end})));
        }
    }
    frames.extend(sse::event("exit", &ending(outcome)));
    frames
}

/// The first event of `exec`.
pub fn started(process: &Rc<Process>) -> Vec<u8> {
    sse::event("started", &json!({"process_id": process.id, "pid": process.pid}))
}
