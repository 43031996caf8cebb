"""The tables. Alembic's migrations make them; this is how the code names their columns.

Times are Unix seconds (float); structured values are JSON text.
"""

from sqlalchemy import Column, Float, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("name", String, nullable=False),
    Column("state", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("spec", Text, nullable=False),
    Column("image_id", String, nullable=False),
    Column("token", String, nullable=False),
    Column("labels", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("expires_at", Float),
    Column("ended_at", Float),
    Column("changed_at", Float),
    Column("ttl_s", Float),
    Column("ip", String, nullable=False),
    Column("pooled", Integer, nullable=False),
    Column("timings_ms", Text, nullable=False),
    Column("key_id", String, nullable=False),
    Column("idempotency", String, nullable=False),
    Index("sandboxes_by_end", "ended_at"),
    Index("sandboxes_by_creation", "tenant", "created_at", "id"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("name", String, nullable=False),
    Column("hash", String, nullable=False, unique=True),
    Column("admin", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_used_at", Float),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("name", String, nullable=False),
    Column("sandbox_id", String, nullable=False),
    Column("state", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
)

pools = Table(
    "pools",
    metadata,
    Column("name", String, primary_key=True),
    Column("tenant", String, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

recordings = Table(
    "recordings",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("sandbox_id", String, nullable=False),
    Column("sandbox_name", String, nullable=False),
    Column("mode", String, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("records", Integer, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("held", Integer, nullable=False),
    Index("recordings_by_start", "tenant", "started_at"),
)
