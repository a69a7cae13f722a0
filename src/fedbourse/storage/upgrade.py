"""Bring a database up to this code's tables, and refuse one whose guards are not all in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable

from fedbourse.errors import FedbourseError, InvalidInput
from fedbourse.storage.engine import READS
from fedbourse.storage.golden import missing
from fedbourse.storage.migrations.env import VERSION_TABLE
from fedbourse.storage.schema import metadata
from fedbourse.storage.triggers import create_statements, triggers

if TYPE_CHECKING:
    from sqlalchemy import Connection

_MIGRATIONS = "fedbourse.storage:migrations"
_BEFORE_THE_FIRST_RELEASE = ("0001", "0002")
_ONE_AT_A_TIME = 0x66656462  # any number that nobody else locks


def upgrade(engine: Engine, *, place: str = "the database", script: str = _MIGRATIONS) -> None:
    """Bring a database of any earlier version up, all or nothing, and check that it is whole."""
    scripts = ScriptDirectory.from_config(_config(script))
    # Looking takes no lock, so that a store can start while another one writes.
    with engine.execution_options(**{READS: True}).connect() as connection:
        current = _version(connection, scripts, place)
        if current == scripts.get_current_head():
            _refuse_missing(connection, place)
            return
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})"))
            _refuse_encoding(connection, place)
        # Another process may have been faster.
        if _version(connection, scripts, place) != scripts.get_current_head():
            config = _config(script)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        _refuse_missing(connection, place)


def statements(engine: Engine) -> list[str]:
    """Return what makes today's tables from nothing: the model for the next migration."""
    dialect = engine.dialect
    found: list[str] = []
    for table in metadata.sorted_tables:
        found.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        found += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    for trigger in triggers(dialect.name):
        found += create_statements(trigger, dialect.name)
    return [statement.strip() for statement in found]


def _config(script: str) -> Config:
    config = Config()
    config.set_main_option("script_location", script.replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    return config


def _version(connection: Connection, scripts: ScriptDirectory, place: str) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    current = context.get_current_revision()
    known = [revision.revision for revision in scripts.walk_revisions()]
    if current in _BEFORE_THE_FIRST_RELEASE:
        raise InvalidInput(
            f"{place} was made before the first release of fedbourse (version {current}), and its "
            "tasks cannot be read any more; give the market a new database"
        )
    if current is not None and current not in known:
        raise FedbourseError(
            f"{place} is at version {current!r:.40}, newer than this fedbourse knows "
            f"({known[0]}); install a newer fedbourse"
        )
    if current is None:
        ours = metadata.tables.keys() & set(inspect(connection).get_table_names())
        if ours:
            raise InvalidInput(
                f"{place} holds tables that fedbourse did not make, such as {min(ours)!r}; "
                "give the market a database of its own"
            )
    return current


def _refuse_missing(connection: Connection, place: str) -> None:
    gone = missing(connection)
    if gone:
        raise FedbourseError(
            f"{place} lacks what keeps its books right: {', '.join(gone[:5])}"
            + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
            + "; restore it from a backup"
        )


def _refuse_encoding(connection: Connection, place: str) -> None:
    encoding = connection.scalar(text("SELECT current_setting('server_encoding')"))
    if encoding != "UTF8":
        raise InvalidInput(f"{place} must be encoded as UTF8; found {encoding}")
