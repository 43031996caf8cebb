//! System calls of Landlock: which directories a process and its descendants may change. See `sys`.
//!
//! Called by `seal` for the children of a sandbox whose operator asked for it. Only changing is restricted; reading and executing stay as
//! the files' modes say. Source: landlock(7).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::sys::check;

const VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
/// Writing, and making and removing whatever a directory can hold.
const CHANGES: u64 = 1 << 1 | 0b1_1111_1111 << 4;
/// Moving between directories; without it every such move is refused.
const REFER: (i64, u64) = (2, 1 << 13);
const TRUNCATE: (i64, u64) = (3, 1 << 14);

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// A set of rules under which only what lies in `directories` can be changed; those that are not there are left out.
///
/// # Errors
/// ENOSYS or EOPNOTSUPP where the kernel has no Landlock.
pub fn only_change(directories: &[String]) -> io::Result<OwnedFd> {
    let none = std::ptr::null::<u64>();
    // SAFETY: with VERSION the attributes must be null and nothing is written.
    let version = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, VERSION) })?;
    let newer = [REFER, TRUNCATE].into_iter().filter(|(since, _)| version >= *since);
    let handled = newer.fold(CHANGES, |all, (_, access)| all | access);
    // SAFETY: the attributes' first field is all that is told, and outlives the call; the new descriptor is ours.
    let rules = unsafe {
        let fd = check(libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<u64>(), 0_u32))?;
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    for directory in directories {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let Ok(place) = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(directory) else { continue };
        let rule = PathBeneath { allowed: handled, parent: place.as_raw_fd() };
        // SAFETY: the rule and its descriptor outlive the call.
        check(unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0_u32)
        })?;
    }
    Ok(rules)
}

/// The system call by which the calling thread puts itself under the rules; for the child between clone and exec.
///
/// # Safety
/// None beyond that of a system call with a descriptor.
pub unsafe fn enter(rules: RawFd) -> i64 {
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0_u32) }
}
