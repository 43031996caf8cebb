"""API keys: made once, shown once, kept as hashes.

`authenticate` is asked by every request and answers from memory. The first key is written to `<home>/admin.key`.
"""

import hashlib
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, insert, select

from talon_server.control.principals import Principal
from talon_server.errors import TalonError
from talon_server.model import ids
from talon_server.store.database import Database
from talon_server.store.tables import keys as table

PREFIX = "tln_"
TENANT = "default"
RELOAD_S = 0.2


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key without its secret. `created_at` is Unix seconds."""

    id: str
    tenant: str
    name: str
    admin: bool
    created_at: float


class Keys:
    """All keys."""

    def __init__(self, database: Database, *, reload_s: float = RELOAD_S) -> None:
        self._database = database
        self._reload_s = reload_s
        self._by_hash: dict[str, KeyRecord] = {}
        self._principals: dict[str, Principal] = {}
        self._load()

    def _load(self) -> None:
        with self._database.begin() as connection:
            rows = connection.execute(select(table)).mappings().all()
        self._by_hash = {
            row["hash"]: KeyRecord(row["id"], row["tenant"], row["name"], bool(row["admin"]), row["created_at"])
            for row in rows
        }
        self._principals = {}
        self._loaded = time.monotonic()

    def authenticate(self, raw: str) -> Principal | None:
        """The owner of a key, or None. Compared by hash, so its timing tells nothing of the key."""
        digest = _hash(raw)
        principal = self._principals.get(digest)
        if principal is None and (record := self._record(digest)) is not None:
            principal = Principal(record.id, record.tenant, record.name, record.admin)
            self._principals[digest] = principal
        return principal

    def _record(self, digest: str) -> KeyRecord | None:
        """From memory; else from the database, where `talon-server keys` may have put it, at most five times a second."""
        if digest not in self._by_hash and time.monotonic() - self._loaded >= self._reload_s:
            self._load()
        return self._by_hash.get(digest)

    def create(self, name: str, *, tenant: str = TENANT, admin: bool = False) -> tuple[KeyRecord, str]:
        """A new key: its record and the secret, which cannot be had again."""
        raw = PREFIX + secrets.token_urlsafe(32)
        record = KeyRecord(ids.new(ids.KEY), tenant, name, admin, time.time())
        with self._database.begin() as connection:
            connection.execute(
                insert(table).values(
                    id=record.id,
                    tenant=tenant,
                    name=name,
                    hash=_hash(raw),
                    admin=int(admin),
                    created_at=record.created_at,
                )
            )
        self._by_hash[_hash(raw)] = record
        return record, raw

    def list(self, tenant: str) -> list[KeyRecord]:
        return sorted((record for record in self._by_hash.values() if record.tenant == tenant), key=_age)

    def delete(self, tenant: str, id: str) -> None:
        """From now on the key opens nothing. Raises key_not_found."""
        if not any(record.id == id and record.tenant == tenant for record in self._by_hash.values()):
            raise TalonError("key_not_found", f"there is no key {id}")
        with self._database.begin() as connection:
            connection.execute(delete(table).where(table.c.id == id, table.c.tenant == tenant))
        self._load()

    def ensure_first(self, file: Path) -> None:
        """The administrator's key of a new server, in `file` (mode 0600); nothing when that key holds already."""
        if file.exists() and self.authenticate(file.read_text().strip()) is not None:
            return
        _, raw = self.create("admin", admin=True)
        part = file.with_suffix(".part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as target:
            target.write(raw + "\n")
        part.rename(file)


def _hash(raw: str) -> str:
    return hashlib.sha256(raw.encode()).hexdigest()


def _age(record: KeyRecord) -> float:
    return record.created_at
