"""What a served market needs of the machine: a folder, a port, a certificate."""

from __future__ import annotations

import os
import secrets
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbourse.app.configuration import DATABASE_FILE, MarketSettings
from fedbourse.errors import CannotWrite, Conflict, InvalidFile, InvalidInput, NotAllowed

_LOCK, _DEMO = "serve.lock", "demo.json"
_DEMO_TEXT = '{"demo": true, "say": "All in this folder is simulated, its money is play money."}\n'


def check_tls(settings: MarketSettings) -> None:
    """Refuse a certificate and a key that cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return
    for path in (settings.tls_cert, settings.tls_key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    try:
        # Without a passphrase of our own, the terminal would be asked for one.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        raise InvalidFile(
            f"{settings.tls_cert} and {settings.tls_key} must be a certificate and its key, in PEM "
            "and without a passphrase; they are not, or do not belong together"
        ) from None


def make_folder(folder: Path) -> None:
    """Make the market's folder, which only its user may change."""
    if folder == Path():
        raise InvalidInput("a market's folder needs a name; found an empty one")
    if "?" in str(folder):
        raise InvalidInput(
            f"a market's folder must not have a ? in its name; found {str(folder)!r:.80}"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        raise CannotWrite(f"the folder {folder} cannot be made: {error.strerror}") from None
    if mode & 0o022:
        raise InvalidFile(
            f"the folder {folder} can be changed by others, mode {mode:o}; make it 700"
        )


def check_kind(settings: MarketSettings) -> None:
    """Refuse simulated tasks in a real market, and a demonstration served as one."""
    folder, marker = settings.folder, settings.folder / _DEMO
    if marker.exists():
        if not settings.demo:
            raise Conflict(
                f"{folder} holds a demonstration, whose money is play money; serve it with --demo, "
                "or name another folder"
            )
    elif settings.demo:
        others = sorted(each.name for each in folder.iterdir() if each.name != _LOCK)
        if (folder / DATABASE_FILE).exists() or (folder / "market.key").exists():
            raise Conflict(
                f"{folder} holds a real market, which is never filled with simulated tasks; name "
                "another folder"
            )
        if others:
            raise CannotWrite(f"{folder} must be a new or empty folder; it holds {others[0]!r:.80}")
        write_private(marker, _DEMO_TEXT)


@contextmanager
def only_server(folder: Path) -> Iterator[None]:
    """Refuse a second server on one folder."""
    import fcntl

    try:
        number = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CannotWrite(f"{folder / _LOCK} cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"a market is being served from {folder} already; stop that one, or name another "
                "folder"
            ) from None
        yield
    finally:
        os.close(number)


@contextmanager
def listening(settings: MarketSettings) -> Iterator[socket.socket]:
    """Listen on the port."""
    where = f"port {settings.port} of {settings.host}"
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, number)
    except (OSError, UnicodeError) as error:
        raise InvalidInput(
            f"{settings.host!r:.80} is not an address of this machine: {error}"
        ) from None
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)  # with SO_REUSEADDR a second server on the port fails here
        except PermissionError:
            raise NotAllowed(f"this user may not listen on {where}; try one above 1023") from None
        except OSError as error:
            raise Conflict(
                f"{where} cannot be listened on: {error.strerror}; name another one"
            ) from None
        yield listener


def write_private(path: Path, text: str) -> None:
    """Write a file that only its user may read, atomically."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
