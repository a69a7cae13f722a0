"""One task, played from the first tick to the last credit: what goes in, and what comes out.

A ``Scenario`` is a task and the names that take part in it, each with a strategy. Whatever carries
it out (a model of the old protocol, or the market's own commands) is a ``Play``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fedbourse.study.deviations.sending import (
    FEATURES,
    REFERENCE_RECORDS,
    SAMPLES,
    Sender,
    reference_at,
)
from fedbourse.tasks.builder import task_card
from fedbourse.tasks.card import Assumptions, Deadlines, TaskCard
from fedbourse.tasks.evidence import EvidenceSpec, reference_hash

if TYPE_CHECKING:
    from fedbourse.learning.evidence import Population

TICK_S = 60.0
_NOISE_ALONE = {"features": 3, "step_size": 1e-9, "samples": 20}
"""What a task is about where nobody looks at updates."""
_ROUNDS_WITH_EVIDENCE = 6


@dataclass(frozen=True)
class TradeSetting:
    """A task as its buyer publishes it, reduced to what matters here."""

    reward: float = 10.0
    """R, in credits."""
    rounds: int = 2
    ticks: int = 60
    """How many ticks fit before the deadline, where each lasts as long as it may."""
    unearned: str = "fund"
    vesting: str = "by-round"
    min_budget: float = 0.0
    min_total_budget: float = 0.0
    assumed_high: float = 5.0
    """The first total is guessed from values between 1 and this."""
    settle_at: int | None = None
    """The tick at whose end the buyer asks for a settlement; None where it waits."""
    evidence: Population | None = None
    """Whose updates must pass; None where the card has no evidence."""
    reference_angle: float = 0.0
    """How far the buyer's reference is from the records of honest owners, in degrees."""

    @property
    def card(self) -> TaskCard:
        """Return the card of the task."""
        return task_card(
            goal="to see who gains",
            data="none: updates are pure noise",
            reward=self.reward,
            **self._training,
            vesting=self.vesting,
            unearned=self.unearned,
            max_rho=1e9,
            min_budget=self.min_budget,
            min_total_budget=self.min_total_budget,
            assumptions=Assumptions(
                accuracy_value=1.0, values_low=1.0, values_high=self.assumed_high
            ),
            deadlines=Deadlines(tick_s=TICK_S, plans_s=self.ticks * TICK_S, review_s=0),
        )

    @property
    def reference(self) -> bytes | None:
        """Return the reference file, where the card has evidence."""
        return None if self.evidence is None else reference_at(self.reference_angle)

    @property
    def _training(self) -> dict[str, Any]:
        if self.reference is None or self.evidence is None:
            return {"rounds": self.rounds, **_NOISE_ALONE}
        spec = EvidenceSpec(
            reference=reference_hash(self.reference),
            records=REFERENCE_RECORDS,
            population=self.evidence,
        )
        sizes = {"features": FEATURES, "samples": SAMPLES, "rounds": _ROUNDS_WITH_EVIDENCE}
        return {"evidence": spec, **sizes}


@dataclass(frozen=True)
class PlayedOffer:
    """What a name sees at a tick."""

    reward: float
    totals: tuple[float, ...]
    """Every total announced so far; the last is the one to reply to."""
    last: bool
    """Whether no tick can follow this one, if it lasts as long as it may."""
    own: tuple[tuple[float, float], ...] = ()
    """The totals that this name has replied to in earlier ticks, each with its budget."""

    @property
    def tick(self) -> int:
        """The number of this tick."""
        return len(self.totals) - 1

    @property
    def total_budget(self) -> float:
        """P, to be replied to."""
        return self.totals[-1]


@dataclass(frozen=True)
class PlayedTerms:
    """What a name is asked to sign."""

    budget: float
    payment: float
    """Credits."""
    min_payment: float
    """The least that an honest device signs for under the protocol at hand, whatever its value."""


class Strategy(Protocol):
    """How one name plays."""

    def replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Return the budgets to reply with at once: the first that is accepted counts.

        None of them: the name keeps the tick open.
        """

    def late_replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Return the same for the last moment of a tick that is still open."""

    def leaves(self, offer: PlayedOffer) -> bool:
        """Say whether the name leaves the task at the last moment of a tick that is still open."""

    def signs(self, terms: PlayedTerms) -> bool | None:
        """Say whether the name signs its terms or declines them; None: it does neither."""

    def delivers(self, round: int) -> bool:
        """Say whether the name delivers an update in this round."""


@dataclass(frozen=True)
class Scenario:
    """A task, and who takes part in it."""

    setting: TradeSetting
    names: Mapping[str, Strategy]
    sends: Mapping[str, Sender] = field(default_factory=dict)
    """What names send where the card has evidence; by default gradients of their own records."""


@dataclass(frozen=True)
class Stake:
    """What one name sold and was paid, in rho and credits."""

    budget: float
    payment: float
    earned: float
    delivered: int
    """Rounds."""


@dataclass(frozen=True)
class TradeOutcome:
    """How a task ended."""

    completed: bool
    rounds: int
    """T, of the card."""
    allocations: Mapping[str, Stake]
    """Of those who signed; empty where the task was cancelled before training."""
    refunded: float
    """What went back to the buyer, in credits."""
    fund: float
    ticks: int
    refusals: tuple[str, ...] = ()
    """What the market refused to do, in its own words."""

    def earned(self, *names: str) -> float:
        """Return what these names were paid, in credits."""
        return sum(self.allocations[name].earned for name in names if name in self.allocations)

    def sold(self, *names: str) -> float:
        """Return the budget that these names have spent: delivered rounds only."""
        sellers = [self.allocations[name] for name in names if name in self.allocations]
        return sum(each.budget * each.delivered / self.rounds for each in sellers)

    def utility(self, *names: str, value: float) -> float:
        """Return the utility of an owner who acts under these names."""
        return self.earned(*names) - value * self.sold(*names)


Play = Callable[[Scenario], TradeOutcome]
