"""The database: opened, migrated, and the few statements everything goes through.

SQLite in WAL mode; calls are short and made on the event loop's thread. Used by `control` through the stores built
on it. Invariant: each call is one transaction.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from sqlalchemy import Connection, create_engine, event


class Database:
    """An open database. `begin()` is a transaction."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, connect_args={"check_same_thread": False} if url.startswith("sqlite") else {})
        if url.startswith("sqlite"):
            event.listen(self._engine, "connect", _tune)

    @classmethod
    def open(cls, home: Path) -> "Database":
        """The database of a server's home, migrated to this version; its files are the owner's alone."""
        path = home / "talon.db"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            if file.exists():
                file.chmod(0o600)
        database = cls(f"sqlite:///{path}")
        database.migrate()
        return database

    def migrate(self) -> None:
        """Bring the tables up to date."""
        settings = alembic.config.Config()
        settings.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self._engine.begin() as connection:
            settings.attributes["connection"] = connection
            alembic.command.upgrade(settings, "head")

    def begin(self) -> AbstractContextManager[Connection]:
        return self._engine.begin()

    def close(self) -> None:
        self._engine.dispose()


def _tune(connection: Any, _record: Callable[..., object]) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=5000"):
        connection.execute(f"PRAGMA {pragma}")
