"""The task card: what a buyer publishes, and all that an owner needs to decide."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.encoding.canonical import digest
from fedbourse.errors import InvalidInput
from fedbourse.game import Accuracy, Quantiles, Uniform
from fedbourse.game.mechanisms import is_clock, market_mechanism
from fedbourse.learning.aggregation import AGGREGATIONS
from fedbourse.learning.query import query_named
from fedbourse.learning.reference_gradients import CLASSES_MAX
from fedbourse.registry import Choice, Registry
from fedbourse.tasks.evidence import EvidenceSpec, check_gradient_size
from fedbourse.tasks.spec import TrainingSpec, document_items
from fedbourse.units import REWARD_MAX, REWARD_MIN, number, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

CARD_VERSION = 2
_QUANTILES_MAX = 100
VESTINGS: Registry[None] = Registry(
    "vesting",
    Choice("by-round", "by round: pay follows delivered rounds", "a part with each round", None),
    Choice("upfront", "upfront: all of it before round 0", "as in the paper", None),
)
UNEARNED: Registry[None] = Registry(
    "unearned",
    Choice("fund", "to the market's fund", "which no party of the task controls", None),
    Choice("refund", "back to the buyer", "as if the round had not been sold", None),
    Choice("share", "to those who delivered", "in proportion to their pay", None),
)
COST_RULES: Registry[None] = Registry(
    "cost",
    Choice("convex", "any convex cost", "replies that some convex cost explains", None),
    Choice(
        "linear", "a linear cost: one value, and a cap", "replies that one value explains", None
    ),
)
REWARDS = ("best", "best-reported")
CARD_CHOICES: dict[str, Registry[Any]] = {
    "aggregation": AGGREGATIONS,
    "vesting": VESTINGS,
    "unearned": UNEARNED,
    "cost": COST_RULES,
}
"""Items of a card that are chosen by name; compensation, model and query are checked apart."""


@dataclass(frozen=True)
class Deadlines:
    """How long each state of a task lasts at most, in seconds."""

    interest_s: float = 24 * 3600.0
    """open: owners register their interest."""
    tick_s: float = 60.0
    """announced: devices reply to one total; a tick ends early when all have replied."""
    plans_s: float = 3600.0
    """announced: all ticks together."""
    terms_s: float = 3600.0
    """settled: owners sign or decline."""
    review_s: float = 600.0
    """settled: once all have signed, the buyer may review it, and still cancel; 0 for no wait."""
    round_s: float = 300.0
    """training: devices send the updates of one round; it ends early when all have."""

    def __post_init__(self) -> None:
        for field in fields(self):
            seconds, most = getattr(self, field.name), 366 * 24 * 3600.0
            if field.name == "review_s":
                number(field.name, seconds, at_least=0, at_most=most)
            else:
                number(field.name, seconds, above=0, at_most=most)


@dataclass(frozen=True)
class Assumptions:
    """What the buyer assumes where it asks for the best reward."""

    accuracy_value: float
    """What an accuracy of 1 is worth to it, in credits."""
    accuracy: str = "precision"
    """How budgets buy accuracy."""
    chance: float = 0.0
    """The accuracy of guessing."""
    ceiling: float = 1.0
    """The accuracy without noise."""
    noise: float = 1.0
    """How much one step's noise weighs after the whole training; a pilot measures it."""
    sampling: float = 0.0
    """The variance that one owner's few records leave without any noise; a pilot measures it."""
    values_low: float = 1.0
    values_high: float = 5.0
    """The ends of the uniform distribution that values are assumed to come from."""
    values_quantiles: tuple[tuple[float, float], ...] = ()
    """In place of the ends: pairs of a part of all owners, from 0 to 1, and the value that they
    have at most."""

    def __post_init__(self) -> None:
        number("accuracy_value", self.accuracy_value, above=0, at_most=1e15)
        Accuracy(
            self.accuracy,
            chance=self.chance,
            ceiling=self.ceiling,
            noise=self.noise,
            sampling=self.sampling,
        )
        number("values_low", self.values_low, above=0)
        number("values_high", self.values_high, above=self.values_low)
        object.__setattr__(self, "values_quantiles", _pairs(self.values_quantiles))
        if self.values_quantiles:
            Quantiles(self.values_quantiles)

    @property
    def values(self) -> Uniform | Quantiles:
        """Return the distribution that values are assumed to come from."""
        if self.values_quantiles:
            return Quantiles(self.values_quantiles)
        return Uniform(self.values_low, self.values_high)

    @property
    def values_text(self) -> str:
        """Return the same in words, after *values*."""
        if self.values_quantiles:
            (_, low), *_between, (_, high) = self.values_quantiles
            return f"with the card's {len(self.values_quantiles)} quantiles, {low:g} to {high:g}"
        return f"spread evenly over {self.values_low:g} to {self.values_high:g}"


def _pairs(quantiles: object) -> tuple[tuple[float, float], ...]:
    """Return pairs of numbers, which may come as lists."""
    items = quantiles if isinstance(quantiles, (list, tuple)) else (quantiles,)
    if len(items) > _QUANTILES_MAX:
        raise InvalidInput(
            f"values_quantiles must have at most {_QUANTILES_MAX} pairs; found {len(items)}"
        )
    for item in items:
        if not isinstance(item, (list, tuple)) or len(item) != 2:
            raise InvalidInput(f"values_quantiles must be pairs [part, value]; found {item!r:.60}")
    return tuple(
        (number("values_quantiles: part", part), number("values_quantiles: value", value))
        for part, value in items
    )


@dataclass(frozen=True, kw_only=True)
class TaskCard(TrainingSpec):
    """The paper's six items, and what training needs."""

    noun = "card"

    goal: str
    loss: str
    """The loss function, named by its model."""
    query: str
    compensation: str
    """The mechanism: proportional, the paper's, or clock, equal lots at a falling price."""
    reward: float | Literal["best", "best-reported"]
    """R in credits; or the best for the values that the buyer assumes; or the best for the values
    that owners report, which they can manipulate."""

    scaling: str
    """The hash of the public numbers that scale features; never computed from owners' records."""
    dimension: int
    """d: the model's parameters."""
    vesting: str
    """by-round: pay follows delivered rounds; upfront: all of it before round 0 (the paper)."""
    unearned: str = "fund"
    """Where the pay of rounds goes that a device did not deliver: to a fund that no party of the
    task controls; back to the buyer (refund); or to those who delivered (share)."""
    cost: str = "convex"
    """What replies to ticks must be explained by: any convex cost, or a linear one."""
    max_reward: float | None = None
    """The most that a best reward may be, in credits."""
    max_rho: float = 10.0
    """The largest budget that a plan may offer."""
    min_budget: float = 0.0
    """The smallest budget that is bought from an owner, in rho; 0 for any."""
    min_total_budget: float = 0.0
    """The task is cancelled if all plans together are below this, in rho."""
    min_participants: int = 2
    assumptions: Assumptions | None = None
    deadlines: Deadlines = Deadlines()
    evidence: EvidenceSpec | None = None
    """Whether updates are compared with the buyer's own records, and pay is held meanwhile."""
    validation: str = ""
    """Which records of its own the buyer will evaluate the model on."""
    version: int = CARD_VERSION

    def __post_init__(self) -> None:
        if self.version != CARD_VERSION:
            raise InvalidInput(f"version must be {CARD_VERSION}; found {self.version!r:.60}")
        for name in ("goal", "scaling", "loss", "query"):
            self._check_text(name)
        self._check_text("validation", at_least=0)
        for name, kind in (
            ("deadlines", Deadlines),
            ("assumptions", Assumptions | None),
            ("evidence", EvidenceSpec | None),
        ):
            if not isinstance(getattr(self, name), kind):
                raise InvalidInput(
                    f"a card's {name} must be an object; found {getattr(self, name)!r:.60}"
                )
        query_named(self.query)
        market_mechanism(self.compensation)
        for name, choices in CARD_CHOICES.items():
            choices.choose(getattr(self, name))
        self._check_reward()
        self._check_evidence()
        self._check_lots()
        super().__post_init__()
        whole_number("dimension", self.dimension, at_least=1)
        if self.build().dimension != self.dimension:
            raise InvalidInput(
                f"a {self.model} of {self.features} features and {self.classes} classes has "
                f"dimension {self.build().dimension}; the card says {self.dimension}"
            )
        if self.evidence is not None:
            check_gradient_size(self, self.evidence)
        whole_number("min_participants", self.min_participants, at_least=2)
        # So that no scale of noise overflows.
        number("max_rho", self.max_rho, at_least=1e-100, at_most=1e100)
        number("min_budget", self.min_budget, at_least=0, at_most=self.max_rho)
        number("min_total_budget", self.min_total_budget, at_least=0, at_most=1e100)

    def _check_reward(self) -> None:
        if self.max_reward is not None:
            number("max_reward", self.max_reward, at_least=REWARD_MIN, at_most=REWARD_MAX)
        if self.reward not in REWARDS:
            if isinstance(self.reward, str):
                raise InvalidInput(
                    f"reward must be a number of credits, {' or '.join(REWARDS)}; "
                    f"found {self.reward!r:.60}"
                )
            most = self.max_reward or REWARD_MAX
            number("reward", self.reward, at_least=REWARD_MIN, at_most=most)
        elif self.assumptions is None or self.max_reward is None:
            raise InvalidInput(
                f"a reward of {self.reward!r} needs the card's assumptions and a max_reward"
            )

    def _check_evidence(self) -> None:
        """Whoever gains from a dismissal must not be able to cause it."""
        if self.evidence is None:
            return
        if self.vesting != "by-round":
            raise InvalidInput(
                f"evidence holds pay until it is decided, which needs vesting by-round; found "
                f"{self.vesting!r:.60}"
            )
        if self.unearned != "fund":
            raise InvalidInput(
                f"with evidence, unearned pay must go to the fund, so that nobody gains from a "
                f"dismissal; found unearned {self.unearned!r:.60}"
            )
        if self.evidence.population == "any-class-mixture" and not self.classes:
            raise InvalidInput(
                "evidence for any-class-mixture needs classes; the labels of this card are numbers"
            )
        if self.evidence.population == "any-class-mixture" and self.classes > CLASSES_MAX:
            raise InvalidInput(
                f"evidence for any-class-mixture compares {CLASSES_MAX} classes at most; found "
                f"{self.classes}"
            )

    def _check_lots(self) -> None:
        """Equal lots at a falling price: what it takes that saying the truth is best."""
        if not self.sells_lots:
            return
        if not self.min_budget == self.max_rho:
            raise InvalidInput(
                "the clock sells equal lots, so that min_budget and max_rho must both be the lot; "
                f"found min_budget {self.min_budget!r:.60} and max_rho {self.max_rho!r:.60}"
            )
        for name, only in (("vesting", "by-round"), ("unearned", "fund")):
            if getattr(self, name) != only:
                raise InvalidInput(
                    f"with the clock {name} must be {only}, so that nobody gains by lowering the "
                    f"price; found {getattr(self, name)!r:.60}"
                )
        if isinstance(self.reward, str):
            raise InvalidInput(
                "the clock needs a reward in credits: the best one is known for proportional pay "
                f"only; found {self.reward!r:.60}"
            )

    @property
    def sells_lots(self) -> bool:
        """Say whether the clock sells: every owner the same lot, ``max_rho``, or nothing."""
        return is_clock(market_mechanism(self.compensation))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TaskCard:
        """Read a card from its document; unknown and missing items are named."""
        items = cls._items(document)
        for name, kind in (
            ("deadlines", Deadlines),
            ("assumptions", Assumptions),
            ("evidence", EvidenceSpec),
        ):
            if isinstance(items.get(name), dict):
                items[name] = kind(**document_items(kind, items[name], f"card's {name}"))
        return cls(**items)

    @property
    def reserve(self) -> float:
        """Return what the buyer must have when the task opens, in credits: R, or its bound."""
        if isinstance(self.reward, str):
            assert self.max_reward is not None
            return self.max_reward
        return float(self.reward)

    @property
    def assumed(self) -> Assumptions:
        """Return what the buyer assumes, or refuse where the card does not say."""
        if self.assumptions is None:
            raise InvalidInput("the card states no assumptions; a best reward needs them")
        return self.assumptions

    @cached_property
    def digest(self) -> str:
        """Return the hash that every later message of the trade refers to."""
        return digest(self.document)
