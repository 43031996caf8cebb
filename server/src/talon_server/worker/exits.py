"""How a process that is not our child ended, asked of its pidfd: Linux 6.15 and newer know, older ones do not.

Called by `worker.host` when a sandbox ends of itself. Source: include/uapi/linux/pidfd.h (PIDFD_GET_INFO).
"""

import asyncio
import fcntl
import os
import struct

_GET_INFO = 0xC040FF0B
_EXIT = 1 << 3
_LAYOUT = struct.Struct("=QQ11Ii")
_TRIES = 20
_TRY_S = 0.005


def exit_code(pidfd: int) -> int | None:
    """The exit code (negative: the signal that killed it), or None when it is not known, or not yet."""
    buffer = bytearray(_LAYOUT.pack(_EXIT, *([0] * 13)))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, buffer)
    except OSError:
        return None
    fields = _LAYOUT.unpack(buffer)
    return os.waitstatus_to_exitcode(fields[-1]) if fields[0] & _EXIT else None


async def awaited_exit_code(pidfd: int) -> int | None:
    """The same once its parent, the host's init, has taken note; that is soon."""
    for _ in range(_TRIES):
        if (code := exit_code(pidfd)) is not None:
            return code
        await asyncio.sleep(_TRY_S)
    return None
