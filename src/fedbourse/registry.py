"""What can be chosen by name: privacy costs, accuracy models, mechanisms, payment adapters.

A registry is the one place that lists the choices of its kind. The command line, forms, the API's
document, help and docs derive theirs from it, so that a new choice is one entry in one file. Where
a registry has a ``group``, an installed package may add to it with an entry point
``fedbourse.GROUP`` that leads to a ``Choice``. Models and queries have none: a device would run a
stranger's code.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from fedbourse.errors import FedbourseError, InvalidInput

T = TypeVar("T")


@dataclass(frozen=True)
class Choice(Generic[T]):
    """Something that is chosen by its name."""

    name: str
    label: str
    """What a form shows, in a few words."""
    description: str
    """What it does, in one line."""
    value: T
    options: str = ""
    """What may follow the name after a colon, such as UNITS; empty where nothing does."""

    @property
    def usage(self) -> str:
        """The name as people write it."""
        return f"{self.name}:{self.options}" if self.options else self.name


class Registry(Mapping[str, T]):
    """All choices of one kind, by name; a mapping from names to what they stand for.

    >>> sizes = Registry("size", Choice("small", "Small", "fits everywhere", 1))
    >>> sizes["small"], list(sizes)
    (1, ['small'])
    >>> sizes.choose("huge")
    Traceback (most recent call last):
    ...
    fedbourse.errors.InvalidInput: size must be one of small; found 'huge'
    """

    def __init__(
        self,
        kind: str,
        *choices: Choice[T],
        group: str | None = None,
        error: type[FedbourseError] = InvalidInput,
    ) -> None:
        self.kind, self.group = kind, group
        self._error = error
        self._own = choices
        self._choices = {choice.name: choice for choice in choices}
        self._loaded = group is None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"Registry({self.kind!r})"

    def add(self, choice: Choice[T]) -> None:
        """Offer one more choice in this process."""
        with self._lock:
            if choice.name in self._choices:
                raise InvalidInput(f"there is a {self.kind} {choice.name!r} already")
            self._choices[choice.name] = choice

    def description(self, name: str) -> str:
        """Return what a choice does, in one line."""
        self[name]
        return self._choices[name].description

    def choose(self, name: object) -> T:
        """Return what a name stands for."""
        if isinstance(name, str) and name in self:
            return self[name]
        raise self._error(
            f"{self.kind} must be one of {', '.join(each.usage for each in self.choices)}; "
            f"found {name!r:.60}"
        )

    @property
    def choices(self) -> tuple[Choice[T], ...]:
        """Return all choices, those of installed packages last."""
        self._load()
        return tuple(self._choices.values())

    @property
    def explained(self) -> str:
        """Return our own choices and what each does, for help; it loads no installed package."""
        texts = [f"{each.usage} ({each.description})" for each in self._own]
        if self.group is not None:
            texts.append("or one that an installed package adds")
        return ", ".join(texts)

    def __getitem__(self, name: str) -> T:
        if name not in self._choices:
            self._load()
        return self._choices[name].value

    def __iter__(self) -> Iterator[str]:
        return iter([choice.name for choice in self.choices])

    def __len__(self) -> int:
        return len(self.choices)

    def _load(self) -> None:
        """Add what installed packages offer, once, when it is first needed."""
        with self._lock:
            if self._loaded:
                return
            self._loaded = True
            for point in sorted(entry_points(group=f"fedbourse.{self.group}")):
                try:
                    choice = point.load()
                except Exception as error:
                    raise self._broken(point, f"cannot be loaded: {error}") from error
                if not isinstance(choice, Choice):
                    raise self._broken(point, f"must be a fedbourse.Choice; found {choice!r:.60}")
                self.add(choice)

    def _broken(self, point: object, problem: str) -> InvalidInput:
        self._loaded = False
        return InvalidInput(f"the installed {self.kind} {point!s:.200} {problem}")
