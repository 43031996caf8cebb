//! System calls of the mount API and of namespaces, for the host's helper. See `sys`.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys::check;

const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const OPEN_TREE_CLONE: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

pub const READ_ONLY: u64 = 1;
pub const NO_SUID: u64 = 2;
pub const NO_DEV: u64 = 4;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// A file system being configured; `create` makes its mount.
pub struct FileSystem(OwnedFd);

impl FileSystem {
    pub fn open(kind: &CStr) -> io::Result<FileSystem> {
        // SAFETY: the name is a C string; the new descriptor is ours.
        unsafe { own(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC)) }.map(FileSystem)
    }

    pub fn set(&self, key: &CStr, value: &str) -> io::Result<()> {
        let value = text(value)?;
        self.config(FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr().cast())
    }

    /// The detached mount, with `attributes`.
    pub fn create(&self, attributes: u64) -> io::Result<OwnedFd> {
        self.config(FSCONFIG_CMD_CREATE, std::ptr::null(), std::ptr::null())?;
        // SAFETY: plain numbers on an open descriptor; the new descriptor is ours.
        unsafe { own(libc::syscall(libc::SYS_fsmount, self.0.as_raw_fd(), FSMOUNT_CLOEXEC, attributes)) }
    }

    fn config(&self, command: u32, key: *const libc::c_char, value: *const libc::c_void) -> io::Result<()> {
        // SAFETY: key and value are null or C strings that outlive the call.
        check(unsafe { libc::syscall(libc::SYS_fsconfig, self.0.as_raw_fd(), command, key, value, 0) })?;
        Ok(())
    }

    /// What the kernel says went wrong, beyond the error number.
    pub fn complaint(&self) -> String {
        let mut buffer = [0_u8; 512];
        // SAFETY: the buffer is alive and of the length given.
        let count = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        usize::try_from(count)
            .map_or(String::new(), |count| String::from_utf8_lossy(&buffer[..count]).trim().to_owned())
    }
}

/// A detached copy of the mount at `path`.
pub fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32;
    // SAFETY: the path is a C string that outlives the call; the new descriptor is ours.
    unsafe { own(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags)) }
}

/// Show the files of a detached mount with the ids of the user namespace `userns`, and add `attributes`.
pub fn map_ids(mount: &OwnedFd, userns: &File, attributes: u64) -> io::Result<()> {
    let attr =
        MountAttr { set: MOUNT_ATTR_IDMAP | attributes, clear: 0, propagation: 0, userns: userns.as_raw_fd() as u64 };
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: the empty path is a C string, `attr` a struct of the size given; both outlive the call.
    check(unsafe {
        let size = size_of::<MountAttr>();
        libc::syscall(libc::SYS_mount_setattr, mount.as_raw_fd(), c"".as_ptr(), flags, &raw const attr, size)
    })?;
    Ok(())
}

/// Attach a detached mount to the directory that `target` is.
pub fn attach(mount: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    let (from, to) = (mount.as_raw_fd(), target.as_raw_fd());
    // SAFETY: the empty paths are C strings; the descriptors are open.
    check(unsafe { libc::syscall(libc::SYS_move_mount, from, c"".as_ptr(), to, c"".as_ptr(), flags) })?;
    Ok(())
}

/// Take a mount out of the tree; it goes when nobody uses it any more.
pub fn detach(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that outlives the call.
    check(i64::from(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }))?;
    Ok(())
}

/// Join a mount namespace; root and working directory become its root.
pub fn join(namespace: &File) -> io::Result<()> {
    // SAFETY: plain numbers on an open descriptor; this process has one thread.
    check(i64::from(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) }))?;
    Ok(())
}

/// A mount namespace of this process's own, into which the host's mounts and unmounts still propagate.
pub fn own_namespace() -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: unshare takes a number; mount's unused arguments may be null.
    unsafe {
        check(i64::from(libc::unshare(libc::CLONE_NEWNS)))?;
        let flags = libc::MS_SLAVE | libc::MS_REC;
        check(i64::from(libc::mount(c"none".as_ptr(), c"/".as_ptr(), none, flags, none.cast())))?;
    }
    Ok(())
}

/// Open the directory `path` below `root`, whose symbolic links cannot lead out of it.
pub fn open_within(root: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let path = text(path.trim_start_matches('/'))?;
    let path = if path.is_empty() { c".".to_owned() } else { path };
    // SAFETY: open_how is plain numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: path and `how` outlive the call; the new descriptor is ours.
    unsafe {
        let size = size_of::<libc::open_how>();
        own(libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), &raw const how, size))
    }
}

/// Make the directory `name` in the directory `parent`; fine when there is one.
pub fn make_directory(parent: &OwnedFd, name: &str) -> io::Result<()> {
    let name = text(name)?;
    // SAFETY: the name is a C string that outlives the call.
    match check(i64::from(unsafe { libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), 0o755) })) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Runs `work` as the host ids `uid` and `gid` towards file systems, keeping all capabilities.
///
/// # Errors
/// What `work` says, or when the identity could not be taken.
pub fn with_ids<T>(uid: u32, gid: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    take_ids(uid, gid)?;
    let result = work();
    take_ids(0, 0)?;
    result
}

fn take_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: the raw calls take plain numbers and concern this thread alone.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
    }
    crate::sys_caps::limit_to(u64::MAX)
}

/// Puts `numbers` at `first` and up, open across an execution; everything else above closes with it.
pub fn place_descriptors(numbers: &[RawFd], first: RawFd) -> io::Result<()> {
    let above = first + RawFd::try_from(numbers.len()).unwrap_or(0);
    // SAFETY: plain numbers; copies above the targets keep a source from being overwritten before it is placed.
    unsafe {
        let copies: io::Result<Vec<i64>> =
            numbers.iter().map(|&number| check(i64::from(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, above)))).collect();
        for (target, copy) in (first..).zip(copies?) {
            check(i64::from(libc::dup2(copy as RawFd, target)))?;
        }
        check(libc::syscall(libc::SYS_close_range, above, u32::MAX, libc::CLOSE_RANGE_CLOEXEC))?;
    }
    Ok(())
}

fn text(value: &str) -> io::Result<CString> {
    CString::new(value).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in a string"))
}

/// # Safety
/// `result` must be what a system call that makes a descriptor returned.
unsafe fn own(result: i64) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: by the caller's word the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
