"""A command's output as it happens: the event stream of exec and of followed logs, read with `sse.py`.

Used by Sandbox.run (with callbacks), Process.logs and the CLI. Invariant: a stream that ends without its `exit` event
is a broken connection and raises, so that a cut-off output is never taken for a whole one.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

from ..errors import NetworkError, from_fields
from ..models import Result
from ..sse import SSEDecoder
from .concurrency import notify
from .transport import AsyncTransport, Call

EVENT_STREAM = "text/event-stream"
SILENCE_S = 120.0
"""The agent sends something every 15 seconds; a longer silence is a dead connection."""


async def output_events(transport: AsyncTransport, call: Call) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The events started, stdout, stderr and, last, exit, each with its fields."""
    decoder = SSEDecoder()
    call.read_timeout_s = SILENCE_S
    call.headers = {**(call.headers or {}), "Accept": EVENT_STREAM}
    async with transport.stream(call) as answer:
        async for piece in answer:
            for event in decoder.feed(piece):
                fields = event.json()
                if event.name == "error":
                    raise from_fields(fields, 0, answer.headers)
                yield event.name, fields
                if event.name == "exit":
                    return
    raise NetworkError(
        "the output ended before the command did",
        code="connection_lost",
        cause="the connection was closed without an exit event",
        remedy="see with sb.info() whether the sandbox still runs, then run the command again",
        retryable=True,
    )


class AsyncCollector:
    """Puts the events of one command together to a Result, telling callbacks on the way."""

    def __init__(self, on_stdout: Any = None, on_stderr: Any = None) -> None:
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._process_id = ""

    async def take(self, name: str, fields: dict[str, Any]) -> Result | None:
        """Take one event; the last one gives the result."""
        if name in self._texts:
            self._texts[name].append(fields["data"])
            await notify(self._callbacks[name], fields["data"])
        elif name == "started":
            self._process_id = str(fields.get("process_id", ""))
        elif name == "exit":
            return self._result(fields)
        return None

    def _result(self, fields: dict[str, Any]) -> Result:
        stdout, stderr = "".join(self._texts["stdout"]), "".join(self._texts["stderr"])
        return Result(
            stdout=stdout,
            stderr=stderr,
            exit_code=fields["exit_code"],
            duration_s=fields.get("duration_s", 0.0),
            timed_out=fields.get("timed_out", False),
            oom_killed=fields.get("oom_killed", False),
            signal=fields.get("signal"),
            process_id=self._process_id,
            stdout_bytes=stdout.encode(),
            stderr_bytes=stderr.encode(),
        )


def whole_result(answer: dict[str, Any], *, binary: bool) -> Result:
    """The Result of an exec call that was not streamed; `binary`: its output came as base64."""
    stdout, stderr = answer.get("stdout", ""), answer.get("stderr", "")
    stdout_bytes = base64.b64decode(stdout) if binary else stdout.encode()
    stderr_bytes = base64.b64decode(stderr) if binary else stderr.encode()
    return Result(
        stdout=stdout_bytes.decode("utf-8", "replace") if binary else stdout,
        stderr=stderr_bytes.decode("utf-8", "replace") if binary else stderr,
        exit_code=answer["exit_code"],
        duration_s=answer.get("duration_s", 0.0),
        timed_out=answer.get("timed_out", False),
        oom_killed=answer.get("oom_killed", False),
        signal=answer.get("signal"),
        process_id=str(answer.get("process_id", "")),
        stdout_truncated=answer.get("stdout_truncated", False),
        stderr_truncated=answer.get("stderr_truncated", False),
        stdout_bytes=stdout_bytes,
        stderr_bytes=stderr_bytes,
    )
