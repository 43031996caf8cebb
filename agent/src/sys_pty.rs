//! System calls of pseudo terminals.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys::check;

/// A new pseudo terminal of this size, owned by `uid`: (our non-blocking end, the program's end).
pub fn open(cols: u16, rows: u16, uid: u32) -> io::Result<(File, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string literal; the new descriptor is ours.
    let master = check(i64::from(unsafe { libc::open(c"/dev/ptmx".as_ptr(), flags | libc::O_NONBLOCK) }))? as RawFd;
    // SAFETY: as above.
    let master = unsafe { File::from_raw_fd(master) };
    let unlocked: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int.
    check(i64::from(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) }))?;
    // SAFETY: TIOCGPTPEER takes open flags and gives a new descriptor, which is ours.
    let slave = check(i64::from(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) }))? as RawFd;
    // SAFETY: as above.
    let slave = unsafe { OwnedFd::from_raw_fd(slave) };
    // SAFETY: plain numbers on an open descriptor; the group stays as the file system gave it.
    check(i64::from(unsafe { libc::fchown(slave.as_raw_fd(), uid, u32::MAX) }))?;
    resize(&master, cols, rows)?;
    Ok((master, slave))
}

/// Tell the terminal its size; the kernel signals its foreground group.
pub fn resize(master: &File, cols: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads the struct.
    check(i64::from(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }))?;
    Ok(())
}

/// The terminal's foreground process group, which signals typed at it go to.
pub fn foreground(master: &File) -> io::Result<i32> {
    let mut group: libc::pid_t = 0;
    // SAFETY: TIOCGPGRP writes one pid.
    check(i64::from(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPGRP, &raw mut group) }))?;
    Ok(group)
}
