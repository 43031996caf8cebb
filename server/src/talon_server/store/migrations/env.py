"""Alembic's entry: runs the migrations on the connection that `store.database` hands in."""

from alembic import context

from talon_server.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
