//! `GET /metrics` and `/metrics/watch`: the sandbox's own use, at once, in the execd form.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use crate::agent::Agent;
use crate::clock;
use crate::http::{sse, Response};

const PERIOD: Duration = Duration::from_secs(1);
const MIB: f64 = (1 << 20) as f64;

#[derive(Serialize)]
struct Metrics {
    cpu_count: f64,
    cpu_used_pct: f64,
    mem_total_mib: f64,
    mem_used_mib: f64,
    timestamp: u64,
}

fn read(agent: &Agent) -> Metrics {
    let reading = agent.meters.read();
    Metrics {
        cpu_count: reading.cpu_count,
        cpu_used_pct: reading.cpu_used_pct,
        mem_total_mib: reading.memory_limit_bytes as f64 / MIB,
        mem_used_mib: reading.memory_bytes as f64 / MIB,
        timestamp: clock::unix_millis(),
    }
}

pub fn once(agent: &Agent) -> Response {
    Response::json(200, &read(agent))
}

/// One frame a second until the client leaves.
pub fn watch(agent: Rc<Agent>) -> Response {
    sse::response(move |mut out| async move {
        loop {
            out.write(&sse::bare(&read(&agent))).await?;
            tokio::time::sleep(PERIOD).await;
        }
    })
}
