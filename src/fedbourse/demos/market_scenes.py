"""Who and what the demonstration market is filled with: people, their simulated hours, the cards.

A record is an hour as a watch sees it. All of it is drawn from fixed seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidData
from fedbourse.tasks.builder import task_card
from fedbourse.tasks.card import Assumptions, Deadlines, TaskCard
from fedbourse.tasks.layout import Column, Layout

BUYER = "buyer:demo"
LIFETIME_EPSILON = 8.0
_COLUMNS = (
    Column("heart_rate", 75.0, 20.0),
    Column("heart_rate_variability", 50.0, 20.0),
    Column("steps", 500.0, 800.0),
    Column("skin_temperature", 33.5, 1.5),
    Column("light", 4.0, 2.5),
    Column("sound", 45.0, 15.0),
    Column("screen_minutes", 10.0, 12.0),
    Column("hours_awake", 7.0, 6.0),
)
_CLASSES = {
    "sleep": ("awake", "asleep"),
    "stress": ("calm", "stressed"),
    "next_hour": ("at rest", "active"),
}
_A_WEEK_S = 7 * 24 * 3600.0
_SOON = Deadlines(interest_s=60, tick_s=15, plans_s=120, terms_s=30, review_s=0, round_s=6)
_WATCHED = replace(_SOON, review_s=8)  # so that the time for review can be seen
_TABLE_SEED = 20
_VALIDATION = 2000


@dataclass(frozen=True)
class Person:
    """An owner, and how its device behaves."""

    name: str
    value: float
    """What a unit of rho is worth to it, in credits."""
    hours: int
    """How many records it has."""
    pause_s: float
    """How long its device rests after an update, so that people can watch."""
    naps: bool = False
    """Whether the device misses a round now and then."""

    @property
    def owner(self) -> str:
        """The party."""
        return f"owner:{self.name}"


PEOPLE = (
    Person("ann", 20.0, 1600, 0.6),
    Person("bob", 21.0, 1200, 0.8),
    Person("cat", 22.5, 2000, 1.0),
    Person("dan", 24.0, 1100, 1.2),
    Person("eve", 25.0, 1800, 1.4, naps=True),
    Person("fay", 27.0, 1300, 1.6),
    Person("gus", 60.0, 1700, 1.8),
    Person("hal", 90.0, 1400, 1.8),
)
NAP_S, NAP_EVERY = _SOON.round_s + 1.0, 9


@dataclass(frozen=True)
class Scene:
    """A kind of task that the market is kept filled with."""

    card: TaskCard
    announced: bool
    """Whether the buyer announces as soon as owners are there; else the task stays open."""
    quick: bool = False
    """Whether devices deliver as fast as they can, so that it is soon finished."""
    most: int = 30
    """How many of them are ever published in one folder: it must not grow for ever."""


def _card(
    label: str,
    goal: str,
    *,
    rounds: int,
    reward: float | Literal["best"],
    pilot: tuple[float, float],
    step_size: float = 1.0,
    samples: int = 1000,
    max_reward: float | None = None,
    deadlines: Deadlines = _SOON,
) -> TaskCard:
    return task_card(
        goal=goal,
        data="A record is an hour as a watch sees it: pulse, steps, skin temperature, light, "
        "sound, screen time, and how long its wearer has been awake. Made up.",
        reward=reward,
        step_size=step_size,
        rounds=rounds,
        samples=samples,
        max_reward=max_reward,
        assumptions=Assumptions(
            accuracy_value=600.0,
            chance=pilot[0],
            ceiling=pilot[1],
            values_low=20.0,
            values_high=90.0,
        ),
        deadlines=deadlines,
        validation=f"{_VALIDATION} simulated hours of the buyer's own.",
        layout=Layout(_COLUMNS, label=label, classes=_CLASSES[label]),
    )


FINISHED = Scene(
    _card(
        "sleep",
        "Tell from a watch whether its wearer is asleep.",
        rounds=24,
        reward=10.0,
        pilot=(0.67, 0.98),
    ),
    announced=True,
    quick=True,
    most=5,
)
TRAINING = Scene(
    _card(
        "stress",
        "Tell from a watch whether its wearer is stressed.",
        rounds=60,
        reward=6.0,
        pilot=(0.68, 0.82),
        step_size=0.2,  # so that the model can be seen to learn
        deadlines=_WATCHED,
    ),
    announced=True,
)
WAITING = Scene(
    _card(
        "next_hour",
        "Tell from a watch whether its wearer will be active in the next hour.",
        rounds=40,
        reward="best",
        max_reward=20.0,
        pilot=(0.72, 0.91),
        samples=1500,  # so that not everybody has enough
        deadlines=replace(_SOON, interest_s=_A_WEEK_S, terms_s=60, review_s=60),
    ),
    announced=False,
    most=10,
)
SCENES = (WAITING, FINISHED, TRAINING)


def hours(*, seed: int, count: int) -> dict[str, npt.NDArray[Any]]:
    """Return a simulated table of hours: numbers by column, and a name of a class by label."""
    rng = np.random.default_rng([_TABLE_SEED, seed])
    of_day = rng.integers(0, 24, count)
    asleep = rng.random(count) < np.where((of_day < 7) | (of_day > 22), 0.9, 0.04)
    steps = rng.gamma(1.2, 600.0, count) * (~asleep & (rng.random(count) < 0.7))
    tension = rng.normal(size=count) * ~asleep
    numbers = {
        "heart_rate": 60 + 8 * ~asleep + steps / 100 + 6 * tension + rng.normal(0, 5, count),
        "heart_rate_variability": 62 - 14 * tension - 8 * ~asleep + rng.normal(0, 8, count),
        "steps": steps,
        "skin_temperature": 33 + 1.2 * asleep - 0.5 * tension + rng.normal(0, 0.5, count),
        "light": np.where(asleep, 2.0, 5.0) + rng.normal(0, 1.8, count),
        "sound": 38 + 12 * ~asleep + 4 * tension + rng.normal(0, 9, count),
        "screen_minutes": rng.gamma(1.5, 8.0, count) * (~asleep | (rng.random(count) < 0.2)),
        "hours_awake": ((of_day - 7) % 24).astype(np.float64),
    }
    moves = steps / 600 - numbers["hours_awake"] / 8 + (numbers["light"] - 4) / 2
    facts = {
        "sleep": asleep,
        "stress": tension + rng.normal(0, 0.4, count) > 0.35,
        "next_hour": moves + rng.normal(0, 0.7, count) > 0.6,
    }
    return numbers | {
        label: np.array(_CLASSES[label])[fact.astype(int)] for label, fact in facts.items()
    }


def buyer_records() -> str:
    """Return the hours that the buyer evaluates models on, as CSV; they are nobody's."""
    table = hours(seed=len(PEOPLE), count=_VALIDATION)
    rows = zip(*(column.tolist() for column in table.values()), strict=True)
    lines = [
        ",".join(each if isinstance(each, str) else f"{each:.6g}" for each in row) for row in rows
    ]
    return "\n".join([",".join(table), *lines, ""])


class SimulatedHours:
    """The data of a person's device, for any card that its hours fit."""

    def __init__(self, person: Person) -> None:
        self._table = hours(seed=PEOPLE.index(person), count=person.hours)

    def check_schema(self, card: TaskCard) -> None:
        """Refuse a card that asks for columns which hours do not have."""
        if card.layout is None:  # any table of so many columns: the first ones, scaled already
            if len(_COLUMNS) < card.features - 1:
                raise InvalidData(
                    f"a simulated hour has {len(_COLUMNS)} numbers; the card asks for "
                    f"{card.features - 1}"
                )
            return
        for name in _column_names(card.layout):
            if name not in self._table:
                raise InvalidData(
                    f"the card asks for {name!r:.60}; simulated hours have {', '.join(self._table)}"
                )

    def __call__(self, card: TaskCard) -> tuple[Any, Any]:
        """Return the records."""
        table = self._table
        if card.layout is None:
            columns, label = _COLUMNS[: card.features - 1], "stress"
            scaled = [(table[each.name] - each.shift) / each.scale for each in columns]
            return np.column_stack(scaled), (table[label] == _CLASSES[label][1]).astype(np.float64)
        *features, labels = (table[name] for name in _column_names(card.layout))
        return np.column_stack(features), labels


def _column_names(layout: Layout) -> list[str]:
    return [column.name for column in layout.columns] + [layout.label]
