//! Runs the OCI runtime for the worker: from this small process a start costs a tenth of one from a large Python process.
//!
//! A run is watched by `serve`'s loop, so requests for roots are not held up by it.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::{Child, Command};
use std::time::Instant;

use serde::Deserialize;
use serde_json::{json, Value};

use super::{Failure, Step};
use crate::sys_host;

const FIRST: RawFd = 3;

/// The program and its arguments. The request's descriptors are its output, then those it gets at 3 and up.
#[derive(Deserialize)]
pub struct Order {
    argv: Vec<String>,
    /// Make a user namespace and pass it as the last descriptor.
    userns: Option<Ids>,
}

/// `count` ids from `first` on, which is its owner too.
#[derive(Deserialize)]
struct Ids {
    first: u32,
    count: u32,
}

pub struct Run {
    seq: u64,
    child: Child,
    pidfd: OwnedFd,
    begun: Instant,
}

impl Run {
    /// Starts it in the mount namespace `mounts`, the host's: what it mounts is there for all.
    pub fn start(seq: u64, order: &Order, fds: Vec<OwnedFd>, mounts: &File) -> Result<Run, Failure> {
        let begun = Instant::now();
        let mut fds = fds.into_iter();
        let (Some(output), Some(program)) = (fds.next(), order.argv.first()) else {
            return Err(std::io::Error::from(std::io::ErrorKind::InvalidInput)).step("run nothing");
        };
        let mut passed: Vec<OwnedFd> = fds.collect();
        if let Some(ids) = &order.userns {
            passed.push(sys_host::user_namespace(ids.first, ids.count).step("make a user namespace")?);
        }
        let mut command = Command::new(program);
        command.args(&order.argv[1..]);
        command.stdin(sys_host::empty_input().step("make an empty input")?);
        command.stdout(output.try_clone().step("copy the output")?).stderr(output);
        sys_host::place(&mut command, passed.iter().map(AsRawFd::as_raw_fd).collect(), FIRST, mounts.as_raw_fd());
        let child = command.spawn().step("start the runtime")?;
        let pidfd = sys_host::pidfd(child.id()).step("watch the runtime")?;
        Ok(Run { seq, child, pidfd, begun })
    }

    /// Readable once it has ended.
    pub fn watched(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }

    /// The answer to the request, after the end.
    pub fn finish(mut self) -> Value {
        let status = self.child.wait().ok().and_then(|status| status.code()).unwrap_or(-1);
        json!({"seq": self.seq, "ok": true, "status": status, "us": self.begun.elapsed().as_micros() as u64})
    }
}
