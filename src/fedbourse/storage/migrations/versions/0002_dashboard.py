"""Owners who have withdrawn from a task, ended sessions, an owner's tasks by index."""

from __future__ import annotations

from alembic import op

from fedbourse.storage.migrations.statements import statements

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add tables and indexes; no row that is there changes."""
    connection = op.get_bind()
    for statement in statements("0002_dashboard", connection.dialect.name):
        connection.exec_driver_sql(statement)
