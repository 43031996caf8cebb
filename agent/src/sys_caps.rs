//! System calls on capabilities and privileges of the calling thread. See `sys`.

use std::io;

use crate::sys::check;

const VERSION_3: u32 = 0x2008_0522;
const LAST_POSSIBLE: u32 = 63;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Capabilities the thread may use now.
pub fn permitted() -> io::Result<u64> {
    let header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: version 3 writes exactly two structs.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) })?;
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}

/// Keeps only the capabilities of `mask`, effective and permitted; none is inheritable or ambient.
pub fn limit_to(mask: u64) -> io::Result<()> {
    let kept = permitted()? & mask;
    let half = |bits: u64| Data { effective: bits as u32, permitted: bits as u32, inheritable: 0 };
    let (header, data) = (Header { version: VERSION_3, pid: 0 }, [half(kept), half(kept >> 32)]);
    // SAFETY: prctl takes plain numbers; version 3 reads exactly two structs.
    unsafe {
        check(i64::from(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)))?;
        check(libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()))?;
    }
    Ok(())
}

/// Takes every capability out of `mask` away from whatever is executed from now on.
pub fn limit_bounding_set(mask: u64) -> io::Result<()> {
    for capability in 0..=LAST_POSSIBLE {
        if mask & (1 << capability) != 0 {
            continue;
        }
        // SAFETY: prctl takes plain numbers.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
        match check(i64::from(result)) {
            // The kernel knows no capability from here on.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            other => other?,
        };
    }
    Ok(())
}

/// From now on no execution gains privileges (set-user-id bits, file capabilities).
pub fn set_no_new_privileges() -> io::Result<()> {
    // SAFETY: prctl takes plain numbers.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))?;
    Ok(())
}
