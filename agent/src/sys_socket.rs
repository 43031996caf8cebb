//! System calls on the control socket: messages with descriptors. See `sys`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys::check;

const MAX_FDS: usize = 32;

/// Accepts a connection.
pub fn accept(listener: &impl AsRawFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is asked for, so null pointers are right; the new descriptor is owned by nobody else.
    unsafe {
        let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
        let fd = check(i64::from(libc::accept4(listener.as_raw_fd(), address, length, flags)))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// One whole message and its descriptors; an empty message means the peer is gone.
pub fn receive(socket: &impl AsRawFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // SAFETY: MSG_PEEK | MSG_TRUNC on a null buffer of length 0 only tells the next message's size.
    let size =
        check(
            unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_PEEK | libc::MSG_TRUNC) } as i64
        )?;
    let mut data = vec![0; size as usize];
    let mut control = [0_u64; 8 + MAX_FDS / 2];
    let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: the header points at live buffers of the lengths given; the kernel writes within them.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        let count = check(libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) as i64)?;
        data.truncate(count as usize);
        Ok((data, descriptors(&header)))
    }
}

/// # Safety
/// The header must have been filled by `recvmsg` and its control buffer be alive.
unsafe fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the CMSG macros walk the buffer the kernel filled; each descriptor in it is new and ours.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(message).cast::<RawFd>();
                let count = bytes / size_of::<RawFd>();
                found.extend((0..count).map(|i| OwnedFd::from_raw_fd(first.add(i).read_unaligned())));
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    found
}

/// Sends one message.
pub fn send(socket: &impl AsRawFd, data: &[u8]) -> io::Result<()> {
    // SAFETY: the buffer is alive and of the length given.
    check(unsafe { libc::send(socket.as_raw_fd(), data.as_ptr().cast(), data.len(), libc::MSG_NOSIGNAL) } as i64)?;
    Ok(())
}
