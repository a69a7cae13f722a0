"""A training without a market: what is trained, and what owners agree to on their own machines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedbourse.encoding.canonical import digest
from fedbourse.errors import InvalidFile
from fedbourse.tasks.spec import TrainingSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedbourse.privacy.terms import Terms


@dataclass(frozen=True, kw_only=True)
class Recipe(TrainingSpec):
    """All that decides what a device is asked: a public document, pinned by its hash."""

    noun = "recipe"

    name: str
    """What tells two trainings with otherwise the same recipe apart."""

    def __post_init__(self) -> None:
        self._check_text("name", at_most=200)
        super().__post_init__()

    @cached_property
    def task(self) -> str:
        """Return the name of the task in a device's books; it changes with any item."""
        return f"train/{digest(self.document)[:32]}"

    def terms(self, budget: float) -> Terms:
        """Return what an owner with this budget sells."""
        return self.privacy_terms(task=self.task, budget=budget)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Recipe:
        """Read a recipe from its document; unknown and missing items are named."""
        return cls(**cls._items(document))

    @classmethod
    def read(cls, file: Path) -> Recipe:
        """Read a recipe from a file."""
        return cls.of(read_json(file, "a recipe"))


def read_json(file: Path, what: str) -> Any:
    """Return the JSON document of a file."""
    try:
        return json.loads(file.read_bytes(), parse_constant=_no_constant)
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{file} must hold {what} as JSON: {error}") from None


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")
