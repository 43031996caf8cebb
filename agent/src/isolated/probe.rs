//! `talon-agent probe`: tells how it is sealed, as a process of the sandbox; and the agent's side, which starts one and listens.
//!
//! Called by `capabilities` once per sandbox. Invariant: what is told was seen from inside a process started like any other.

use std::fs;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::agent::Agent;
use crate::commands::spawn::{self, Launch, Stdio};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::sys;
use crate::users::Identity;

const BOUND: Duration = Duration::from_secs(10);
/// A place no rule lets anyone change, which root could change otherwise.
const FORBIDDEN: &str = "/.talon-probe";

/// How a process of the sandbox found itself.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Seen {
    pub effective: u64,
    pub bounding: u64,
    pub seccomp: u64,
    pub no_new_privileges: bool,
    /// Files of the image cannot be changed although their modes would let this process.
    pub confined: bool,
}

pub fn main() -> u8 {
    let seen = fs::read_to_string("/proc/self/status").map(|status| Seen {
        effective: field(&status, "CapEff:", 16),
        bounding: field(&status, "CapBnd:", 16),
        seccomp: field(&status, "Seccomp:", 10),
        no_new_privileges: field(&status, "NoNewPrivs:", 10) == 1,
        confined: confined(),
    });
    match seen.and_then(|seen| Ok(serde_json::to_string(&seen)?)) {
        Ok(text) => println!("{text}"),
        Err(error) => {
            eprintln!("talon-agent probe: {error}");
            return 70;
        }
    }
    0
}

/// A missing line reads as the worst.
fn field(status: &str, name: &str, radix: u32) -> u64 {
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    let worst = if radix == 16 { u64::MAX } else { 0 };
    found.and_then(|value| u64::from_str_radix(value.trim(), radix).ok()).unwrap_or(worst)
}

fn confined() -> bool {
    match fs::create_dir(FORBIDDEN) {
        Ok(()) => {
            // It is ours and empty; should it stay nevertheless, it says nothing to anyone.
            let _stays = fs::remove_dir(FORBIDDEN);
            false
        }
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// Starts a probe as root of the sandbox, the first time; later what it told then.
///
/// # Errors
/// When it cannot be started or tells nothing.
pub async fn look(agent: &Agent) -> Result<Seen> {
    if let Some(seen) = agent.isolated.seen.get() {
        return Ok(seen);
    }
    let launch = Launch {
        argv: vec!["probe".to_owned()],
        cwd: "/".to_owned(),
        env: Environment::new(),
        identity: Identity::root(),
        stdin: Stdio::Null,
        stdout: Stdio::Pipe,
        stderr: Stdio::Null,
        terminal: false,
    };
    let child = spawn::spawn_self_sealed(agent, launch)?;
    let output = child.stdout.ok_or_else(|| Error::runtime("the probe has no output"))?;
    let mut said = String::new();
    let reading = async {
        let mut output = tokio::net::unix::pipe::Receiver::from_owned_fd(output.into())?;
        output.read_to_string(&mut said).await
    };
    let read = tokio::time::timeout(BOUND, reading).await;
    if read.is_err() {
        // It may be ending right now.
        let _gone = sys::kill(child.pid, libc::SIGKILL);
    }
    child.exit.wait().await;
    let seen = serde_json::from_str(&said)
        .map_err(|error| Error::runtime("a process of the sandbox could not look at itself").cause(error))?;
    agent.isolated.seen.set(Some(seen));
    Ok(seen)
}
