//! What a failed file operation means to its caller, in both dialects.
//!
//! Called by every file route with the path that failed. Invariant: the message names the path, the remedy the next step.

use std::io;
use std::path::Path;

use crate::error::Error;

/// Turns a system call's error on `path` into an answer.
pub fn on(path: &Path) -> impl Fn(io::Error) -> Error + use<'_> {
    move |error| explain(path, &error)
}

fn explain(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    let fault = |status, code, message: String, remedy: &str| {
        Error::new(status, code, "RUNTIME_ERROR", message).cause(error).remedy(remedy)
    };
    let invalid = |message: String, remedy: &str| fault(400, "invalid_path", message, remedy).execd("INVALID_FILE");
    match error.raw_os_error().unwrap_or(0) {
        libc::ENOENT => Error::file_not_found(&shown.to_string()),
        libc::EACCES | libc::EPERM => fault(
            403,
            "permission_denied",
            format!("not permitted: {shown}"),
            "choose another user or change the permissions",
        ),
        libc::EROFS => fault(
            403,
            "read_only",
            format!("read-only file system: {shown}"),
            "write elsewhere, or mount the volume writable",
        ),
        libc::EEXIST => {
            fault(409, "file_exists", format!("already exists: {shown}"), "remove it first, or choose another path")
        }
        libc::ENOTEMPTY => fault(409, "directory_not_empty", format!("not empty: {shown}"), "delete it recursively"),
        libc::EBUSY => fault(
            409,
            "file_busy",
            format!("in use by the kernel, as a mount is: {shown}"),
            "work on what is inside it instead",
        ),
        libc::ETXTBSY => fault(409, "file_busy", format!("the program is being executed: {shown}"), "end it first"),
        libc::ENOTDIR => {
            invalid(format!("not a directory, or a part of the path is none: {shown}"), "check each part of the path")
        }
        libc::EISDIR => invalid(format!("is a directory: {shown}"), "use the directory routes"),
        libc::ELOOP => {
            invalid(format!("too many symbolic links, or one of the kernel's own: {shown}"), "give the real path")
        }
        libc::ENAMETOOLONG => {
            invalid(format!("the path or a name in it is too long: {shown:.200}"), "names are at most 255 bytes")
        }
        libc::ENXIO | libc::ENODEV => not_regular(path),
        libc::EINVAL => invalid(format!("the path cannot be used that way: {shown}"), "check source and destination"),
        libc::ENOSPC | libc::EDQUOT => fault(
            507,
            "disk_full",
            format!("no space left for {shown}"),
            "delete files, or give the sandbox a larger disk",
        ),
        _ if error.kind() == io::ErrorKind::InvalidInput => invalid("the path has a NUL byte".to_owned(), "remove it"),
        _ => Error::runtime(format!("could not work on {shown}")).cause(error),
    }
}

/// It is a FIFO, a device or a socket, which could block for ever.
pub fn not_regular(path: &Path) -> Error {
    Error::new(400, "not_a_regular_file", "INVALID_FILE", format!("not a regular file: {}", path.display()))
        .remedy("read or write special files with a command")
}
