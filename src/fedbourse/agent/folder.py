"""A device's folder: who it is, what its privacy is worth, and what it must never exceed.

``device.json`` holds the settings, ``device.key`` the key, ``spend.db`` what was spent and earned.
Only its owner can read it. A copy of an old folder forgets what was spent since: never restore one.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from fedbourse.agent.data_registry import DataFile, DataRegistry
from fedbourse.agent.policy import Limits
from fedbourse.agent.spend_store import SpendStore
from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput, NotFound
from fedbourse.units import number, whole_number
from fedbourse.wire.keys import SigningKey

NOISES = ("exact", "fast")
ANSWERS = ("float64", "float32")
_VERSION = 1
_SPEND = "spend.db"


@dataclass(frozen=True)
class DeviceSettings:
    """What an owner tells its device once."""

    value: float
    """nu: what a unit of rho is worth to the owner, in credits."""
    lifetime_cap: float
    """The most that may ever be spent, over all tasks and markets, in rho."""
    data: str | None = None
    """FILE[:LABEL_COLUMN]; None where an application brings its own data."""
    noise: Literal["exact", "fast"] = "exact"
    """exact: proven, some 17 microseconds a number; fast: ChaCha20, for models of a million."""
    answers: Literal["float64", "float32"] = "float64"
    """How answers are sent."""
    risk_rounds: int = 1
    """How many answers of a task may be without a receipt before the device stops answering."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Check every item once."""
        number("value", self.value, above=0)
        number("lifetime_cap", self.lifetime_cap, above=0)
        if self.data is not None and (not isinstance(self.data, str) or not self.data.strip()):
            raise InvalidInput(f"data must be the name of a file; found {self.data!r:.60}")
        for name, known in (("noise", NOISES), ("answers", ANSWERS)):
            if getattr(self, name) not in known:
                raise InvalidInput(
                    f"{name} must be one of {', '.join(known)}; found {getattr(self, name)!r:.60}"
                )
        whole_number("risk_rounds", self.risk_rounds, at_least=1)

    @classmethod
    def of(cls, document: dict[str, Any]) -> DeviceSettings:
        """Read settings from their document; unknown and missing items are named."""
        return cls(
            **_items(cls, document) | {"limits": Limits(**_items(Limits, document["limits"]))}
        )


class DeviceFolder:
    """A folder that was made by ``create``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the settings and the key."""
        self.path = Path(path)
        file = self.path / "device.json"
        try:
            document = json.loads(file.read_bytes())
            if document.pop("version") != _VERSION:
                raise ValueError("another version wrote it")
            self.settings = DeviceSettings.of(document)
        except FileNotFoundError:
            raise NotFound(
                f"{self.path} is no device's folder: it has no device.json; "
                "fedbourse device init makes one"
            ) from None
        except OSError as error:
            raise InvalidFile(f"{file} cannot be read: {error.strerror}") from None
        except (
            InvalidInput,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:
            raise InvalidFile(f"{file} is damaged: {error}") from None
        self.key = SigningKey.load(self.path / "device.key")

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        settings: DeviceSettings,
        *,
        separate_cap: bool = False,
    ) -> DeviceFolder:
        """Make a folder that only its owner can read, and remember which data it guards.

        Data that another folder guards is refused, unless ``separate_cap`` says that a second
        lifetime cap about the same records is meant. Where an application brings the data, no
        file is named, and nothing is remembered.
        """
        folder = Path(path)
        if (folder / "device.json").exists():
            raise CannotWrite(f"{folder} is a device's folder already; it is never overwritten")
        key_file = folder / "device.key"
        file = None if settings.data is None else DataFile.named(settings.data)
        if file is not None and not separate_cap:  # before anything is made
            begun = SigningKey.load(key_file).public if key_file.exists() else None
            DataRegistry().check(file, key=begun)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            strangers = [each.name for each in folder.iterdir() if not _was_begun(each.name)]
            if strangers:
                raise CannotWrite(
                    f"{folder} must be a new or an empty folder; it has {strangers[0]}"
                )
            if not key_file.exists():  # else this was begun before
                SigningKey.generate().save(key_file)
            if file is not None:
                key = SigningKey.load(key_file).public
                DataRegistry().add(file, folder=folder, key=key, separate_cap=separate_cap)
            SpendStore(folder / _SPEND).close()
            document = {"version": _VERSION, **asdict(settings)}
            draft = folder / "device.json.new"
            with os.fdopen(
                os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w"
            ) as out:
                out.write(json.dumps(document, indent=2) + "\n")
                out.flush()
                os.fsync(out.fileno())
            draft.replace(folder / "device.json")  # last: with it the folder counts
        except OSError as error:
            raise CannotWrite(f"{folder}: {error.strerror}") from None
        return cls(folder)

    def guard_data(self, name: str, *, separate_cap: bool = False) -> None:
        """Remember that this folder guards FILE[:LABEL_COLUMN]; refuse what another one guards."""
        DataRegistry().add(
            DataFile.named(name), folder=self.path, key=self.key.public, separate_cap=separate_cap
        )

    @property
    def spend_file(self) -> Path:
        """Where spend, deals and receipts lie."""
        return self.path / _SPEND

    def spend(self, *, read_only: bool = False) -> SpendStore:
        """Open spend, deals and receipts; a device that has lost them is not begun anew."""
        try:
            lost = not self.spend_file.stat().st_size
        except FileNotFoundError:
            lost = True
        except OSError as error:
            raise InvalidFile(f"{self.spend_file} cannot be read: {error.strerror}") from None
        if lost:
            raise InvalidFile(
                f"{self.spend_file} is missing or empty, and with it what this device has spent; "
                "put it back, or give the device up and make another one with a lower cap"
            )
        return SpendStore(self.spend_file, read_only=read_only)

    @property
    def records_secret(self) -> bytes:
        """What chooses the records that answers are computed from."""
        return self.key.derive("records").encode()


def _was_begun(name: str) -> bool:
    """Say whether a file is what a device leaves that was ended while it was made."""
    return name in ("device.key", "device.json.new") or name.startswith((".device.key.", _SPEND))


def _items(kind: type, document: Any) -> dict[str, Any]:
    known = {each.name for each in fields(kind)}
    if not isinstance(document, dict) or set(document) != known:
        raise InvalidInput(f"it must hold exactly {', '.join(sorted(known))}")
    return dict(document)
