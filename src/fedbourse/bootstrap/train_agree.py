"""An owner agrees to a training, on its own machine and before any server asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbourse.agent.data import FileData, records_for
from fedbourse.bootstrap.flower_device import FlowerDevice
from fedbourse.bootstrap.train_job import Member
from fedbourse.bootstrap.train_recipe import Recipe
from fedbourse.errors import InvalidFile, InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from fedbourse.learning.records import Records


def agree_to(
    file: Path,
    folder: Path,
    owner: str,
    budget: float,
    *,
    data: str | None = None,
    separate_cap: bool = False,
    public_key: Path | None = None,
) -> dict[str, Any]:
    """Agree to the recipe of a file with the device of a folder; return the roster's line.

    Data that another folder guards is refused, unless a ``separate_cap`` is meant.
    """
    recipe = Recipe.read(file)
    member = Member(owner, budget, recipe.terms(budget).digest, _key(public_key))
    device = FlowerDevice(folder)
    name = data or device.folder.settings.data
    if name is None:
        raise InvalidInput(f"{folder} knows no data; name it with --data FILE[:LABEL_COLUMN]")
    device.folder.guard_data(name, separate_cap=separate_cap)

    def records() -> Records:
        # A recipe has all that is looked at of a card: layout, features, samples and classes.
        card: Any = recipe
        return records_for(card, FileData(name), secret=device.folder.records_secret)

    device.agree(recipe, budget, records, owner=owner)
    return member.document


def _key(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return " ".join(file.read_text(encoding="utf-8").split()[:2])
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidFile(f"{file} cannot be read: {reason}") from None
