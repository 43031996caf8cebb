//! `GET /v1/isolated/capabilities`: what isolation this sandbox has, and how the agent and its processes are hardened.
//!
//! Invariant: everything here is looked at, nothing is assumed.

use std::fs;

use serde_json::{json, Value};

use super::session;
use crate::agent::Agent;

/// Was the sandbox created with it?
pub fn enabled(agent: &Agent) -> bool {
    let settings = agent.settings.borrow();
    let wanted = settings.extensions.get("bootstrap.execd.isolation").and_then(Value::as_str);
    wanted.is_some_and(|value| value == "enable")
}

pub fn read(agent: &Agent) -> Value {
    let (enabled, possible) = (enabled(agent), session::possible());
    let available = enabled && possible;
    let mut body = json!({
        "available": available,
        "isolator": "talon",
        "version": env!("CARGO_PKG_VERSION"),
        "setpriv_available": available,
        "userns_available": available,
        "commit_supported": available,
        "diff_supported": available,
        "hardening": hardening(),
    });
    let message = match (enabled, possible) {
        (false, _) => Some("not enabled: create the sandbox with extensions {\"bootstrap.execd.isolation\": \"enable\"}"),
        (true, false) => Some("this host allows no user namespaces inside the sandbox"),
        (true, true) => Some("sessions have user, mount, PID, IPC and UTS namespaces; /proc shows the sandbox's processes; changes of overlays are kept in memory"),
    };
    if let Some(message) = message {
        body["message"] = json!(message);
    }
    body
}

fn hardening() -> Value {
    let is_init = std::process::id() == 1;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bounding = bounding.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let sys_admin = 1_u64 << 21;
    let dropped = bounding.is_some_and(|set| set & sys_admin == 0);
    json!({
        "init_mode": if is_init { "pid1" } else { "none" },
        "signal_shield": is_init,
        "cap_drop": if dropped { layer("active", "") } else { layer("degraded", "the bounding set has CAP_SYS_ADMIN") },
        "seccomp": layer("active", ""),
        "landlock": layer("disabled", "mount namespaces confine the files"),
        "ebpf": layer("disabled", "not used"),
    })
}

fn layer(state: &str, message: &str) -> Value {
    if message.is_empty() {
        json!({"state": state})
    } else {
        json!({"state": state, "message": message})
    }
}
