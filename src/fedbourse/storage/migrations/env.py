"""What Alembic runs to upgrade a database; ``storage.upgrade`` hands it the connection."""

from __future__ import annotations

from alembic import context

VERSION_TABLE = "fedbourse_version"


def run() -> None:
    """Run the migrations inside the transaction that is open on the connection."""
    context.configure(
        connection=context.config.attributes["connection"],
        transactional_ddl=True,
        version_table=VERSION_TABLE,
    )
    context.run_migrations()


# Alembic imports this module under this name; anybody else wants no migration.
if __name__ == "env_py":
    run()
