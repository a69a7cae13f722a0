"""Owners who have withdrawn from a task."""

from __future__ import annotations

from alembic import op

from fedbourse.storage.migrations.statements import statements

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the table; nothing that is there changes."""
    connection = op.get_bind()
    for statement in statements("0002_withdrawals", connection.dialect.name):
        connection.exec_driver_sql(statement)
