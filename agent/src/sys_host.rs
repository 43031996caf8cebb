//! System calls for the host's helper that are about processes: programs with placed descriptors, and user namespaces
//! whose owner is the sandbox's own user. See `sys`.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::sys::{self, check};
use crate::sys_mount;

const SECBIT_NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;

/// Have the program get `descriptors` at `first` and up, in a session of its own and in the mount namespace `mounts`.
pub fn place(command: &mut Command, descriptors: Vec<RawFd>, first: RawFd, mounts: RawFd) {
    // SAFETY: between fork and exec only system calls on plain numbers are made, and one small allocation; this process has one
    // thread, so no lock of the allocator can be held.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            check(i64::from(libc::setns(mounts, libc::CLONE_NEWNS)))?;
            sys_mount::place_descriptors(&descriptors, first)
        });
    }
}

/// A descriptor that is readable once the child process `pid` has ended.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers; the new descriptor is ours.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: see above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Waits until one of `descriptors` is readable or at its end; tells which are.
pub fn wait_readable(descriptors: &[RawFd]) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> =
        descriptors.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    loop {
        // SAFETY: the array is alive and of the length given.
        match check(i64::from(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) })) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(polled.iter().map(|one| one.revents != 0).collect()),
        }
    }
}

/// A user namespace that maps `count` ids from 0 to `first` and up, owned by the user `first`: what its processes hold of
/// per-user resources is counted to that user, not to the host's root.
pub fn user_namespace(first: u32, count: u32) -> io::Result<OwnedFd> {
    let (mut made, made_end) = sys::pipe()?;
    let (wait_end, go) = sys::pipe()?;
    // SAFETY: this process has one thread; the child makes only system calls and ends with `_exit`.
    let pid = check(i64::from(unsafe { libc::fork() }))? as i32;
    if pid == 0 {
        // SAFETY: plain numbers and descriptors that the child inherited.
        unsafe { become_owner(first, made_end.as_raw_fd(), go.as_raw_fd(), wait_end.as_raw_fd()) }
    }
    drop(made_end);
    let namespace = (|| {
        let mut answer = [0];
        made.read_exact(&mut answer)?;
        if answer[0] != 0 {
            return Err(io::Error::from_raw_os_error(i32::from(answer[0])));
        }
        let map = format!("0 {first} {count}");
        std::fs::write(format!("/proc/{pid}/uid_map"), &map)?;
        std::fs::write(format!("/proc/{pid}/gid_map"), &map)?;
        Ok(File::open(format!("/proc/{pid}/ns/user"))?.into())
    })();
    drop(go);
    // SAFETY: waits for our own child; no status is asked for.
    check(i64::from(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }))?;
    namespace
}

/// The child of `user_namespace`: keeps its capabilities while it takes the owner's ids, tells how it went, and waits.
///
/// # Safety
/// Only in a child right after `fork`.
unsafe fn become_owner(owner: u32, made: RawFd, go: RawFd, wait_end: RawFd) -> ! {
    // SAFETY: plain numbers; the buffers are alive.
    unsafe {
        libc::close(go);
        let done = libc::prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_setresgid, owner, owner, owner) == 0
            && libc::syscall(libc::SYS_setresuid, owner, owner, owner) == 0
            && libc::unshare(libc::CLONE_NEWUSER) == 0;
        let answer: u8 = if done { 0 } else { u8::try_from(*libc::__errno_location()).unwrap_or(255) };
        libc::write(made, (&raw const answer).cast(), 1);
        let mut byte = 0_u8;
        libc::read(wait_end, (&raw mut byte).cast(), 1);
        libc::_exit(0)
    }
}

/// The reading end of a pipe that nobody writes to: an input at its end.
pub fn empty_input() -> io::Result<File> {
    Ok(sys::pipe()?.0)
}
