"""Begins, feeds and ends the recordings of this host's sandboxes. The agents write them; the files are `recordings`'.

Each run of a sandbox is one recording: its id, with a number from the second run on. Called by `host`. Invariant: a
recording whose sandbox has ended is closed and signed, at the latest by the next server's start.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model.sandbox import Recording
from talon_server.worker.link import ask
from talon_server.worker.recordings import Recordings
from talon_server.worker.shells import Shell

log = logging.getLogger(__name__)

FLUSH_TIMEOUT_S = 2.0
Closed = Callable[[str, str, Mapping[str, Any]], None]
"""Called with sandbox, recording and what its head says, once it is closed."""


class Recorder:
    """The recordings that are being written."""

    def __init__(self, recordings: Recordings, tasks: Tasks, closed: Closed) -> None:
        self._recordings = recordings
        self._tasks = tasks
        self._closed = closed

    def begin(self, sandbox: str, wanted: Recording) -> tuple[str, int]:
        """The recording's id and the descriptor for the agent; ("", -1) when nothing is recorded.

        Raises recording_unavailable when it must be and cannot.
        """
        if wanted.mode == "off":
            return "", -1
        try:
            recording = self._recordings.fresh(sandbox)
            return recording, self._recordings.open(recording)
        except OSError as error:
            if wanted.strict:
                raise TalonError("recording_unavailable", cause=error.strerror) from error
            log.warning("sandbox %s runs without a recording: %s", sandbox, error)
            return "", -1

    def cancel(self, recording: str) -> None:
        """The sandbox never came to be."""
        if recording:
            self._recordings.delete(recording)

    async def note(self, shell: Shell, kind: str, fields: Mapping[str, Any]) -> None:
        """Add the server's own record to a running sandbox's recording; what cannot be told is logged."""
        if shell.claim is None or not shell.claim.recording or shell.cgroup.frozen():
            return
        try:
            await ask(shell.control_socket, {"op": "record", "kind": kind, "fields": dict(fields)})
        except TalonError as error:
            log.debug("a record of shell %s was not taken: %s", shell.id, error)

    async def flush(self, shell: Shell) -> None:
        """Let the agent write what it has, before it is ended."""
        if shell.claim is None or not shell.claim.recording or shell.ended.is_set() or shell.cgroup.frozen():
            return
        try:
            await ask(shell.control_socket, {"op": "flush"}, timeout_s=FLUSH_TIMEOUT_S)
        except TalonError as error:
            log.warning("the recording of shell %s may lack its last moments: %s", shell.id, error)

    def end(self, sandbox: str, recording: str, reason: str) -> None:
        """Close a recording in the background; its agent has ended."""
        if recording:
            self._tasks.start(f"close recording {recording}", self._end(sandbox, recording, reason))

    async def _end(self, sandbox: str, recording: str, reason: str) -> None:
        head = await asyncio.to_thread(self._close, recording, reason)
        if head is not None:
            self._closed(sandbox, recording, head)

    def _close(self, recording: str, reason: str) -> Mapping[str, Any] | None:
        try:
            self._recordings.append(recording, "life", {"state": "ended", "reason": reason})
            head = self._recordings.close(recording)
        except (OSError, ValueError) as error:
            log.warning("recording %s could not be closed: %s", recording, error)
            return None
        return json.loads(json.dumps({name: getattr(head, name) for name in head.__slots__})) if head else None

    def close_strays(self, living: set[str]) -> None:
        """Close what an earlier server left open."""
        for recording in self._recordings.ids():
            if self._recordings.is_open(recording) and recording not in living:
                self.end(recording.split(".")[0], recording, "the server was not there when it ended")
