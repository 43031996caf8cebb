"""Bash as a kernel: one living shell that sources each cell.

The shell is interactive, so that SIGINT ends the cell and not the shell. Descriptors in it: standard input is its control
socket, 250 a copy of it, 249 the cell's text. `display FILE [MIME]` shows a file as a result. What is not there: `read`
from the client (standard input of a cell is empty).
"""

import asyncio
import base64
import mimetypes
import os
import secrets
import socket
from typing import Any

from .cell import MAX_RESULT_BYTES, Cell, Outcome, failure, too_large
from .kernel import Kernel, Refused

_SETTLE = r"""exec 250>&0; set +o history +H; export -n PS1 PS2; unset HISTFILE MAILCHECK
display() { builtin printf 'show %q %q\n' "$(realpath -- "$1")" "${2-}" >&250; }
trap 'builtin printf "exit %s\n" "$?" >&250' EXIT
builtin printf 'ready 0\n' >&250
"""
_TEXTS = ("text/", "application/json", "image/svg+xml")


class BashKernel(Kernel):
    """One shell."""

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        self.place = type(self.place)(self.place.cwd, {**self.place.env, "PS1": "", "PS2": ""})
        self.spawn(["bash", "--noprofile", "--norc", "--noediting", "-i"], stdin=theirs.fileno())
        theirs.close()
        self._said, self._control = await asyncio.open_unix_connection(sock=ours, limit=1 << 20)
        self._count = 0
        self._control.write(_SETTLE.encode())
        try:
            await asyncio.wait_for(self._said.readline(), 30)
        except TimeoutError:
            raise Refused(500, "kernel_failed", "bash did not start", "check that bash works in this image") from None
        # What an interactive shell says of a missing terminal is nobody's output.
        await self.pipes.drain()
        self.pipes.forget()

    async def run(self, cell: Cell) -> Outcome:
        self._count += 1
        self.pipes.begin(cell)
        end = f"talon-{secrets.token_hex(8)}"
        text = f". /dev/fd/249 249<<'{end}' </dev/null\n{cell.code}\n{end}\nbuiltin printf 'done %s\\n' \"$?\" >&250\n"
        self._control.write(text.encode("utf-8", "surrogateescape"))
        error: dict[str, Any] | None = None
        try:
            await self._control.drain()
            while line := (await self._said.readline()).decode("utf-8", "replace"):
                word, _, rest = line.strip().partition(" ")
                if word == "show":
                    await self.pipes.drain()
                    error = _show(cell, rest) or error
                elif word in ("done", "exit"):
                    break
            else:
                await self.ended
            await self.pipes.drain()
        finally:
            self.pipes.finish()
        if word == "exit":
            await self.ended
        if error is None and rest != "0":
            error = failure("CommandExecError", rest, [f"exit status {rest}"])
        return Outcome(self._count, error)

    async def close(self) -> None:
        await super().close()
        self._control.close()


def _show(cell: Cell, words: str) -> dict[str, Any] | None:
    """A file as a result; an error when it cannot be one."""
    import shlex

    path, kind = [*shlex.split(words), "", ""][:2]
    kind = kind or mimetypes.guess_type(path)[0] or "text/plain"
    try:
        if os.path.getsize(path) > MAX_RESULT_BYTES:
            return too_large(os.path.getsize(path))
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        return failure("DisplayError", str(error))
    text = data.decode("utf-8", "replace") if kind.startswith(_TEXTS) else base64.b64encode(data).decode()
    cell.emit("result", {"kind": "display", "data": {kind: text}})
    return None
