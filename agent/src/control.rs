//! The worker's own channel into a sandbox: one JSON message, one JSON reply, descriptors with the claim.
//!
//! Started by `init` on descriptor 4, which has a path on the host only. Invariant: a sandbox is claimed once.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{json, Value};
use tokio::io::unix::AsyncFd;

use crate::agent::{Agent, Limits, Settings};
use crate::error::{Error, Result};
use crate::init::Init;
use crate::{rootfs, seal, sys, sys_socket};

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Message {
    Ping,
    Claim {
        settings: Box<Settings>,
    },
    Stop {
        #[serde(default = "default_grace")]
        grace_ms: u64,
    },
    /// The server's own record: a change of state, a decision on the network.
    Record {
        kind: String,
        fields: serde_json::Map<String, Value>,
    },
    /// Answer once the recording is written.
    Flush,
    Settings {
        env: Option<std::collections::BTreeMap<String, String>>,
        limits: Option<Limits>,
    },
}

fn default_grace() -> u64 {
    2000
}

/// Accepts the worker's connections for ever.
pub async fn serve(listener: AsyncFd<OwnedFd>, init: Rc<Init>) {
    loop {
        let Ok(mut guard) = listener.readable().await else { return };
        if let Ok(Ok(socket)) = guard.try_io(|fd| sys_socket::accept(fd.get_ref())) {
            let init = init.clone();
            tokio::task::spawn_local(async move {
                if let Err(error) = converse(socket, &init).await {
                    eprintln!("talon-agent: control connection: {error}");
                }
            });
        }
    }
}

async fn converse(socket: OwnedFd, init: &Rc<Init>) -> io::Result<()> {
    let socket = sys::watch(socket)?;
    loop {
        let mut guard = socket.readable().await?;
        let (data, fds) = match guard.try_io(|fd| sys_socket::receive(fd.get_ref())) {
            Ok(message) => message?,
            Err(_would_block) => continue,
        };
        if data.is_empty() {
            return Ok(());
        }
        settle(&data, init).await;
        let reply = match obey(&data, fds, init) {
            Ok(reply) => reply,
            Err(error) => json!({"ok": false, "code": error.code, "message": error.to_string()}),
        };
        sys_socket::send(socket.get_ref(), reply.to_string().as_bytes())?;
    }
}

fn obey(data: &[u8], fds: Vec<OwnedFd>, init: &Rc<Init>) -> Result<Value> {
    match serde_json::from_slice(data)? {
        Message::Ping => Ok(json!({"ok": true, "claimed": init.agent.borrow().is_some()})),
        Message::Claim { settings } => claim(*settings, fds, init),
        Message::Stop { grace_ms } => {
            let init = init.clone();
            tokio::task::spawn_local(async move { init.stop(Duration::from_millis(grace_ms)).await });
            Ok(json!({"ok": true}))
        }
        Message::Record { kind, fields } => note(&kind, fields, init),
        Message::Flush => Ok(json!({"ok": true})),
        Message::Settings { env, limits } => change(env, limits, init),
    }
}

fn claim(settings: Settings, fds: Vec<OwnedFd>, init: &Rc<Init>) -> Result<Value> {
    if init.agent.borrow().is_some() {
        return Err(Error::new(409, "already_claimed", "RUNTIME_ERROR", "the sandbox is claimed already"));
    }
    if settings.token.is_empty() || settings.fds.len() != fds.len() {
        return Err(Error::invalid("a claim needs a token, and a name for each descriptor it passes"));
    }
    let begun = Instant::now();
    let named = settings.fds.iter().cloned().zip(fds).collect();
    if settings.mode != "plain" {
        rootfs::enter()?;
        rootfs::name(&settings)?;
    }
    let agent = Rc::new(Agent::new(settings, named)?);
    rootfs::ensure_workdir(&agent.workdir(), &agent.identity(None)?)?;
    seal::agent()?;
    let pivot_us = begun.elapsed().as_micros() as u64;
    init.claimed(agent)?;
    Ok(json!({"ok": true, "pivot_us": pivot_us, "total_us": begun.elapsed().as_micros() as u64}))
}

fn note(kind: &str, fields: serde_json::Map<String, Value>, init: &Rc<Init>) -> Result<Value> {
    let kind = ["life", "net", "note", "port"].into_iter().find(|known| *known == kind);
    let kind = kind.ok_or_else(|| Error::invalid("a record of the server is life, net, note or port"))?;
    if let Some(agent) = &*init.agent.borrow() {
        agent.recorder.fact(kind, fields);
    }
    Ok(json!({"ok": true}))
}

/// Waits for the recording when the message asks for that.
async fn settle(data: &[u8], init: &Rc<Init>) {
    let agent = init.agent.borrow().clone();
    if let (Ok(Message::Flush), Some(agent)) = (serde_json::from_slice(data), agent) {
        agent.recorder.flush().await;
    }
}

fn change(
    env: Option<std::collections::BTreeMap<String, String>>,
    limits: Option<Limits>,
    init: &Rc<Init>,
) -> Result<Value> {
    let agent = init.agent.borrow().clone().ok_or_else(|| Error::invalid("the sandbox is not claimed yet"))?;
    if let Some(env) = env {
        agent.settings.borrow_mut().env = env;
    }
    if let Some(limits) = limits {
        agent.meters.set_limits(limits);
    }
    Ok(json!({"ok": true}))
}
