//! System calls on paths and mounts. See `sys`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};

use crate::sys::{check, cstring};

/// Opens a file below a directory descriptor for reading.
pub fn open_at(directory: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let name = cstring(name)?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: the name is a C string that outlives the call; the new descriptor is owned by nobody else.
    unsafe {
        let fd = check(i64::from(libc::openat(directory.as_raw_fd(), name.as_ptr(), flags)))?;
        Ok(File::from_raw_fd(fd as RawFd))
    }
}

/// Moves a mount with all below it.
pub fn move_mount(from: &str, to: &str) -> io::Result<()> {
    let (from, to) = (cstring(from)?, cstring(to)?);
    let none = std::ptr::null();
    // SAFETY: both paths are C strings that outlive the call; the other pointers may be null for MS_MOVE.
    check(i64::from(unsafe { libc::mount(from.as_ptr(), to.as_ptr(), none, libc::MS_MOVE, none.cast()) }))?;
    Ok(())
}

/// Makes the current directory, a mount, the root, and lets go of the old root.
pub fn pivot_here() -> io::Result<()> {
    let here = c".";
    // SAFETY: the paths are C string literals. The old root ends up over the new one, and is what `umount2(".")` detaches.
    unsafe {
        check(libc::syscall(libc::SYS_pivot_root, here.as_ptr(), here.as_ptr()))?;
        check(i64::from(libc::umount2(here.as_ptr(), libc::MNT_DETACH)))?;
    }
    Ok(())
}

pub fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: the pointer and length are of one live string.
    check(i64::from(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }))?;
    Ok(())
}
