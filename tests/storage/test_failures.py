"""Whatever is wrong with a database is said in one sentence, without a password."""

import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from fedbourse.errors import CannotWrite, FedbourseError, InvalidFile, InvalidInput, Unreachable
from fedbourse.storage import SqlStore
from fedbourse.storage.failures import explain
from storage.records import ACME, TASK, a_line, a_reply, deposit, with_task

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        f"mysql://u:{SECRET}@h/d",
        f"postgresql://u:{SECRET}@h:port/d",
        f"postgresql+asyncpg://u:{SECRET}@h/d",
        f"u:{SECRET}@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file.db?mode=memory",
        "sqlite://host/file.db",
    ],
)
def test_what_is_no_database_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="a database is sqlite:///FILE or") as refused:
        SqlStore(url)
    assert SECRET not in str(refused.value)


def test_a_wrong_option_is_refused(postgresql) -> None:
    url = postgresql.url() + f"&password={SECRET}&no_such_option={SECRET}"
    with pytest.raises(InvalidInput) as refused:
        SqlStore(url)
    assert SECRET not in str(refused.value)


def test_a_server_that_is_not_there_is_unreachable() -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:1/market?password={SECRET}"
    with pytest.raises(Unreachable, match=r"market at 127\.0\.0\.1:1 does not respond") as refused:
        SqlStore(url)
    assert SECRET not in str(refused.value)


def test_a_wrong_password_is_not_repeated(postgresql) -> None:
    postgresql.execute("DROP ROLE IF EXISTS guarded")
    postgresql.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    url = postgresql.url(user=f"guarded:{SECRET}")
    with pytest.raises(InvalidInput, match="refuses this user or password") as refused:
        SqlStore(url)
    assert SECRET not in str(refused.value)


def test_a_user_without_rights_cannot_write(postgresql) -> None:
    postgresql.execute("DROP ROLE IF EXISTS guarded")
    postgresql.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    with (
        postgresql.database() as url,
        pytest.raises(CannotWrite, match="too few rights"),
    ):
        SqlStore(url.replace("postgres@", "guarded:right@"))


def test_a_database_that_is_not_there_is_named(postgresql) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere at .* does not exist"):
        SqlStore(postgresql.url("nowhere"))


def test_a_folder_that_is_not_there_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="No such file or directory"):
        SqlStore(f"sqlite:///{tmp_path}/none/market.db")
    with pytest.raises(CannotWrite, match="cannot be opened"):
        SqlStore(f"sqlite:///{tmp_path}")


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n" * 500)
    with pytest.raises(InvalidFile, match="is not an SQLite database"):
        SqlStore(f"sqlite:///{file}")
    assert file.read_text() == "my notes\n" * 500


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "market.db"
    with SqlStore(f"sqlite:///{file}") as store:
        with_task(store)
        with store.begin() as tx:
            tx.add_allocations(a_line(f"owner:{n:05}") for n in range(5000))
    content = bytearray(file.read_bytes())
    content[len(content) // 2 :] = b"\xa5" * (len(content) - len(content) // 2)
    file.write_bytes(content)
    with (
        pytest.raises(Unreachable, match="is damaged; restore it from a backup"),
        SqlStore(f"sqlite:///{file}") as store,
        store.read() as tx,
    ):
        tx.allocations(TASK)


def test_a_full_disk_cannot_be_written_and_nothing_stays(tmp_path: Path) -> None:
    with SqlStore(f"sqlite:///{tmp_path}/market.db", connections=1) as store:
        with_task(store)
        with store.begin() as tx:  # there is one connection, which keeps this setting
            tx._connection.exec_driver_sql("PRAGMA max_page_count = 60")
        with pytest.raises(CannotWrite, match="no space left"), store.begin() as tx:
            tx.add_allocations(a_line(f"owner:{n:05}") for n in range(5000))
        with store.begin() as tx:
            tx._connection.exec_driver_sql("PRAGMA max_page_count = 100000")
            assert tx.allocations(TASK) == []
            tx.put_reply(a_reply("owner:ann"))


def test_an_sqlite_file_is_private(tmp_path: Path) -> None:
    with SqlStore(f"sqlite:///{tmp_path}/market.db") as store:
        deposit(store, ACME, 1)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"market.db": 0o600, "market.db-wal": 0o600, "market.db-shm": 0o600}


def test_an_sqlite_file_is_durable_and_checked(tmp_path: Path) -> None:
    with SqlStore(f"sqlite:///{tmp_path}/market.db") as store:
        for opened in (store.begin, store.read):
            with opened() as tx:
                columns = {
                    name: tx._connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                    for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
                }
            assert columns == {
                "journal_mode": "wal",
                "synchronous": 2,
                "foreign_keys": 1,
                "busy_timeout": 60_000,
            }


def test_a_second_store_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/market.db"
    with SqlStore(url) as first:
        deposit(first, ACME, 1)
        with first.begin():
            SqlStore(url, wait_s=0.1).close()
        # A process that found no lock would take itself for the last one, and tidy the log away.
        context = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1])"
        context += "; c.execute('SELECT * FROM tasks'); c.close()"
        subprocess.run([sys.executable, "-c", context, tmp_path / "market.db"], check=True)
        assert (tmp_path / "market.db-wal").exists()


@pytest.mark.slow
def test_sqlite_needs_no_driver_of_postgresql(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["psycopg"] = None
from fedbourse.errors import InvalidTransfer, MissingExtra
from fedbourse.ledger import Transfer
from fedbourse.storage import SqlStore
with SqlStore(sys.argv[1]) as store:
    try:
        with store.begin() as unit:
            unit._connection.exec_driver_sql("INSERT INTO accounts VALUES ('a', -1)")
    except InvalidTransfer:
        print("refused")
try:
    SqlStore("postgresql://u@h/d")
except MissingExtra as error:
    print(error)
"""
    url = f"sqlite:///{tmp_path}/market.db"
    said = subprocess.run(
        [sys.executable, "-c", script, url], check=True, capture_output=True, text=True
    ).stdout
    assert said.splitlines() == [
        "refused",
        "a market on PostgreSQL needs psycopg: pip install 'fedbourse[postgres]'",
    ]


def test_a_password_in_a_message_is_covered() -> None:
    error = psycopg.OperationalError(f"cannot log in with {SECRET}")
    sentence = str(explain(error, place="the database", secrets=("", SECRET)))
    assert sentence == "the database does not respond (cannot log in with ***)"


def test_postgresql_is_durable_though_the_cluster_is_not(postgresql) -> None:
    with postgresql.database(template="fedbourse_template") as url:
        name = url.split("/")[3].split("?")[0]
        for setting in ("synchronous_commit = off", "extra_float_digits = 0"):
            postgresql.execute(f"ALTER DATABASE {name} SET {setting}")
        with SqlStore(url) as store, store.begin() as tx:
            for setting, value in (
                ("synchronous_commit", "on"),
                ("extra_float_digits", "1"),
                ("transaction_isolation", "read committed"),
                ("lock_timeout", "1min"),
            ):
                shown = tx._connection.exec_driver_sql(f"SHOW {setting}").scalar()
                assert shown == value


def test_statements_that_make_no_sense_are_our_errors_too(store: SqlStore) -> None:
    with pytest.raises(FedbourseError, match="could not do this"), store.begin() as tx:
        tx._connection.exec_driver_sql("SELECT nothing FROM nowhere")


@pytest.mark.parametrize("text", ["\ud800", "a\ud800b"])
def test_text_that_is_no_text_is_refused(store: SqlStore, text: str) -> None:
    with pytest.raises(InvalidInput), store.begin() as tx:
        tx.remember_nonce("device", text, expires_ms=1)
