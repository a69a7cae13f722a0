"""What a mechanism is: whom it asks what, what it sells for what pay, and what it promises."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

import numpy as np

from fedbourse.errors import InvalidGame, InvalidInput
from fedbourse.game.columns import FloatArray, per_owner, positive, refuse_first
from fedbourse.game.distribution import Distribution
from fedbourse.game.mechanisms.settlement import Settlement
from fedbourse.units import number

Ask = Literal["budget", "value", "price"]
"""What an owner is asked: a budget, at an announced total; its value; or whether it sells, at an
announced price."""


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """What a mechanism promises, whatever the values are; the lab checks the first four."""

    truthful: bool
    """Nobody gains by acting as if its value were another one, whatever the others do."""
    individually_rational: bool
    """Nobody who acts according to its value is paid less than its budget costs it."""
    within_reward: bool
    """All payments together are at most the reward."""
    monotone: bool
    """Nobody sells less for acting as if its value were lower."""
    hides_winners: bool
    """Who runs it never learns the value of an owner that sells."""


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """What a buyer wants to buy and knows: all that a mechanism may look at besides the reports.

    >>> Purchase(reward=10.0).cap
    inf
    """

    reward: float = 1.0
    """R, the most that may be spent, where the mechanism obeys a limit."""
    lot: float = 1.0
    """The budget that one owner sells, where all sell equal lots; for `fairquery` the budget that
    an owner would sell if only one other stayed out."""
    cap: float | FloatArray = math.inf
    """The largest budget of an owner: one number, or one for each."""
    gain: float = 10.0
    """G, what perfect training is worth."""
    noise_factor: float = 0.01
    """a: what a budget r leaves of noise in an owner's updates is a / r (``Training``)."""
    sampling: float = 1.0
    """s, the variance of an owner's updates that comes from its few records, without any noise."""
    prior: Distribution | None = None
    """What the buyer assumes of values."""

    def __post_init__(self) -> None:
        for name in ("reward", "lot", "gain", "noise_factor"):
            checked = number(name, getattr(self, name), above=0, error=InvalidGame)
            object.__setattr__(self, name, checked)
        checked = number("sampling", self.sampling, at_least=0, error=InvalidGame)
        object.__setattr__(self, "sampling", checked)

    def caps(self, owners: int) -> FloatArray:
        """Return each owner's largest budget."""
        return per_owner("cap", self.cap, owners, infinite=True)

    def quality(self, budgets: FloatArray) -> float:
        """Return Q/(1 + Q), Q = sum of 1/(s + a/r): what these budgets bring of perfect training.

        >>> Purchase(noise_factor=0.5, sampling=0.5).quality(np.array([1.0, 0.0]))
        0.5
        """
        sold = budgets[budgets > 0]
        information = float((1.0 / (self.sampling + self.noise_factor / sold)).sum())
        return information / (1.0 + information)

    def utility(self, outcome: Outcome) -> float:
        """Return what the buyer has of an outcome: the worth of the training less what is paid."""
        return self.gain * self.quality(outcome.budgets) - outcome.spend


@dataclass(frozen=True, eq=False)
class Outcome:
    """What every owner sells and is paid, in the order of the reports."""

    budgets: FloatArray
    payments: FloatArray

    @property
    def sellers(self) -> int:
        """Return how many owners sell."""
        return int(np.count_nonzero(self.budgets))

    @property
    def total_budget(self) -> float:
        """Return P, the sum of all budgets."""
        return float(self.budgets.sum())

    @property
    def spend(self) -> float:
        """Return the sum of all payments."""
        return float(self.payments.sum())

    def utilities(self, values: FloatArray) -> FloatArray:
        """Return what is left to owners of these values: their pay less what privacy costs them."""
        return self.payments - values * self.budgets

    @classmethod
    def nothing(cls, owners: int) -> Outcome:
        """Return the outcome in which nobody sells."""
        return cls(np.zeros(owners), np.zeros(owners))


class Mechanism(Protocol):
    """How budgets are bought: any object with these attributes and this method.

    ``settlement`` is for the market, and may be left out: mechanisms without one are for studies.
    """

    @property
    def asks(self) -> Ask:
        """What owners are asked: ``budget``, ``value`` or ``price``."""
        ...

    @property
    def guarantees(self) -> Guarantees:
        """What it promises."""
        ...

    def outcome(self, values: FloatArray, purchase: Purchase, rng: np.random.Generator) -> Outcome:
        """Return what is sold for what pay where owners act as if these were their values.

        ``rng`` decides what is left to chance, such as who of two equal owners sells; the same
        state of it must give the same outcome.
        """
        ...


Rule = Callable[[FloatArray, Purchase, np.random.Generator], Outcome]
"""A mechanism's ``outcome``: reports are checked, positive and in memory."""


@dataclass(frozen=True)
class MechanismRule:
    """A mechanism given by its rule."""

    asks: Ask
    guarantees: Guarantees
    rule: Rule = field(repr=False)
    settlement: Settlement | None = field(default=None, repr=False)
    """How the market that runs it turns plans into whole payments; None where it cannot."""
    runs_clock: bool = False
    """Whether the market runs it tick by tick, as a ``DescendingClock``."""

    def outcome(self, values: FloatArray, purchase: Purchase, rng: np.random.Generator) -> Outcome:
        """Return what is sold for what pay where owners act as if these were their values."""
        return self.rule(values, purchase, rng)


def settlement_of(mechanism: object) -> Settlement | None:
    """Return how the market settles under a mechanism; None where it cannot run it."""
    settlement: Settlement | None = getattr(mechanism, "settlement", None)
    return settlement


def is_clock(mechanism: object) -> bool:
    """Say whether the market runs a mechanism as a clock."""
    return bool(getattr(mechanism, "runs_clock", False))


def checked_mechanism(mechanism: object) -> Mechanism:
    """Return an object that follows the protocol, or say what is missing."""
    name = type(mechanism).__name__
    if not callable(getattr(mechanism, "outcome", None)):
        raise InvalidInput(f"a mechanism needs outcome(values, purchase, rng); {name} has none")
    try:
        inspect.signature(mechanism.outcome).bind(None, None, None)  # type: ignore[attr-defined]
    except TypeError as error:
        raise InvalidInput(f"{name}.outcome must take (values, purchase, rng): {error}") from None
    asks, guarantees = getattr(mechanism, "asks", None), getattr(mechanism, "guarantees", None)
    if asks not in get_args(Ask):
        raise InvalidInput(
            f"{name}.asks must be one of {', '.join(get_args(Ask))}, what owners are asked; "
            f"found {asks!r:.60}"
        )
    if not isinstance(guarantees, Guarantees):
        raise InvalidInput(
            f"{name}.guarantees must be a fedbourse.Guarantees; found {guarantees!r:.60}"
        )
    return mechanism  # type: ignore[return-value]


def run_mechanism(
    mechanism: Mechanism, values: object, purchase: Purchase, *, seed: int = 0
) -> Outcome:
    """Return what a mechanism sells for what pay, checked: whole columns of finite numbers.

    ``seed`` is where chance starts, such as the order in which equal owners leave.

    >>> from fedbourse import MECHANISMS
    >>> sale = run_mechanism(MECHANISMS["clock"], [1, 2, 3, 9], Purchase(reward=6, lot=1))
    >>> sale.budgets, sale.payments
    (array([1., 1., 0., 0.]), array([3., 3., 0., 0.]))
    """
    reports = positive("values", values)
    name = type(mechanism).__name__
    result = checked_mechanism(mechanism).outcome(reports, purchase, np.random.default_rng(seed))
    if not isinstance(result, Outcome):
        raise InvalidInput(f"{name}.outcome must return a fedbourse.Outcome; found {result!r:.60}")
    checked = []
    for what in ("budgets", "payments"):
        numbers = np.asarray(getattr(result, what))
        if numbers.shape != reports.shape or numbers.dtype.kind not in "fiu":
            raise InvalidInput(
                f"{name}.outcome must return {what} with one number for each of {len(reports)} "
                f"owners; found {numbers.dtype} of shape {numbers.shape}"
            )
        refuse_first(what, numbers, ~np.isfinite(numbers), "finite")
        checked.append(numbers.astype(np.float64))
    refuse_first("budgets", checked[0], checked[0] < 0, "at least 0")
    return Outcome(*checked)
