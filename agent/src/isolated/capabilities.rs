//! `GET /v1/isolated/capabilities`: what isolation this sandbox has, and how the agent and its processes are hardened.
//!
//! Invariant: everything here is looked at, nothing is assumed.

use serde_json::{json, Value};

use super::probe::{self, Seen};
use super::session;
use crate::agent::Agent;
use crate::error::Result;

/// CAP_SYS_ADMIN of capabilities(7), and the filter mode of seccomp(2).
const SYS_ADMIN: u64 = 1 << 21;
const SECCOMP_FILTER: u64 = 2;

/// Was the sandbox created with it?
pub fn enabled(agent: &Agent) -> bool {
    let settings = agent.settings.borrow();
    let wanted = settings.extensions.get("bootstrap.execd.isolation").and_then(Value::as_str);
    wanted.is_some_and(|value| value == "enable")
}

pub async fn read(agent: &Agent) -> Result<Value> {
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
        "hardening": hardening(agent).await?,
    });
    let message = match (enabled, possible) {
        (false, _) => Some("not enabled: create the sandbox with extensions {\"bootstrap.execd.isolation\": \"enable\"}"),
        (true, false) => Some("this host allows no user namespaces inside the sandbox"),
        (true, true) => Some("sessions have user, mount, PID, IPC and UTS namespaces; /proc shows the sandbox's processes; changes of overlays are kept in memory"),
    };
    if let Some(message) = message {
        body["message"] = json!(message);
    }
    Ok(body)
}

async fn hardening(agent: &Agent) -> Result<Value> {
    let is_init = std::process::id() == 1;
    let seen = probe::look(agent).await?;
    Ok(json!({
        "init_mode": if is_init { "pid1" } else { "none" },
        "signal_shield": is_init,
        "cap_drop": cap_drop(&seen),
        "seccomp": match (seen.seccomp, seen.no_new_privileges) {
            (SECCOMP_FILTER, true) => layer("active", ""),
            _ => layer("degraded", "processes run without the filter, or can gain privileges"),
        },
        "landlock": if seen.confined {
            layer("active", "")
        } else {
            layer("disabled", "mount namespaces confine the files; the server's hardening.landlock adds this")
        },
        "ebpf": layer("disabled", "not used"),
    }))
}

fn cap_drop(seen: &Seen) -> Value {
    match (seen.effective, seen.bounding) {
        (0, 0) => layer("active", "processes have no capability"),
        (_, bounding) if bounding & SYS_ADMIN == 0 => {
            layer("active", "root keeps what package managers need, within the sandbox's user namespace")
        }
        _ => layer("degraded", "the bounding set has CAP_SYS_ADMIN"),
    }
}

fn layer(state: &str, message: &str) -> Value {
    if message.is_empty() {
        json!({"state": state})
    } else {
        json!({"state": state, "message": message})
    }
}
