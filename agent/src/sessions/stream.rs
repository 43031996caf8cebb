//! The events of a run, in the execd form.
//!
//! Called by the `/session` and `/v1/isolated` routes. Invariant: `init` first, exactly one terminal event last.

use std::time::Duration;

use serde_json::{json, Value};
use tokio::sync::mpsc;
use tokio::time::{timeout, Instant};

use super::session::{Ended, Event};
use crate::clock;
use crate::commands::spool::Stream;
use crate::commands::text::Lines;
use crate::error::Result;
use crate::http::{sse, BodyWriter, Response};

const PING_PERIOD: Duration = Duration::from_secs(3);

/// Says how a run ended when it did not end well.
pub type Failure = fn(&Ended) -> Value;

pub fn respond(id: String, events: mpsc::Receiver<Event>, failure: Failure) -> Response {
    sse::response(move |out| write(id, events, failure, out))
}

async fn write(id: String, mut events: mpsc::Receiver<Event>, failure: Failure, mut out: BodyWriter) -> Result<()> {
    let begun = Instant::now();
    let (mut stdout, mut stderr) = (Lines::default(), Lines::default());
    out.write(&frame("init", &id)).await?;
    loop {
        let Ok(event) = timeout(PING_PERIOD, events.recv()).await else {
            out.write(&frame("ping", "pong")).await?;
            continue;
        };
        let mut frames = Vec::new();
        match event {
            Some(Event::Output(Stream::Stdout, data)) => {
                stdout.push(&data, |line| frames.extend(frame("stdout", &line)))
            }
            Some(Event::Output(Stream::Stderr, data)) => {
                stderr.push(&data, |line| frames.extend(frame("stderr", &line)))
            }
            Some(Event::End(ended)) => {
                frames.extend(stdout.finish().map(|line| frame("stdout", &line)).unwrap_or_default());
                frames.extend(stderr.finish().map(|line| frame("stderr", &line)).unwrap_or_default());
                frames.extend(terminal(&ended, begun, failure));
                return Ok(out.write(&frames).await?);
            }
            None => return Ok(()),
        }
        out.write(&frames).await?;
    }
}

fn frame(kind: &str, text: &str) -> Vec<u8> {
    sse::bare(&json!({"type": kind, "text": text, "timestamp": clock::unix_millis()}))
}

fn terminal(ended: &Ended, begun: Instant, failure: Failure) -> Vec<u8> {
    let timestamp = clock::unix_millis();
    if ended.code == 0 && !ended.timed_out {
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        return sse::bare(&json!({"type": "execution_complete", "execution_time": took, "timestamp": timestamp}));
    }
    sse::bare(&json!({"type": "error", "error": failure(ended), "timestamp": timestamp}))
}
