"""The first tables, with the ledger's triggers: today's schema, until the first release freezes it.

From then on this file holds the SQL that ``statements`` returns, and each change is a version.
"""

from __future__ import annotations

from alembic import op

from fedbourse.storage.upgrade import statements

revision = "1003"
down_revision = None


def upgrade() -> None:
    """Make everything."""
    connection = op.get_bind()
    for statement in statements(connection.dialect):
        connection.exec_driver_sql(statement)
