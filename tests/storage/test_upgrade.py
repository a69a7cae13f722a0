"""A database is brought up whole or not at all, and one whose guards are gone is refused."""

import hashlib
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import inspect, text
from sqlalchemy.dialects import postgresql, sqlite

import fedbourse.storage
from fedbourse.errors import FedbourseError, InvalidInput
from fedbourse.storage import SqlStore
from fedbourse.storage.engine import open_database
from fedbourse.storage.guards import missing, required
from fedbourse.storage.schema import metadata
from fedbourse.storage.upgrade import statements, upgrade
from fedbourse.testing.databases import fresh_url
from storage.records import ACME, TASK, a_task, check_books, deposit, with_task
from storage.test_together import all_at_once

VERSION = """
from alembic import op
revision, down_revision = "1004", "1003"
def upgrade():
    op.execute("CREATE TABLE novelty (a INTEGER)")
    op.execute("INSERT INTO novelty VALUES (1)")
    op.execute("ALTER TABLE tasks ADD COLUMN novelty INTEGER")
    {last}
"""


@contextmanager
def engine_of(url: str):
    database = open_database(url, wait_s=5, connections=2)
    try:
        yield database.writer
    finally:
        database.writer.dispose()


@pytest.fixture
def history(tmp_path: Path):
    """A copy of the migrations to which a test adds its own."""
    folder = tmp_path / "migrations"
    source = Path(fedbourse.storage.__file__).parent / "migrations"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def add(last: str) -> str:
        (folder / "versions" / "1004_next.py").write_text(VERSION.format(last=last))
        return str(folder)

    return add


def shape(connection) -> dict[str, object]:
    """Return everything that the catalogue says of our tables, triggers and functions."""
    if connection.dialect.name == "sqlite":
        rows = connection.execute(text("SELECT name, sql FROM sqlite_master")).all()
        catalogue = {name: " ".join((sql or "").split()) for name, sql in rows}
    else:
        queries = (
            "SELECT 'column ' || table_name || '.' || column_name, concat_ws(' ', data_type,"
            " is_nullable, collation_name, is_identity, ordinal_position)"
            " FROM information_schema.columns WHERE table_schema = 'public'",
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = 'public'::regnamespace",
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
            "SELECT 'trigger ' || tgname, pg_get_triggerdef(oid) FROM pg_trigger"
            " WHERE NOT tgisinternal",
            "SELECT 'function ' || proname, prosrc FROM pg_proc"
            " WHERE pronamespace = 'public'::regnamespace",
        )
        catalogue = {
            name: what for query in queries for name, what in connection.execute(text(query))
        }
    return {name: what for name, what in catalogue.items() if "fedbourse_version" not in name}


def test_the_history_leads_to_the_schema(empty_database_url: str, database_url: str) -> None:
    with engine_of(database_url) as upgraded, upgraded.connect() as connection:
        led_to = shape(connection)
    with engine_of(empty_database_url) as fresh, fresh.begin() as connection:
        for statement in statements(fresh.dialect):
            connection.exec_driver_sql(statement)
        assert shape(connection) == led_to
        assert missing(connection) == []
    assert len(led_to) > len(metadata.tables)


FIRST = {
    "sqlite": "0a67bd0b968ddfb3",
    "postgresql": "875d6fecfd85bb6a",
}


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=list(FIRST))
def test_tables_change_only_with_their_version(dialect) -> None:
    """Before the first release give ``1003_first`` another number; after it, write a migration."""
    lines = (" ".join(statement.split()) for statement in statements(dialect))
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == FIRST[dialect.name]


def test_an_old_database_is_brought_up_with_its_records(store: SqlStore, database_url, history):
    with_task(store)
    deposit(store, ACME, 5)
    with engine_of(database_url) as engine:
        for _ in range(2):
            upgrade(engine, script=history("pass"))
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT count(*) FROM novelty")) == 1
            assert connection.scalar(text("SELECT version_num FROM fedbourse_version")) == "1004"
            assert missing(connection) == []
    assert check_books(store) == {ACME: 5, "outside": -5}
    with store.read() as tx:
        assert tx._connection.scalar(text("SELECT id FROM tasks")) == TASK


@pytest.mark.parametrize("version", ["0001", "0002", "1000"])
def test_a_database_from_before_the_first_release_is_refused_in_one_sentence(
    empty_database_url: str, version: str
) -> None:
    with engine_of(empty_database_url) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE fedbourse_version (version_num VARCHAR(32))"))
            connection.execute(text(f"INSERT INTO fedbourse_version VALUES ('{version}')"))
            connection.execute(text("CREATE TABLE plans (budget INTEGER)"))
        with pytest.raises(InvalidInput) as refusal:
            SqlStore(empty_database_url)
        with engine.connect() as connection:  # nothing was changed
            tables = set(inspect(connection).get_table_names())
    sentence = str(refusal.value)
    assert f"before the first release of fedbourse (version {version})" in sentence
    assert sentence.endswith("give the market a new database")
    assert "\n" not in sentence
    assert tables == {"fedbourse_version", "plans"}


FAILURES = ['op.execute("SELECT nothing FROM nowhere")', "raise ZeroDivisionError", "DROPS"]
DROP = {
    "sqlite": 'op.execute("DROP TRIGGER transfers_no_delete")',
    "postgresql": 'op.execute("DROP TRIGGER transfers_no_delete ON transfers")',
}


@pytest.mark.parametrize("last", FAILURES)
@pytest.mark.parametrize("start", ["empty", "old"])
def test_a_failed_migration_leaves_nothing(
    kind: str, start: str, last: str, request: pytest.FixtureRequest, history
) -> None:
    url = request.getfixturevalue("empty_database_url" if start == "empty" else "database_url")
    script = history(DROP[kind] if last == "DROPS" else last)
    with engine_of(url) as engine:
        with engine.connect() as connection:
            before = shape(connection)
        with pytest.raises((FedbourseError, ZeroDivisionError)):
            upgrade(engine, script=script)
        with engine.connect() as connection:
            assert shape(connection) == before
            tables = set(inspect(connection).get_table_names())
    assert ("fedbourse_version" in tables) == (start == "old")
    SqlStore(url).close()


@pytest.mark.slow
def test_each_guard_that_is_gone_is_named(database_url: str, kind: str) -> None:
    with engine_of(database_url) as engine, engine.connect() as connection:
        names = [name for name in required(kind) if name.split()[0] in ("trigger", "index")]
        if kind == "postgresql":
            names += [name for name in required(kind) if name.startswith(("check", "unique"))]
            names += [name for name in required(kind) if name.startswith("foreign key")]
        assert len(names) > 15
        for name in names:
            with connection.begin() as transaction:
                connection.exec_driver_sql(drop_statement(connection, kind, name))
                assert missing(connection) == [name]
                transaction.rollback()
        with connection.begin():
            assert missing(connection) == []


def drop_statement(connection, kind: str, name: str) -> str:
    what, name = name.rsplit(" ", 1)
    if what == "index" or kind == "sqlite":
        return f"DROP {what} {name}"
    if what == "trigger":
        return f"DROP TRIGGER {name} ON {table_in(name)}"
    return f"ALTER TABLE {table_in(name.partition('_')[2])} DROP CONSTRAINT {name}"


def table_in(name: str) -> str:
    """Return the table that the name of a guard begins with."""
    return max((table for table in metadata.tables if name.startswith(f"{table}_")), key=len)


# What is named, and the statements that take it away or make it harmless.
SPOILED = {
    "sqlite": [
        ("trigger transfers_no_delete", ["DROP TRIGGER transfers_no_delete"]),
        (
            "trigger transfers_move",
            [
                "DROP TRIGGER transfers_move",
                "CREATE TRIGGER transfers_move AFTER INSERT ON transfers BEGIN SELECT 1; END",
            ],
        ),
        (
            # What a batch migration does to a table without being asked.
            "check ck_accounts_overdraft, check ck_accounts_range",
            [
                "CREATE TABLE other (id TEXT NOT NULL, balance BIGINT NOT NULL,"
                " CONSTRAINT pk_accounts PRIMARY KEY (id)) WITHOUT ROWID",
                "DROP TABLE accounts",
                "PRAGMA legacy_alter_table = ON",
                "ALTER TABLE other RENAME TO accounts",
            ],
        ),
        ("index ix_nonces_expires_ms, primary key pk_nonces, table nonces", ["DROP TABLE nonces"]),
    ],
    "postgresql": [
        ("trigger transfers_no_delete", ["DROP TRIGGER transfers_no_delete ON transfers"]),
        ("trigger events_no_update", ["ALTER TABLE events DISABLE TRIGGER events_no_update"]),
        (
            "trigger transfers_move",
            [
                "CREATE OR REPLACE FUNCTION transfers_move() RETURNS trigger LANGUAGE plpgsql"
                " AS 'BEGIN RETURN NULL; END'"
            ],
        ),
        (
            "check ck_accounts_overdraft",
            [
                "ALTER TABLE accounts DROP CONSTRAINT ck_accounts_overdraft",
                "ALTER TABLE accounts ADD CONSTRAINT ck_accounts_overdraft"
                " CHECK (balance >= 0 OR id = 'outside') NOT VALID",
            ],
        ),
        ("index ix_nonces_expires_ms, primary key pk_nonces, table nonces", ["DROP TABLE nonces"]),
    ],
}


def test_a_store_refuses_to_start_without_its_guards(
    kind: str, request: pytest.FixtureRequest
) -> None:
    for gone, spoil in SPOILED[kind]:
        with fresh_url(kind, request) as url:
            with engine_of(url) as engine, engine.begin() as connection:
                for statement in spoil:
                    connection.exec_driver_sql(statement)
            with pytest.raises(FedbourseError, match=f"lacks what keeps its books right: {gone}"):
                SqlStore(url)


def test_a_newer_database_is_refused(database_url: str) -> None:
    with engine_of(database_url) as engine, engine.begin() as connection:
        connection.execute(text("UPDATE fedbourse_version SET version_num = '9999'"))
    with pytest.raises(FedbourseError, match="version '9999', newer than this fedbourse knows"):
        SqlStore(database_url)


def test_somebody_else_s_tables_are_left_alone(empty_database_url: str) -> None:
    with engine_of(empty_database_url) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE accounts (mine INTEGER)"))
        with pytest.raises(InvalidInput, match=r"tables that fedbourse did not make.*'accounts'"):
            SqlStore(empty_database_url)
        with engine.connect() as connection:
            assert inspect(connection).get_table_names() == ["accounts"]


def test_stores_that_start_together_make_the_tables_once(empty_database_url: str) -> None:
    def start(number: int) -> None:
        with SqlStore(empty_database_url) as store, store.begin() as tx:
            tx.add_task(a_task(f"{number:024x}"))

    all_at_once(4, start)
    with SqlStore(empty_database_url) as store, store.read() as tx:
        assert len(tx.tasks(limit=9)) == 4
