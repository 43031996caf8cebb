//! Which privileges the agent and its children keep once the root is in place.
//!
//! `agent` is called once at the claim; `filter` for each child. In-sandbox root keeps what package managers need inside the user
//! namespace and nothing that reaches the kernel's configuration. Invariant: no child can have a capability outside `KEPT`,
//! gain one by executing a file, or use a system call outside `seccomp`'s list.

use std::cell::OnceCell;

use crate::error::{Error, Result};
use crate::{seccomp, sys_caps};

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

/// The children's system-call filter.
pub fn filter() -> Vec<libc::sock_filter> {
    thread_local!(static PROGRAM: OnceCell<Vec<libc::sock_filter>> = const { OnceCell::new() });
    PROGRAM.with(|program| program.get_or_init(seccomp::program).clone())
}
