//! System calls that take a process into namespaces of its own. See `sys`.
//!
//! Called by `isolated::enter` in a helper process that has one thread.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use crate::sys::{check, cstring};

const MOUNT_ATTR_RDONLY: u64 = 1;
const AT_RECURSIVE: libc::c_int = 0x8000;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Leaves the given namespaces (CLONE_NEW…) for new ones.
pub fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare has no memory effects.
    check(i64::from(unsafe { libc::unshare(flags) }))?;
    Ok(())
}

/// Becomes root of the user namespace, with no other groups.
pub fn become_root() -> io::Result<()> {
    // SAFETY: plain numbers; the process has one thread.
    unsafe {
        check(i64::from(libc::setresgid(0, 0, 0)))?;
        check(i64::from(libc::setresuid(0, 0, 0)))?;
        check(i64::from(libc::setgroups(0, std::ptr::null())))?;
    }
    Ok(())
}

/// Mounts and unmounts stay within this namespace.
pub fn make_private() -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: the path is a C string literal; the other pointers may be null for a change of propagation.
    let done = unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) };
    check(i64::from(done))?;
    Ok(())
}

/// A detached copy of what is mounted at `path` and below.
pub fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let path = cstring(&path.to_string_lossy())?;
    let flags = libc::OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | AT_RECURSIVE as u32;
    // SAFETY: the path is a C string that outlives the call; the new descriptor is ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Makes the mount at `path` and all below it read-only.
pub fn make_read_only(path: &CStr) -> io::Result<()> {
    set_attributes(libc::AT_FDCWD, path, MOUNT_ATTR_RDONLY)
}

/// As above for a detached tree.
pub fn make_tree_read_only(tree: &OwnedFd) -> io::Result<()> {
    set_attributes(tree.as_raw_fd(), c"", MOUNT_ATTR_RDONLY)
}

fn set_attributes(at: RawFd, path: &CStr, set: u64) -> io::Result<()> {
    let attributes = MountAttr { set, clear: 0, propagation: 0, userns: 0 };
    let flags = AT_RECURSIVE | libc::AT_EMPTY_PATH;
    // SAFETY: the path and the struct, of the size given, outlive the call.
    check(unsafe {
        libc::syscall(libc::SYS_mount_setattr, at, path.as_ptr(), flags, &raw const attributes, size_of::<MountAttr>())
    })?;
    Ok(())
}

/// Mounts a file system by its old name and options.
pub fn mount(kind: &CStr, target: &Path, options: &str) -> io::Result<()> {
    let target = cstring(&target.to_string_lossy())?;
    let options = cstring(options)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: all strings outlive the call.
    let done = unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    check(i64::from(done))?;
    Ok(())
}

/// Runs `child` in a new process, the first of a new PID namespace if one was unshared, and gives its wait status.
/// The child dies with this process.
pub fn run_first(child: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: the process has one thread, so the child may go on as it is; it leaves by _exit.
    unsafe {
        let pid = check(i64::from(libc::fork()))? as i32;
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::_exit(i32::from(child()));
        }
        let mut status = 0;
        while libc::waitpid(pid, &raw mut status, 0) < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(status)
    }
}

/// Does the file have the extended attribute `name` with value "y"?
pub fn is_marked(path: &Path, name: &CStr) -> bool {
    let Ok(path) = cstring(&path.to_string_lossy()) else { return false };
    let mut value = [0_u8; 1];
    // SAFETY: both strings outlive the call, which writes at most the buffer's one byte.
    let size = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), 1) };
    size == 1 && value[0] == b'y'
}
