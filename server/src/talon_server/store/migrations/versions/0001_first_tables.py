"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("image_id", sa.String, nullable=False),
        sa.Column("token", sa.String, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float),
        sa.Column("expires_at", sa.Float),
        sa.Column("ended_at", sa.Float),
        sa.Column("changed_at", sa.Float),
        sa.Column("ttl_s", sa.Float),
        sa.Column("ip", sa.String, nullable=False),
        sa.Column("pooled", sa.Integer, nullable=False),
        sa.Column("timings_ms", sa.Text, nullable=False),
        sa.Column("key_id", sa.String, nullable=False),
        sa.Column("idempotency", sa.String, nullable=False),
    )
    op.create_index("sandboxes_by_end", "sandboxes", ["ended_at"])
    op.create_index("sandboxes_by_creation", "sandboxes", ["tenant", "created_at", "id"])
    op.create_table(
        "keys",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("hash", sa.String, nullable=False, unique=True),
        sa.Column("admin", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("last_used_at", sa.Float),
    )
    op.create_table(
        "snapshots",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("sandbox_id", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "pools",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "recordings",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("sandbox_id", sa.String, nullable=False),
        sa.Column("sandbox_name", sa.String, nullable=False),
        sa.Column("mode", sa.String, nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("closed_at", sa.Float),
        sa.Column("records", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("held", sa.Integer, nullable=False),
    )
    op.create_index("recordings_by_start", "recordings", ["tenant", "started_at"])


def downgrade() -> None:
    op.drop_table("recordings")
    op.drop_table("pools")
    op.drop_table("snapshots")
    op.drop_table("keys")
    op.drop_table("sandboxes")
