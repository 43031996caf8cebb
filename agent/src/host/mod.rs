//! The host's helper: the privileged sequences of system calls that a worker needs, one request at a time.
//!
//! `talon-agent host` is started by the worker with a SEQPACKET socket as descriptor 3; it takes JSON requests
//! `{"seq", "op", …}` and answers `{"seq", "ok", …}`, and ends with the socket. Invariants: one thread; after each
//! request it is back in its own mount namespace with its own identity, or it exits.

pub mod place;
mod root;
mod run;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::{sys, sys_host, sys_mount, sys_socket};

const SOCKET: i32 = 3;

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Operation {
    /// Are you there?
    Ping,
    /// Give a shell its root file system.
    Root(root::Order),
    /// Run the OCI runtime; answered when it ends.
    Run(run::Order),
}

#[derive(Deserialize)]
struct Request {
    seq: u64,
    #[serde(flatten)]
    operation: Operation,
}

/// Serves until the worker goes; `arguments` may name a directory for scratch mounts.
pub fn main(mut arguments: impl Iterator<Item = String>) -> u8 {
    let scratch = PathBuf::from(arguments.next().unwrap_or_else(|| "/run".to_owned()));
    match serve(&scratch) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("talon-agent host: {error}");
            1
        }
    }
}

fn serve(scratch: &std::path::Path) -> io::Result<()> {
    let socket = sys::inherit(SOCKET)?;
    let mounts = File::open("/proc/self/ns/mnt")?;
    sys_mount::own_namespace()?;
    let builder = root::Builder::new(scratch)?;
    let mut runs: Vec<run::Run> = Vec::new();
    loop {
        let watched: Vec<i32> = std::iter::once(SOCKET).chain(runs.iter().map(run::Run::watched)).collect();
        let ready = sys_host::wait_readable(&watched)?;
        for number in (0..runs.len()).rev().filter(|number| ready[number + 1]) {
            sys_socket::send(&socket, runs.swap_remove(number).finish().to_string().as_bytes())?;
        }
        if ready[0] {
            let (data, fds) = sys_socket::receive(&socket)?;
            if data.is_empty() {
                return Ok(());
            }
            match obey(&data, fds, &builder, &mounts) {
                Outcome::Reply(reply) => sys_socket::send(&socket, reply.to_string().as_bytes())?,
                Outcome::Later(run) => runs.push(run),
            }
        }
    }
}

enum Outcome {
    Reply(Value),
    Later(run::Run),
}

fn obey(data: &[u8], fds: Vec<OwnedFd>, builder: &root::Builder, mounts: &File) -> Outcome {
    let request: Request = match serde_json::from_slice(data) {
        Ok(request) => request,
        Err(error) => {
            let error = error.to_string();
            return Outcome::Reply(json!({"seq": 0, "ok": false, "step": "read the request", "error": error}));
        }
    };
    let begun = Instant::now();
    let result = match request.operation {
        Operation::Ping => Ok(()),
        Operation::Root(order) => builder.build(&order),
        Operation::Run(order) => match run::Run::start(request.seq, &order, fds, mounts) {
            Ok(run) => return Outcome::Later(run),
            Err(failure) => Err(failure),
        },
    };
    Outcome::Reply(match result {
        Ok(()) => json!({"seq": request.seq, "ok": true, "us": begun.elapsed().as_micros() as u64}),
        Err(failure) => json!({
            "seq": request.seq,
            "ok": false,
            "step": failure.step,
            "error": failure.error.to_string(),
            "errno": failure.error.raw_os_error(),
        }),
    })
}

/// Which step of a sequence failed, and how.
pub struct Failure {
    step: String,
    error: io::Error,
}

/// Names the step in a failure.
trait Step<T> {
    fn step(self, name: impl Into<String>) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, name: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure { step: name.into(), error })
    }
}

/// The descriptor of a directory, for reaching things below it.
fn directory(path: &std::path::Path) -> io::Result<OwnedFd> {
    Ok(std::fs::File::open(path)?.into())
}
