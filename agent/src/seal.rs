//! Which privileges the agent and its children keep once the root is in place.
//!
//! `agent` is called once at the claim; `filter` for each child. In-sandbox root keeps what package managers need inside the user
//! namespace and nothing that reaches the kernel's configuration. Invariant: no child can have a capability outside `KEPT`,
//! gain one by executing a file, or use a system call outside `seccomp`'s list.

use std::cell::OnceCell;

use std::os::fd::OwnedFd;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::{seccomp, sys_caps, sys_landlock};

/// Numbers of capabilities(7).
const CHOWN: u64 = 1 << 0;
const DAC_OVERRIDE: u64 = 1 << 1;
const FOWNER: u64 = 1 << 3;
const FSETID: u64 = 1 << 4;
const KILL: u64 = 1 << 5;
const SETGID: u64 = 1 << 6;
const SETUID: u64 = 1 << 7;
const SETPCAP: u64 = 1 << 8;
const NET_BIND_SERVICE: u64 = 1 << 10;
const SYS_CHROOT: u64 = 1 << 18;
const AUDIT_WRITE: u64 = 1 << 29;
const SETFCAP: u64 = 1 << 31;

/// What apt, pip, useradd and servers on low ports use as root. The agent itself needs the same: to start processes as any user and to
/// touch any file.
const KEPT: u64 = CHOWN
    | DAC_OVERRIDE
    | FOWNER
    | FSETID
    | KILL
    | SETGID
    | SETUID
    | SETPCAP
    | NET_BIND_SERVICE
    | SYS_CHROOT
    | AUDIT_WRITE
    | SETFCAP;

/// Drops the agent's own privileges to `KEPT`, for good, and with them those of all it will start.
pub fn agent() -> Result<()> {
    let sealed = sys_caps::limit_bounding_set(KEPT)
        .and_then(|()| sys_caps::set_no_new_privileges())
        .and_then(|()| sys_caps::limit_to(KEPT));
    sealed.map_err(|error| Error::runtime("could not drop privileges").code("claim_failed").cause(error))
}

/// Where programs keep what they make. The workspace, homes and scratch; the rest of a hardened sandbox is its image.
const WRITABLE: [&str; 9] =
    ["/tmp", "/var/tmp", "/workspace", "/root", "/home", "/run", "/dev", "/opt/opensandbox", "/var/log"];

/// Must the children do without any capability?
pub fn bare(agent: &Agent) -> bool {
    agent.settings.borrow().hardening.capabilities == "none"
}

/// The children's Landlock rules, if the operator wants them.
pub fn rules(agent: &Agent) -> Result<Option<OwnedFd>> {
    let settings = agent.settings.borrow();
    let Some(own) = &settings.hardening.writable else { return Ok(None) };
    let workdir = Some(&settings.workdir).filter(|path| path.len() > 1);
    let all: Vec<String> = WRITABLE.map(str::to_owned).into_iter().chain(own.iter().chain(workdir).cloned()).collect();
    let rules = sys_landlock::only_change(&all).map_err(|error| {
        Error::runtime("could not restrict the files that may be changed")
            .cause(error)
            .remedy("use a kernel with Landlock, or set hardening.landlock = false in the server's configuration")
    })?;
    Ok(Some(rules))
}

/// The children's system-call filter.
pub fn filter() -> Vec<libc::sock_filter> {
    thread_local!(static PROGRAM: OnceCell<Vec<libc::sock_filter>> = const { OnceCell::new() });
    PROGRAM.with(|program| program.get_or_init(seccomp::program).clone())
}
