"""What is written is read back, and the migrations make the tables that the code names."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from talon_server.model.network import Action, Mode, NetworkPolicy, Rule
from talon_server.model.sandbox import Recording, Resources, Sandbox, SandboxSpec, State, VolumeMount
from talon_server.store.database import Database
from talon_server.store.sandboxes import SandboxStore
from talon_server.store.tables import metadata

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SPEC = SandboxSpec(
    image="base",
    resources=Resources(1.5, 1 << 28, 1 << 30, 100),
    env={"A": "ä"},
    entrypoint=("sh", "-c", "true"),
    network=NetworkPolicy(Mode.ALLOWLIST, (Rule(Action.ALLOW, "*.example.com", ((80, 90),), "tcp"),), Action.DENY),
    volumes=(VolumeMount("/data", name="v", read_only=True),),
    recording=Recording("terminals", True, False),
    lifecycle={"pre_start": {"command": ["true"]}},
)
SANDBOX = Sandbox(
    id="sbx_1", name="n", tenant="t", spec=SPEC, state=State.RUNNING, token="x", created_at=NOW, image_id="img",
    labels={"a": "b"}, started_at=NOW, expires_at=NOW, ttl_s=60.0, ip="10.0.0.2", pooled=True,
    timings_ms={"total_ms": 4.2}, key_id="key_1", idempotency="k",
)  # fmt: skip


def test_migrations_make_the_tables(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    database.migrate()
    with database.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()


def test_a_sandbox_is_read_as_it_was_written(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    store = SandboxStore(database)
    store.add(SANDBOX)
    assert store.get("sbx_1") == SANDBOX
    assert store.living() == [SANDBOX]
    assert store.by_idempotency("t", "k") == SANDBOX
    ended = replace(SANDBOX, state=State.TERMINATED, ended_at=NOW, changed_at=NOW, reason="deleted")
    store.put(ended)
    database.close()

    database = Database.open(tmp_path)
    store = SandboxStore(database)
    assert store.get("sbx_1") == ended
    assert store.living() == []
    assert store.forget(NOW.timestamp() + 1) == 1
    assert store.get("sbx_1") is None
    database.close()
