//! System calls the standard library does not offer: the only files with `unsafe` are this one and `sys_*.rs`.
//!
//! Each function is a thin, safe wrapper that turns -1 into `io::Error`. Invariant: no policy here.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use tokio::io::unix::AsyncFd;

/// Turns a system call's -1 into the error it left.
pub fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

pub fn cstring(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in a string"))
}

/// Takes over a descriptor the process was started with.
///
/// # Errors
/// EBADF when it is not open.
pub fn inherit(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl on any number is harmless; it fails with EBADF when the descriptor is not open.
    check(i64::from(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }))?;
    // SAFETY: the descriptor is open, and each inherited number is taken over once, at start, by the one who owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn set_nonblocking(fd: &impl AsRawFd, on: bool) -> io::Result<()> {
    // SAFETY: F_GETFL reads flags of a descriptor that is open as long as `fd` lives.
    let flags = check(i64::from(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) }))? as i32;
    let flags = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    // SAFETY: F_SETFL changes only status flags of that descriptor.
    check(i64::from(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }))?;
    Ok(())
}

/// A pipe, (read end, write end), both close-on-exec.
pub fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: pipe2 writes two descriptors into the array.
    check(i64::from(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    // SAFETY: both descriptors are new and owned by nobody else.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Bytes waiting in a pipe or socket.
pub fn bytes_waiting(fd: &impl AsRawFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if result < 0 {
        0
    } else {
        usize::try_from(count).unwrap_or(0)
    }
}

/// An anonymous file in memory.
pub fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a C string literal; the new descriptor is ours.
    let fd = check(i64::from(unsafe { libc::memfd_create(c"log".as_ptr(), libc::MFD_CLOEXEC) }))?;
    // SAFETY: as above.
    Ok(unsafe { File::from_raw_fd(fd as RawFd) })
}

/// Sends a signal to a process (`pid` > 0) or a process group (`pid` < -1).
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid == 0 || pid == -1 || pid == 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: kill has no memory effects.
    check(i64::from(unsafe { libc::kill(pid, signal) }))?;
    Ok(())
}

/// Sends a signal to every process of the sandbox but PID 1.
pub fn kill_all(signal: i32) {
    if std::process::id() != 1 {
        return;
    }
    // SAFETY: kill has no memory effects; -1 spares the caller and, in a PID namespace, all outside.
    unsafe { libc::kill(-1, signal) };
}

/// Blocks `signals` and gives a descriptor that reads them.
pub fn signal_fd(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use; signalfd reads it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        check(i64::from(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())))?;
        let fd = check(i64::from(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Next ended child: (pid, wait status); `None` when none is left to reap.
pub fn reap() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: waitpid writes one int.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}

/// Hides the process's memory, environment and descriptors from every other process of the sandbox.
pub fn set_undumpable() -> io::Result<()> {
    // SAFETY: PR_SET_DUMPABLE takes a plain number.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }))?;
    Ok(())
}

/// Names the calling thread as process lists show it.
pub fn set_name(name: &std::ffi::CStr) -> io::Result<()> {
    // SAFETY: the name outlives the call, which copies at most 16 bytes of it.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) }))?;
    Ok(())
}

/// Keeps the allocator to one arena and lets it give memory back: the agent must idle small.
pub fn tune_allocator() {
    // SAFETY: mallopt sets plain numbers, before any thread is started.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
    }
}

/// Gives back what is only cached: free pages of the heap, and mapped code, which comes back from the file when it runs again.
pub fn relax_memory() {
    // SAFETY: malloc_trim only releases free pages of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in maps.lines().filter_map(code_range) {
        // SAFETY: the range is a private, read-only mapping of the program's file, of which the kernel reloads each page on use.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
    }
}

/// Addresses of a line of /proc/PID/maps that maps a file's code.
fn code_range(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (range, mode) = (words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let is_file = words.nth(3)?.starts_with('/');
    let number = |text| usize::from_str_radix(text, 16).ok();
    (mode == "r-xp" && is_file).then(|| Some((number(start)?, number(end)?)))?
}

/// File-system identity of the calling thread, for `as_user`.
fn set_fs_identity(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the raw calls change only this thread's credentials (the libc wrapper would change all threads'); the slice outlives the call.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        let now = libc::syscall(libc::SYS_setfsuid, uid);
        if now as u32 != uid {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
    }
    Ok(())
}

/// Runs `work` with a user's file-system identity: permission checks and ownership of what it makes are the user's.
/// Synchronous and of this thread only; from a non-root identity the kernel sets the file capabilities aside by itself.
///
/// # Errors
/// EPERM or EINVAL when the identity cannot be taken (an id that is not mapped); otherwise what `work` says.
pub fn as_user<T, E: From<io::Error>>(
    uid: u32,
    gid: u32,
    groups: &[u32],
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            if set_fs_identity(0, 0, &[]).is_err() {
                std::process::abort();
            }
        }
    }
    let _restore = Restore;
    set_fs_identity(uid, gid, groups)?;
    work()
}

/// Seconds of the monotonic clock.
pub fn monotonic_seconds() -> f64 {
    // SAFETY: clock_gettime writes the struct.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        now
    };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Fills the buffer with random bytes.
pub fn random(buffer: &mut [u8]) -> io::Result<()> {
    // SAFETY: getrandom writes at most the buffer's length; up to 256 bytes are never cut short.
    check(unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) } as i64)?;
    Ok(())
}

/// Registers a descriptor its value owns with the event loop.
pub fn watch<T: AsRawFd + Into<OwnedFd>>(fd: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an owner (File, OwnedFd) keeps its descriptor open and the same until it is dropped, which is after AsyncFd lets go of it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_files_can_be_let_go() {
        let code = "7f00-7f80 r-xp 00089000 fe:00 991426                     /agent";
        assert_eq!(code_range(code), Some((0x7f00, 0x7f80)));
        assert_eq!(code_range(&code.replace("r-xp", "rw-p")), None);
        assert_eq!(code_range("7f00-7f80 r-xp 00000000 00:00 0                          [vdso]"), None);
        relax_memory();
    }
}
