"""API keys: shown once, kept as hashes, known to a running server however they were made."""

from pathlib import Path

import pytest

from talon_server.control.keys import Keys
from talon_server.errors import TalonError
from talon_server.store.database import Database


def test_the_first_key_is_the_owners_file(tmp_path: Path) -> None:
    database, file = Database.open(tmp_path), tmp_path / "admin.key"
    keys = Keys(database)
    keys.ensure_first(file)
    raw = file.read_text().strip()
    assert file.stat().st_mode & 0o777 == 0o600
    principal = keys.authenticate(raw)
    assert principal is not None
    assert principal.admin
    assert keys.authenticate(raw + "x") is None
    keys.ensure_first(file)
    assert file.read_text().strip() == raw
    for name in ("talon.db", "talon.db-wal", "talon.db-shm"):
        path = tmp_path / name
        assert not path.exists() or path.stat().st_mode & 0o077 == 0
    database.close()


def test_a_key_made_by_another_process_opens_and_a_deleted_one_does_not(tmp_path: Path) -> None:
    mine, other = Database.open(tmp_path), Database.open(tmp_path)
    running, command = Keys(mine, reload_s=0), Keys(other)
    record, raw = command.create("by the command line")
    assert running.authenticate(raw) is not None
    running.delete(record.tenant, record.id)
    assert running.authenticate(raw) is None
    with pytest.raises(TalonError):
        running.delete(record.tenant, record.id)
    assert raw.encode() not in (tmp_path / "talon.db").read_bytes()
    mine.close()
    other.close()
