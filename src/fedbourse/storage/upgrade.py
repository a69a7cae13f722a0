"""Upgrade a database to this code's tables, and refuse one whose guards are not all in place."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Dialect, Engine, inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable

from fedbourse.errors import FedbourseError, InvalidInput
from fedbourse.storage.engine import READS
from fedbourse.storage.guards import missing
from fedbourse.storage.migrations.env import VERSION_TABLE
from fedbourse.storage.schema import metadata
from fedbourse.storage.triggers import create_statements, triggers

_MIGRATIONS = "fedbourse.storage:migrations"
_BEFORE_THE_FIRST_RELEASE = ("0001", "0002", "1000")
_UPGRADE_LOCK = 0x66656462  # any number that nobody else locks


def upgrade(engine: Engine, *, place: str = "the database", script: str = _MIGRATIONS) -> None:
    """Upgrade a database of any earlier version, all or nothing, and check its guards."""
    scripts = ScriptDirectory.from_config(_config(script))
    # A check takes no lock, so that a store can start while another one writes.
    with engine.execution_options(**{READS: True}).connect() as connection:
        if _version(connection, scripts, place) == scripts.get_current_head():
            _refuse_missing(connection, place)
            return
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
            _refuse_encoding(connection, place)
        # Another process may have been faster.
        if _version(connection, scripts, place) != scripts.get_current_head():
            config = _config(script)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        _refuse_missing(connection, place)


def statements(dialect: Dialect) -> list[str]:
    """Return the SQL that creates today's tables and triggers."""
    ddl: list[str] = []
    for table in metadata.sorted_tables:
        ddl.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        ddl += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    for trigger in triggers(dialect.name):
        ddl += create_statements(trigger, dialect.name)
    return [statement.strip() for statement in ddl]


def _config(script: str) -> Config:
    config = Config()
    config.set_main_option("script_location", script.replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    return config


def _version(connection: Connection, scripts: ScriptDirectory, place: str) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    current = context.get_current_revision()
    versions = [revision.revision for revision in scripts.walk_revisions()]
    if current in _BEFORE_THE_FIRST_RELEASE:
        raise InvalidInput(
            f"{place} was made before the first release of fedbourse (version {current}), and its "
            "tasks can no longer be read; give the market a new database"
        )
    if current is not None and current not in versions:
        raise FedbourseError(
            f"{place} is at version {current!r:.40}, newer than this fedbourse knows "
            f"({versions[0]}); install a newer fedbourse"
        )
    if current is None:
        others = metadata.tables.keys() & set(inspect(connection).get_table_names())
        if others:
            raise InvalidInput(
                f"{place} holds tables that fedbourse did not make, such as {min(others)!r}; "
                "give the market a database of its own"
            )
    return current


def _refuse_missing(connection: Connection, place: str) -> None:
    guards = missing(connection)
    if guards:
        raise FedbourseError(
            f"{place} lacks what keeps its books right: {', '.join(guards[:5])}"
            + (f" and {len(guards) - 5} more" if len(guards) > 5 else "")
            + "; restore it from a backup"
        )


def _refuse_encoding(connection: Connection, place: str) -> None:
    encoding = connection.scalar(text("SELECT current_setting('server_encoding')"))
    if encoding != "UTF8":
        raise InvalidInput(f"{place} must be encoded as UTF8; found {encoding}")
