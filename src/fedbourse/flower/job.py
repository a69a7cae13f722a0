"""What a training's server needs to know, as one document: recipe, roster, the buyer's data."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput
from fedbourse.flower.recipe import Recipe, read_json
from fedbourse.learning.checkpoint import Checkpoint
from fedbourse.learning.data import load
from fedbourse.learning.rounds import RoundResult, Run, train
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.engines.engine import Engine, Updates
    from fedbourse.learning.engines.flower import Seat
    from fedbourse.learning.records import Records
    from fedbourse.privacy.terms import Terms

CHECKPOINT, MODEL = "checkpoint.npz", "model.npz"
APP_FOLDER = Path(__file__).parent / "flower-app"
"""The Flower app: what ``flwr run`` takes."""
PREFIX = "fedbourse: "
"""What each line of ours begins with, in the log of a Flower run."""


@dataclass(frozen=True)
class Member:
    """One entry of a roster: what an owner printed when it agreed."""

    owner: str
    budget: float
    terms: str
    """The digest of the terms that its device keeps."""
    public_key: str | None = None
    """Of its SuperNode, as in the file that was registered; None where the federation has none."""

    def __post_init__(self) -> None:
        if not isinstance(self.owner, str) or not self.owner.strip() or len(self.owner) > 200:
            raise InvalidInput(f"an owner's name is 1 to 200 characters; found {self.owner!r:.60}")
        number(f"the budget of {self.owner}", self.budget, above=0)
        if not isinstance(self.terms, str):
            raise InvalidInput(f"the terms of {self.owner} must be a digest; found none")
        key_bytes(self.public_key)

    @classmethod
    def of(cls, document: object) -> Member:
        """Read an entry."""
        items = [field.name for field in fields(cls)]
        if not isinstance(document, dict) or not set(items[:3]) <= set(document) <= set(items):
            raise InvalidFile(
                f"an entry of a roster is an object with {', '.join(items)}; found {document!r:.80}"
            )
        return cls(**document)


def key_bytes(public_key: object) -> bytes | None:
    """Return a public key in OpenSSH's spelling as Flower keeps it; None where there is none."""
    if public_key is None:
        return None
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_ssh_public_key,
    )

    try:
        key = load_ssh_public_key(str(public_key).encode())
    except Exception:  # whatever the library finds wrong with it
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        raise InvalidInput(
            f"a node's key must be as ssh-keygen -t ecdsa writes it; found {public_key!r:.60}"
        )
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_roster(file: Path) -> list[Member]:
    """Read a roster: a JSON list of entries, or one entry a line."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidFile(f"{file} cannot be read: {reason}") from None
    try:
        entries = json.loads(text if text.startswith("[") else f"[{','.join(text.splitlines())}]")
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{file} must hold JSON, an entry a line: {error}") from None
    return [Member.of(entry) for entry in entries]


@dataclass(frozen=True)
class Job:
    """A training as its server reads it."""

    recipe: Recipe
    roster: tuple[Member, ...]
    data: str
    """The buyer's own records, by name; they evaluate the model."""
    seed: int
    """Which records are the buyer's own."""
    folder: str
    """Where checkpoint and model go, on the server's machine; "" for nowhere."""
    round_s: float = 60.0
    join_s: float = 60.0

    def __post_init__(self) -> None:
        whole_number("seed", self.seed, at_least=0)
        for name in ("round_s", "join_s"):
            number(name, getattr(self, name), above=0, at_most=86400)
        if not self.roster:
            raise InvalidInput("a roster needs at least one owner; found none")
        for member, terms in zip(self.roster, self.terms, strict=True):
            if terms.digest != member.terms:
                raise InvalidInput(
                    f"{member.owner} agreed to other terms, {member.terms[:12]}..., than the "
                    f"{terms.digest[:12]}... of this recipe; give the options that its recipe was "
                    "written with"
                )

    @cached_property
    def terms(self) -> list[Terms]:
        """Return every owner's terms."""
        return [self.recipe.terms(member.budget) for member in self.roster]

    @property
    def seats(self) -> list[Seat]:
        """Return the roster as the flower engine takes it."""
        from fedbourse.learning.engines.flower import Seat

        return [
            Seat(member.owner, terms, key_bytes(member.public_key))
            for member, terms in zip(self.roster, self.terms, strict=True)
        ]

    @property
    def document(self) -> dict[str, Any]:
        """Return the job as a plain document."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        roster = [asdict(member) for member in self.roster]
        return plain | {"recipe": self.recipe.document, "roster": roster}

    @classmethod
    def of(cls, document: object) -> Job:
        """Read a job from its document."""
        items = {field.name for field in fields(cls)}
        required = items - {"round_s", "join_s"}
        if not isinstance(document, dict) or not required <= set(document) <= items:
            raise InvalidInput(f"a job is an object with {', '.join(sorted(items))}")
        roster = tuple(Member.of(entry) for entry in document["roster"])
        return cls(**{**document, "recipe": Recipe.of(document["recipe"]), "roster": roster})

    @classmethod
    def read(cls, text: str) -> Job:
        """Read a job from a text: JSON, or the path of a file that holds it."""
        if not text:
            raise InvalidInput("the run's configuration names no job; fedbourse train writes one")
        if not text.startswith("{"):
            return cls.of(read_json(Path(text), "a job"))
        try:
            return cls.of(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"a job must be JSON: {error}") from None

    def train(
        self,
        engine: Engine,
        *,
        validation: Records | None = None,
        on_line: Callable[[dict[str, Any]], None],
    ) -> Run:
        """Train on an engine; with a folder, go on where it stopped, and keep the model.

        ``on_line`` hears a document for each round, and one for the end.
        """
        recipe, last = self.recipe, time.monotonic()

        def on_round(result: RoundResult, updates: Updates) -> None:
            nonlocal last
            before, last = last, time.monotonic()
            on_line(self._round_line(result, updates, seconds=last - before))

        if self.folder:
            make_folder(Path(self.folder))  # before anybody is asked and spends for nothing
        run = train(
            engine,
            recipe.build(),
            load(self.data, seed=self.seed).buyer if validation is None else validation,
            step_size=recipe.step_size,
            rounds=recipe.rounds,
            aggregation=recipe.aggregation,
            seed=recipe.start_seed,
            checkpoint=self.checkpoint,
            on_round=on_round,
        )
        if self.folder:
            save_model(Path(self.folder, MODEL), recipe, run.parameters)
        on_line(
            {
                "event": "completed",
                "delivered": run.delivered.tolist(),
                "loss": run.rounds[-1].loss,
                "accuracy": run.rounds[-1].accuracy,
            }
        )
        return run

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Return where the run is kept, every round, since devices keep one update only."""
        if not self.folder:
            return None
        inputs = {
            "task": self.recipe.task,
            "terms": [terms.digest for terms in self.terms],
            "data": self.data,
            "seed": self.seed,
        }
        return Checkpoint(Path(self.folder, CHECKPOINT), inputs)

    def _round_line(
        self, result: RoundResult, updates: Updates, *, seconds: float
    ) -> dict[str, Any]:
        return {
            "event": "round",
            "round": result.number,
            "updates": result.updates,
            "owners": len(self.roster),
            "loss": result.loss,
            "accuracy": result.accuracy,
            "seconds": round(seconds, 3),
            "refused": {
                self.roster[i].owner: [refusal.reason, str(refusal)]
                for i, refusal in updates.refused.items()
            },
        }


def make_folder(folder: Path) -> None:
    """Make a folder if need be, and refuse one that cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"{folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CannotWrite(f"{folder}: Permission denied")


def save_model(file: Path, recipe: Recipe, parameters: FloatArray) -> None:
    """Write a model with the recipe that it came from."""
    fresh = file.with_name(file.name + ".new")
    try:
        with fresh.open("wb") as f:
            np.savez(f, parameters=parameters, recipe=json.dumps(recipe.document))
        fresh.replace(file)
    except OSError as error:
        raise CannotWrite(f"{file}: {error.strerror}") from None
