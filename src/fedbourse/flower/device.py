"""A device on a Flower federation: what its owner agreed to lies in the device's own folder.

It is the folder that ``fedbourse device init`` makes, so one lifetime cap holds over all markets
and federations. A SuperNode starts a fresh process for every message and nothing is kept in memory:
the agreement, the records and the spend are on disk, the spend before any noise is drawn. Nobody
else's word counts: the terms are those that the owner agreed to in ``agree``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.device import DeviceFolder, SpendStore
from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput, NotFound, Refused
from fedbourse.flower.recipe import Recipe, read_json
from fedbourse.learning.device import Device
from fedbourse.learning.device_records import DeviceRecords
from fedbourse.learning.records import Records
from fedbourse.privacy.filter import Account, Filter
from fedbourse.privacy.noise import Noise, SimulatedNoise
from fedbourse.privacy.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEVICES = "FEDBOURSE_SIMULATED_DEVICES"
"""The variable that names the folder of all devices of a simulation."""

_AGREEMENT, _RECORDS = "agreement.json", "records.npz"


@dataclass(frozen=True)
class SeededNoise:
    """Noise from a seed, for simulated owners: it protects nobody.

    Only a training that makes its own owners writes it; no owner's agreement has it.
    """

    seed: int
    seat: int
    terms: tuple[Terms, ...]
    """Everybody's, as all of a round's noise is drawn together."""


class FlowerDevice:
    """One owner's device, and what it agreed to outside of any market."""

    def __init__(self, path: Path) -> None:
        try:
            self.folder = DeviceFolder(path)
        except NotFound as error:
            raise Refused("no-device", str(error)) from None

    def agree(
        self,
        recipe: Recipe,
        budget: float,
        records: Callable[[], DeviceRecords],
        *,
        owner: str,
        study: SeededNoise | None = None,
    ) -> Terms:
        """Reserve a budget under the lifetime cap, and keep the records that updates come from.

        ``owner`` is the name in the buyer's roster. Agreeing again to the same changes nothing.
        Whether an owner agrees tells nothing about ``records``, however few of them fit.
        """
        terms = recipe.terms(budget)
        place = self._place(recipe.task)
        plain = {
            "owner": owner,
            "recipe": recipe.document,
            "terms": asdict(terms),
            "study": None if study is None else asdict(study),
        }
        with closing(self.store()) as store:
            if (place / _AGREEMENT).exists():
                self.guard(store).agree(terms)
                if self._agreement(recipe.task) != json.loads(json.dumps(plain)):
                    raise InvalidInput(
                        f"{self.folder.path} agreed to this training as another owner, or with "
                        "other noise; that stays"
                    )
                return terms
            own = records()  # before the budget is reserved: their file may be gone
            self.guard(store).agree(terms)
            content = io.BytesIO()
            np.savez(
                content, features=own.records.features, labels=own.records.labels, fits=own.fits
            )
            _write(place / _RECORDS, content.getvalue())
            _write(place / _AGREEMENT, json.dumps(plain).encode())
        return terms

    def owner(self, task: str) -> str:
        """Return the name under which the owner agreed to a task."""
        return str(self._agreement(task)["owner"])

    def update(self, *, task: str, terms: str, round: int, model: bytes) -> bytes:
        """Return the update of a round, or refuse; whoever asks decides none of the rest."""
        agreement = self._agreement(task)
        agreed, recipe = Terms(**agreement["terms"]), Recipe.of(agreement["recipe"])
        noise, seat = self._noise(agreement["study"])
        with closing(self.store()) as store:
            device = Device(
                agreed,
                recipe.build(),
                lambda: self._records(recipe),
                self.guard(store),
                noise=noise,
                seat=seat,
            )
            return device.update(terms=terms, round=round, parameters=model)

    def accounts(self) -> list[Account]:
        """Return what was sold, and how much of it is spent."""
        with closing(self.store()) as store:
            return self.guard(store).accounts()

    def store(self) -> SpendStore:
        """Open the device's spend; one process alone has it."""
        return self.folder.spend()

    def guard(self, store: SpendStore) -> Filter:
        """Return the device's filter over its open spend."""
        return Filter(store, lifetime_cap=self.folder.settings.lifetime_cap)

    def _place(self, task: str) -> Path:
        name = hashlib.sha256(task.encode(errors="replace")).hexdigest()[:32]
        return self.folder.path / "flower" / name

    def _agreement(self, task: str) -> dict[str, Any]:
        file = self._place(task) / _AGREEMENT
        if not file.exists():
            raise Refused("unknown-task", f"no terms were agreed for task {task!r:.60}")
        document = read_json(file, "an agreement")
        if not isinstance(document, dict) or not {"owner", "recipe", "terms", "study"} <= set(
            document
        ):
            raise InvalidFile(f"{file} is damaged: it is not an agreement")
        return document

    def _noise(self, study: dict[str, Any] | None) -> tuple[Noise | None, int]:
        """Return a simulated owner's noise and seat; None stands for exact noise, a device's."""
        if study is None:
            return None, 0
        terms = [Terms(**each) for each in study["terms"]]
        return SimulatedNoise(terms, seed=study["seed"]), int(study["seat"])

    def _records(self, recipe: Recipe) -> DeviceRecords:
        file = self._place(recipe.task) / _RECORDS
        try:
            with file.open("rb") as f, np.load(f, allow_pickle=False) as stored:
                records = Records(stored["features"], stored["labels"], recipe.classes)
                return DeviceRecords(records, stored["fits"], recipe.samples)
        except Exception as error:  # a damaged archive fails in every way that there is
            raise InvalidFile(f"{file} holds no records, or is damaged: {error}") from None


def _write(file: Path, content: bytes) -> None:
    """Write a file that its owner alone may read, whole or not at all."""
    fresh = file.with_name(file.name + ".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        fresh.replace(file)
    except OSError as error:
        raise CannotWrite(f"{file}: {error.strerror}") from None
