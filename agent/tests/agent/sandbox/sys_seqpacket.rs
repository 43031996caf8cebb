//! SEQPACKET sockets, which the standard library lacks.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

pub struct Seqpacket(OwnedFd);

impl Seqpacket {
    pub fn listen(path: &Path) -> Self {
        let (socket, address, length) = prepared(path);
        // SAFETY: the address is a live struct of the length given.
        unsafe {
            assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length), 0);
            assert_eq!(libc::listen(socket.as_raw_fd(), 8), 0);
        }
        Self(socket)
    }

    pub fn connect(path: &Path) -> Self {
        let (socket, address, length) = prepared(path);
        // SAFETY: as above.
        let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(result, 0);
        Self(socket)
    }

    /// Sends one message and waits for the reply.
    pub fn exchange(&self, message: &[u8]) -> Vec<u8> {
        let mut reply = vec![0; 64 << 10];
        // SAFETY: both buffers are alive and of the lengths given.
        let count = unsafe {
            libc::send(self.0.as_raw_fd(), message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL);
            libc::recv(self.0.as_raw_fd(), reply.as_mut_ptr().cast(), reply.len(), 0)
        };
        assert!(count > 0, "no reply on the control socket");
        reply.truncate(count as usize);
        reply
    }
}

impl From<Seqpacket> for Stdio {
    fn from(socket: Seqpacket) -> Self {
        Self::from(socket.0)
    }
}

fn prepared(path: &Path) -> (OwnedFd, libc::sockaddr_un, u32) {
    // SAFETY: socket takes numbers; the descriptor is new; an all-zero address is valid.
    let (socket, mut address) = unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        (OwnedFd::from_raw_fd(fd), std::mem::zeroed::<libc::sockaddr_un>())
    };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    assert!(bytes.len() < address.sun_path.len());
    for (target, &byte) in address.sun_path.iter_mut().zip(bytes) {
        *target = byte as libc::c_char;
    }
    (socket, address, size_of::<libc::sockaddr_un>() as u32)
}
