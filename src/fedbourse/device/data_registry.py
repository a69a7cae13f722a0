"""Which data each device folder of this user guards, so that one person has one lifetime cap.

Two folders over the same records would be two caps about them, and nobody would notice. So the
registry, which lies in the user's state folder and outlives every device folder, remembers each
file that a folder guards, and refuses it to another folder unless a separate cap is meant.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbourse.errors import CannotWrite, Conflict, InvalidFile
from fedbourse.files.column_file import split_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STATE = "FEDBOURSE_STATE"
"""The variable that names another state folder."""
_FILE, _VERSION = "data-registry.json", 1
_PURPOSE = "it remembers which data your devices guard"


def state_folder() -> Path:
    """Return the folder for what belongs to this user and to no single device."""
    if folder := os.environ.get(STATE):
        return Path(folder).absolute()
    if os.path.isabs(xdg := os.environ.get("XDG_STATE_HOME", "")):
        return Path(xdg, "fedbourse")
    try:
        home = Path.home()
    except RuntimeError:
        raise CannotWrite(
            f"this user has no home folder, so there is no place to remember which data a device "
            f"guards; name a folder in {STATE}"
        ) from None
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "fedbourse"
    return home / ".local" / "state" / "fedbourse"


@dataclass(frozen=True)
class DataFile:
    """A file of records: where it lies, and what it held when a folder began to guard it."""

    path: str
    """Absolute, with every link followed."""
    device: int
    inode: int
    size_bytes: int
    sha256: str

    @classmethod
    def named(cls, name: str) -> DataFile:
        """Read the file of FILE[:LABEL_COLUMN]."""
        path, _ = split_spec(name)
        try:
            place = Path(path).resolve()
            facts = place.stat()
            if not stat.S_ISREG(facts.st_mode):  # a pipe would be waited for
                raise InvalidFile(f"{path} must be a plain file, so that a device can guard it")
            content = _digest(place)
        except (OSError, ValueError) as error:  # ValueError: a name with a null character
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidFile(f"{path} cannot be read: {reason}") from None
        return cls(str(place), facts.st_dev, facts.st_ino, facts.st_size, content)

    def likeness(self, other: DataFile) -> str | None:
        """Say how another file is the same data as this one was or is now; None if it is not.

        Inodes are used again, so one that was seen before counts only where the file that had it
        is gone. Where this file has changed since, a copy is compared with what it holds now.
        """
        if self.path == other.path:
            return "it is the same file"
        if (self.size_bytes, self.sha256) == (other.size_bytes, other.sha256):
            return f"it has the same content as {self.path}"
        try:
            facts = os.stat(self.path)
        except OSError:
            same_place = (self.device, self.inode) == (other.device, other.inode)
            return f"it is {self.path} under another name" if same_place else None
        if (facts.st_dev, facts.st_ino) == (other.device, other.inode):
            return f"it is a link to {self.path}"
        with suppress(OSError):  # what cannot be read now cannot be compared either
            if facts.st_size == other.size_bytes and _digest(Path(self.path)) == other.sha256:
                return f"it has the same content as {self.path}"
        return None


@dataclass(frozen=True)
class Guard:
    """One device folder, and a file that it guards."""

    folder: str
    key: str
    """The device's public key: a folder that is made anew at the same place is another one."""
    file: DataFile

    @property
    def is_there(self) -> bool:
        """Whether the folder still lies where it was made."""
        return Path(self.folder, "device.json").exists()

    @property
    def document(self) -> dict[str, Any]:
        """Return it as a plain document."""
        return {"folder": self.folder, "key": self.key, **asdict(self.file)}

    @classmethod
    def of(cls, document: dict[str, Any]) -> Guard:
        """Read it from its document."""
        kinds: dict[str, type] = dict.fromkeys(("folder", "key", "path", "sha256"), str)
        kinds |= dict.fromkeys(("device", "inode", "size_bytes"), int)
        if set(document) != set(kinds):
            raise ValueError(f"a guard must hold exactly {', '.join(sorted(kinds))}")
        for name, kind in kinds.items():
            if type(document[name]) is not kind:
                raise ValueError(f"{name} must be {kind.__name__}; found {document[name]!r:.60}")
        parts = {each.name: document[each.name] for each in fields(DataFile)}
        return cls(document["folder"], document["key"], DataFile(**parts))


class DataRegistry:
    """The files that this user's device folders guard."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = state_folder() if folder is None else folder
        self._file = self._folder / _FILE

    def check(self, file: DataFile, *, key: str | None) -> None:
        """Refuse a file that another device than that of ``key`` guards; it changes nothing."""
        _refuse_guarded(file, key, self.guards())

    def add(self, file: DataFile, *, folder: Path, key: str, separate_cap: bool) -> None:
        """Remember that a folder guards a file; refuse one that another device guards.

        ``separate_cap`` says that a second cap about the same records is meant.
        """
        with self._alone():
            guards = self.guards()
            if not separate_cap:
                _refuse_guarded(file, key, guards)
            guard = Guard(str(folder.resolve()), key, file)
            rest = [each for each in guards if (each.key, each.file.path) != (key, file.path)]
            self._write([*rest, guard])

    def guards(self) -> list[Guard]:
        """Return all that is remembered."""
        try:
            document = json.loads(self._file.read_bytes())
            if document["version"] != _VERSION:
                raise ValueError(f"version must be {_VERSION}; found {document['version']!r:.60}")
            return [Guard.of(each) for each in document["guards"]]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InvalidFile(
                f"{self._file} cannot be read: {error.strerror}; {_PURPOSE}"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidFile(
                f"{self._file} is damaged: {error}; {_PURPOSE}: put back a copy, or delete it, "
                "and what it remembered is refused no more"
            ) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes of this user from changing the registry."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(
                self._file.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, guards: Sequence[Guard]) -> None:
        document = {"version": _VERSION, "guards": [each.document for each in guards]}
        try:
            write_private(self._file, json.dumps(document, indent=2) + "\n")
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> CannotWrite:
        return CannotWrite(
            f"{self._file} cannot be written: {error.strerror}; {_PURPOSE}: make its folder yours, "
            f"or name another one in {STATE}"
        )


def _refuse_guarded(file: DataFile, key: str | None, guards: Sequence[Guard]) -> None:
    likenesses = [(guard, guard.file.likeness(file)) for guard in guards]
    same = [(guard, likeness) for guard, likeness in likenesses if likeness is not None]
    if not same or any(guard.key == key for guard, _ in same):
        return
    # One that can still be used is the one to name.
    guard, likeness = max(same, key=lambda each: each[0].is_there)
    remedy = "use that folder"
    if not guard.is_there:
        remedy = "that folder was moved or deleted, and its record of spend with it: put it back"
    raise Conflict(
        f"{file.path} is already guarded by the device folder {guard.folder} ({likeness}), and a "
        f"second folder would be a second lifetime cap about the same records; {remedy}, or say "
        "--separate-cap (separate_cap=True) if a cap of its own is meant"
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_private(file: Path, text: str) -> None:
    """Write a file for its user alone, wholly or not at all; it is on disk when this returns."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    number = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(number, "w", encoding="ascii") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
