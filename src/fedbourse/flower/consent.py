"""An owner agrees to a training, on its own machine and before any server asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.device.data import DataCheck, FileData, check_data, device_records
from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.flower.device import FlowerDevice
from fedbourse.flower.job import Member
from fedbourse.flower.recipe import Recipe

if TYPE_CHECKING:
    from pathlib import Path

    from fedbourse.learning.device_records import DeviceRecords


@dataclass(frozen=True)
class Agreed:
    """What an owner has agreed to."""

    member: Member
    """The owner's entry in the buyer's roster, which tells nothing about its records."""
    check: DataCheck | None
    """How the records fit, for the owner alone; None where it had agreed before."""


def agree_to(
    file: Path,
    folder: Path,
    owner: str,
    budget: float,
    *,
    data: str | None = None,
    separate_cap: bool = False,
    public_key: Path | None = None,
) -> Agreed:
    """Agree to the recipe of a file with the device of a folder.

    Data that another folder guards is refused, unless a ``separate_cap`` is meant.
    """
    recipe = Recipe.read(file)
    member = Member(owner, budget, recipe.terms(budget).digest, _key(public_key))
    device = FlowerDevice(folder)
    name = data or device.folder.settings.data
    if name is None:
        raise InvalidInput(f"{folder} has no data; name it with --data FILE[:LABEL_COLUMN]")
    device.folder.guard_data(name, separate_cap=separate_cap)
    source, checks = FileData(name), list[DataCheck]()

    def records() -> DeviceRecords:
        checks.append(check_data(recipe, source))
        return device_records(recipe, source, secret=device.folder.records_secret)

    device.agree(recipe, budget, records, owner=owner)
    return Agreed(member, checks[0] if checks else None)


def _key(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return " ".join(file.read_text(encoding="utf-8").split()[:2])
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidFile(f"{file} cannot be read: {reason}") from None
