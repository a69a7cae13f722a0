"""A device's folder, which only its owner can read.

``device.json`` holds the settings, ``device.key`` the key, ``spend.db`` what was spent and earned.
An old copy has forgotten what was spent since: never restore one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.device.data_registry import DataFile, DataRegistry, write_private
from fedbourse.device.policy import Limits
from fedbourse.device.spend_store import SpendStore
from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput, NotFound
from fedbourse.protocol.keys import SigningKey
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    import os

UPDATE_FORMATS = ("float64", "float32")
_VERSION = 3  # of device.json; names and the choice of noise went before the first release
_SPEND = "spend.db"


@dataclass(frozen=True)
class DeviceSettings:
    """The settings of an owner's device."""

    value: float
    """nu: what a unit of rho is worth to the owner, in credits."""
    lifetime_cap: float
    """The most that may ever be spent, over all tasks and markets, in rho."""
    data: str | None = None
    """FILE[:LABEL_COLUMN]; None where an application brings its own data."""
    update_format: Literal["float64", "float32"] = "float64"
    """How updates are sent."""
    max_unpaid_rounds: int = 1
    """How many updates of a task may be without a receipt before the device stops sending them."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        number("value", self.value, above=0)
        number("lifetime_cap", self.lifetime_cap, above=0)
        if self.data is not None and (not isinstance(self.data, str) or not self.data.strip()):
            raise InvalidInput(f"data must be the name of a file; found {self.data!r:.60}")
        if self.update_format not in UPDATE_FORMATS:
            raise InvalidInput(
                f"update_format must be one of {', '.join(UPDATE_FORMATS)}; "
                f"found {self.update_format!r:.60}"
            )
        whole_number("max_unpaid_rounds", self.max_unpaid_rounds, at_least=1)

    @classmethod
    def of(cls, document: dict[str, Any]) -> DeviceSettings:
        """Read settings from their document; unknown and missing items are named."""
        return cls(
            **_items(cls, document) | {"limits": Limits(**_items(Limits, document["limits"]))}
        )


class DeviceFolder:
    """A folder that was made by ``create``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        file = self.path / "device.json"
        try:
            document = json.loads(file.read_bytes())
            version = document.pop("version")
            if version != _VERSION:
                raise InvalidFile(
                    f"{self.path} was made by another version of fedbourse (format "
                    f"{version!r:.20}, expected {_VERSION}); make a new device folder with "
                    "fedbourse device init"
                )
            self.settings = DeviceSettings.of(document)
        except InvalidFile:
            raise
        except FileNotFoundError:
            raise NotFound(
                f"{self.path} is not a device's folder: it has no device.json; "
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
        lifetime cap about the same records is meant. An application's own data is not registered.
        """
        folder = Path(path)
        if (folder / "device.json").exists():
            raise CannotWrite(f"{folder} is already a device's folder; it is never overwritten")
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
            # Last: with it the folder counts.
            write_private(folder / "device.json", json.dumps(document, indent=2) + "\n")
        except OSError as error:
            raise CannotWrite(f"{folder}: {error.strerror}") from None
        return cls(folder)

    def guard_data(self, name: str, *, separate_cap: bool = False) -> None:
        """Register that this folder guards FILE[:LABEL_COLUMN]; refuse what another one guards."""
        DataRegistry().add(
            DataFile.named(name), folder=self.path, key=self.key.public, separate_cap=separate_cap
        )

    @property
    def spend_file(self) -> Path:
        """Where spend, deals and receipts lie."""
        return self.path / _SPEND

    def spend(self, *, read_only: bool = False) -> SpendStore:
        """Open spend, deals and receipts; a device that has lost them is not started anew."""
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
        """The secret that chooses the records that updates are computed from."""
        return self.key.derive("records").encode()


def _was_begun(name: str) -> bool:
    """Say whether a file is left over from a device that was ended while it was made."""
    return name == "device.key" or name.startswith((".device.key.", ".device.json.", _SPEND))


def _items(kind: type, document: Any) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    if not isinstance(document, dict) or set(document) != names:
        raise InvalidInput(f"it must hold exactly {', '.join(sorted(names))}")
    return dict(document)
