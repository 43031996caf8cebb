"""The sandboxes as they stand: living ones in memory, every change written to the store before it is seen.

Only `lifecycle` and what it is made of call it. Invariant: memory holds exactly the rows that have not ended.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from talon_server.control.events import Events
from talon_server.errors import TalonError
from talon_server.model.sandbox import Sandbox, State, may
from talon_server.store.sandboxes import SandboxStore

_ENDED = (State.FAILED, State.TERMINATED)
_ROWS = 500


class Registry:
    """All sandboxes."""

    def __init__(self, store: SandboxStore, events: Events) -> None:
        self._store = store
        self._events = events
        self._living: dict[str, Sandbox] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._unsaved: set[str] = set()

    def load(self) -> list[Sandbox]:
        """Read what had not ended when the last server stopped."""
        for sandbox in self._store.living():
            self._index(sandbox)
        return list(self._living.values())

    def reserve(self, sandbox: Sandbox, *, save: bool) -> None:
        """A new sandbox, in memory and, if `save`, in the store. Raises name_taken."""
        owner = (sandbox.tenant, sandbox.name)
        if sandbox.name and owner in self._names:
            raise TalonError("name_taken", f"a sandbox named {sandbox.name!r} exists already")
        if save:
            self._store.add(sandbox)
        else:
            self._unsaved.add(sandbox.id)
        self._index(sandbox)

    def release(self, id: str) -> None:
        """Forget a sandbox that never came to be, unless it has a row."""
        sandbox = self._living.get(id)
        if sandbox is not None and id in self._unsaved:
            self._unindex(sandbox)

    def settle(self, id: str, state: State, reason: str) -> None:
        """Write what the host shows after a restart, whatever led there."""
        self._write(self._living[id], state, {"reason": reason} if reason else {})

    def change(self, id: str, state: State | None = None, **fields: Any) -> Sandbox:
        """Write a change, then show it. Raises invalid_transition, sandbox_not_found."""
        before = self._living.get(id)
        if before is None:
            raise TalonError("sandbox_not_found", f"there is no sandbox {id}")
        if state is not None and state is not before.state and not may(before.state, state):
            raise TalonError("invalid_transition", f"a sandbox that is {before.state} cannot become {state}")
        return self._write(before, state, fields)

    def _write(self, before: Sandbox, state: State | None, fields: dict[str, Any]) -> Sandbox:
        id = before.id
        if state is not None and state is not before.state:
            fields |= {"state": state, "changed_at": datetime.now(UTC)}
            if state in _ENDED:
                fields["ended_at"] = fields["changed_at"]
        after = replace(before, **fields)
        if after.name != before.name and after.name and (after.tenant, after.name) in self._names:
            raise TalonError("name_taken", f"a sandbox named {after.name!r} exists already")
        self._save(after)
        self._unindex(before)
        if after.live:
            self._index(after)
        if state is not None and state is not before.state:
            self._events.emit("state", id, after.tenant, state=str(state), reason=after.reason)
        return after

    def _save(self, sandbox: Sandbox) -> None:
        if sandbox.id in self._unsaved:
            self._store.add(sandbox)
            self._unsaved.discard(sandbox.id)
        else:
            self._store.put(sandbox)

    def find(self, tenant: str | None, ref: str) -> Sandbox:
        """By id or name, living or ended. Raises sandbox_not_found."""
        id = self._names.get((tenant, ref), ref) if tenant is not None else ref
        sandbox = self._living.get(id) or self._store.get(id)
        if sandbox is None or (tenant is not None and sandbox.tenant != tenant):
            raise TalonError("sandbox_not_found", f"there is no sandbox {ref!r}")
        return sandbox

    def living(self, id: str) -> Sandbox | None:
        return self._living.get(id)

    def all(self, tenant: str | None = None) -> Iterator[Sandbox]:
        """The living ones."""
        return (sandbox for sandbox in self._living.values() if tenant in (None, sandbox.tenant))

    def count(self) -> int:
        return len(self._living)

    def by_idempotency(self, tenant: str, key: str) -> Sandbox | None:
        """The sandbox made with this key, living or ended."""
        id = self._keys.get((tenant, key))
        return self._living[id] if id in self._living else self._store.by_idempotency(tenant, key)

    def list(
        self,
        tenant: str,
        *,
        labels: Mapping[str, str],
        states: Sequence[State],
        name: str | None,
        limit: int,
        cursor: str,
    ) -> tuple[list[Sandbox], str | None]:
        """Newest first; `cursor` continues after the last of the page before. No states: those that live."""
        position = _position(cursor)
        wanted = tuple(states) or tuple(state for state in State if state not in _ENDED)

        def matches(sandbox: Sandbox) -> bool:
            return (
                sandbox.state in wanted
                and name in (None, sandbox.name)
                and all(sandbox.labels.get(key) == value for key, value in labels.items())
            )

        found = [one for one in self.all(tenant) if matches(one) and _order(one) < position]
        ended = [state for state in wanted if state in _ENDED]
        if ended:
            found += islice(filter(matches, self._ended(tenant, ended, position)), limit + 1)
        found.sort(key=_order, reverse=True)
        page = found[:limit]
        more = len(found) > limit
        return page, f"{_order(page[-1])[0]!r}:{page[-1].id}" if more and page else None

    def _ended(self, tenant: str, states: Sequence[State], position: tuple[float, str]) -> Iterator[Sandbox]:
        """Ended ones, newest creation first, read from the store as far as they are taken."""
        while True:
            before, last = position
            rows = self._store.ended(tenant=tenant, states=states, before=before, id=last, limit=_ROWS)
            yield from rows
            if len(rows) < _ROWS:
                return
            position = _order(rows[-1])

    def forget_ended(self, older_than_s: float) -> int:
        """Drop the rows of sandboxes that ended long ago."""
        return self._store.forget(time.time() - older_than_s)

    def _index(self, sandbox: Sandbox) -> None:
        self._living[sandbox.id] = sandbox
        if sandbox.name:
            self._names[sandbox.tenant, sandbox.name] = sandbox.id
        if sandbox.idempotency:
            self._keys[sandbox.tenant, sandbox.idempotency] = sandbox.id

    def _unindex(self, sandbox: Sandbox) -> None:
        self._living.pop(sandbox.id, None)
        self._unsaved.discard(sandbox.id)
        if self._names.get((sandbox.tenant, sandbox.name)) == sandbox.id:
            del self._names[sandbox.tenant, sandbox.name]
        self._keys.pop((sandbox.tenant, sandbox.idempotency), None)


def _order(sandbox: Sandbox) -> tuple[float, str]:
    return sandbox.created_at.timestamp(), sandbox.id


def _position(cursor: str) -> tuple[float, str]:
    if not cursor:
        return math.inf, ""
    at, _, id = cursor.partition(":")
    try:
        seconds = float(at)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise TalonError("invalid_request", "the cursor is not one that this server gave")
    return seconds, id
