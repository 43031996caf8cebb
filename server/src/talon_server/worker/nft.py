"""nftables in this process, through libnftables: no program started for a change of the walls.

Every call is one transaction: all of its commands take effect at once or none does. Source: libnftables(3).
"""

import ctypes
from collections.abc import Iterable

from talon_server.errors import TalonError


class Nft:
    """A libnftables context."""

    def __init__(self) -> None:
        try:
            self._lib = ctypes.CDLL("libnftables.so.1")
        except OSError as error:
            raise TalonError("host_unsuitable", "nftables is not installed", cause=str(error)) from error
        self._lib.nft_ctx_new.restype = ctypes.c_void_p
        self._lib.nft_ctx_new.argtypes = [ctypes.c_uint32]
        self._lib.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        for name in ("nft_ctx_get_error_buffer", "nft_ctx_get_output_buffer"):
            getattr(self._lib, name).restype = ctypes.c_char_p
            getattr(self._lib, name).argtypes = [ctypes.c_void_p]
        for name in ("nft_ctx_buffer_error", "nft_ctx_buffer_output", "nft_ctx_free"):
            getattr(self._lib, name).argtypes = [ctypes.c_void_p]
        self._context = self._lib.nft_ctx_new(0)
        self._lib.nft_ctx_buffer_error(self._context)
        self._lib.nft_ctx_buffer_output(self._context)

    def run(self, commands: Iterable[str]) -> str:
        """Apply the commands as one transaction; returns their output. Raises runtime_failed with nft's words."""
        text = "\n".join(commands)
        if not text:
            return ""
        failed = self._lib.nft_run_cmd_from_buffer(self._context, text.encode())
        error = self._lib.nft_ctx_get_error_buffer(self._context).decode(errors="replace")
        output = self._lib.nft_ctx_get_output_buffer(self._context).decode(errors="replace")
        if failed:
            raise TalonError("runtime_failed", "the firewall refused a change", cause=error.strip()[:400])
        return str(output)

    def close(self) -> None:
        if self._context:
            self._lib.nft_ctx_free(self._context)
            self._context = None
