//! `GET /v2/metrics`: what the sandbox uses of what it may.

use serde_json::json;

use crate::agent::Agent;
use crate::http::Response;

pub fn read(agent: &Agent) -> Response {
    let reading = agent.meters.read();
    let body = json!({
        "cpu_count": reading.cpu_count,
        "cpu_used_pct": reading.cpu_used_pct,
        "cpu_usage_s": reading.cpu_usage_s,
        "memory_bytes": reading.memory_bytes,
        "memory_limit_bytes": reading.memory_limit_bytes,
        "pids": reading.pids,
        "oom_kills": reading.oom_kills,
    });
    Response::json(200, &body)
}
