"""The first tables, with the ledger's triggers."""

from __future__ import annotations

from alembic import op

from fedbourse.storage.migrations.statements import statements

revision = "1000"
down_revision = None


def upgrade() -> None:
    """Make everything."""
    connection = op.get_bind()
    for statement in statements("1000_first", connection.dialect.name):
        connection.exec_driver_sql(statement)
