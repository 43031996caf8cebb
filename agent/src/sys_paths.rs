//! System calls on the user's files. See `sys`.
//!
//! Called by `files`. Invariant: nothing is opened through a link of the kernel's own (`/proc/PID/fd/N`, `/proc/PID/root`), so a path
//! never reaches a descriptor of the agent; opening never waits for the other end of a FIFO or for a device.

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys::check;

const PROC_MAGIC: i64 = 0x9fa0;

/// Opens with `flags` (O_CLOEXEC, O_NONBLOCK and O_NOCTTY are added) and, with O_CREAT, the permission bits `mode`.
pub fn open(path: &Path, flags: i32, mode: u32) -> io::Result<File> {
    let path = c_path(path)?;
    // SAFETY: open_how is plain numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as u64;
    how.mode = if flags & libc::O_CREAT == 0 { 0 } else { u64::from(mode) };
    how.resolve = libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path is a C string and `how` a struct of the size given, both alive during the call; the new descriptor is ours.
    unsafe {
        let size = size_of::<libc::open_how>();
        let fd = check(libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw const how, size))?;
        Ok(File::from_raw_fd(fd as RawFd))
    }
}

/// Is the open file one of the kernel's, in procfs?
pub fn is_kernel_file(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    // SAFETY: fstatfs writes the struct, for which zero is valid.
    let kind = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        check(i64::from(libc::fstatfs(file.as_raw_fd(), &raw mut about)))?;
        about.f_type as i64
    };
    Ok(kind == PROC_MAGIC)
}

/// Renames; fails with EEXIST when there is something at `to`.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (c_path(from)?, c_path(to)?);
    let here = libc::AT_FDCWD;
    // SAFETY: both paths are C strings that outlive the call.
    check(unsafe {
        libc::syscall(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), libc::RENAME_NOREPLACE)
    })?;
    Ok(())
}

/// Sets access and modification time to those of `like`, on the path itself and not what it links to.
pub fn copy_times(path: &Path, like: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let path = c_path(path)?;
    let times = [
        libc::timespec { tv_sec: like.atime(), tv_nsec: like.atime_nsec() },
        libc::timespec { tv_sec: like.mtime(), tv_nsec: like.mtime_nsec() },
    ];
    // SAFETY: the path and the two times outlive the call.
    let done = unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) };
    check(i64::from(done))?;
    Ok(())
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in the path"))
}
