"""The task card: what a buyer publishes, and all that an owner needs to decide."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.errors import InvalidInput
from fedbourse.game import ACCURACY_MODELS
from fedbourse.learning.models import model_named
from fedbourse.learning.query import query_named
from fedbourse.learning.rounds import WEIGHTS, Weights
from fedbourse.privacy.noise import CLIP_MAX, CLIP_MIN
from fedbourse.units import REWARD_MAX, REWARD_MIN, number, whole_number
from fedbourse.wire.canonical import digest
from fedbourse.wire.layout import Layout
from fedbourse.wire.plain_text import plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

CARD_VERSION = 2
COMPENSATIONS = ("proportional",)
VESTINGS = ("by-round", "upfront")
UNEARNED = ("fund", "refund", "share")
COSTS = ("convex", "linear")
REWARDS = ("best", "best-reported")
_TEXT_MAX = 2000


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
    """settled: once everybody has signed, the buyer may look, and still cancel; 0 for no wait."""
    round_s: float = 300.0
    """training: devices answer one round; it ends early when all have answered."""

    def __post_init__(self) -> None:
        """Check every span once."""
        for field in fields(self):
            seconds, most = getattr(self, field.name), 366 * 24 * 3600.0
            if field.name == "review_s":
                number(field.name, seconds, at_least=0, at_most=most)
            else:
                number(field.name, seconds, above=0, at_most=most)


@dataclass(frozen=True)
class Assumptions:
    """What the buyer assumes where it asks for the best reward."""

    weight: float
    """What an accuracy of 1 is worth to it, in credits."""
    accuracy: str = "precision"
    """How budgets buy accuracy."""
    chance: float = 0.0
    """The accuracy of guessing."""
    ceiling: float = 1.0
    """The accuracy without noise."""
    noise: float = 1.0
    """How much one step's noise weighs after the whole training; a pilot measures it."""
    values_low: float = 1.0
    values_high: float = 5.0
    """The ends of the uniform distribution that values are assumed to come from."""

    def __post_init__(self) -> None:
        """Check every number once."""
        number("weight", self.weight, above=0, at_most=1e15)
        if not isinstance(self.accuracy, str) or self.accuracy not in ACCURACY_MODELS:
            raise InvalidInput(
                f"accuracy must be one of {', '.join(ACCURACY_MODELS)}; found {self.accuracy!r:.60}"
            )
        number("chance", self.chance, at_least=0, at_most=1)
        number("ceiling", self.ceiling, above=self.chance, at_most=1)
        number("noise", self.noise, above=0)
        number("values_low", self.values_low, above=0)
        number("values_high", self.values_high, above=self.values_low)


@dataclass(frozen=True)
class TaskCard:
    """The paper's six items, and what training needs."""

    goal: str
    data: str
    """The category of data: what a record is."""
    loss: str
    """The loss function, named by its model."""
    query: str
    compensation: str
    """How the reward is shared: proportional, the paper's."""
    reward: float | Literal["best", "best-reported"]
    """R in credits; or the best for the values that the buyer assumes; or the best for the values
    that owners report, which they can manipulate."""

    scaling: str
    """The hash of the public numbers that scale features; never computed from owners' records."""
    model: str
    features: int
    """Numbers in a record, after scaling."""
    classes: int
    """Classes that are told apart; 0 where labels are numbers."""
    dimension: int
    """d: the model's parameters."""
    step_size: float
    rounds: int
    samples: int
    """m: a device answers from a fixed random subset of this many of its records."""
    clip: float
    weights: Weights
    vesting: str
    """by-round: pay follows delivered rounds; upfront: all of it before round 0 (the paper)."""
    unearned: str = "fund"
    """Where the pay of rounds goes that a device did not deliver: to a fund that no party of the
    task controls; back to the buyer (refund); or to those who delivered (share)."""
    cost: str = "convex"
    """What replies to ticks must be explained by: any convex cost, or a linear one."""
    start_seed: int = 0
    """What the parameters of round 0 are drawn from, where the model does not start at zero."""
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
    validation: str = ""
    """Which records of its own the buyer will judge the model by."""
    layout: Layout | None = None
    """How an owner's table becomes records; None where devices hold records that are ready."""
    version: int = CARD_VERSION

    def __post_init__(self) -> None:
        """Check every item once."""
        for name in ("goal", "data", "scaling", "loss", "query", "model"):
            _said(name, getattr(self, name))
        for name, kind in (
            ("deadlines", Deadlines),
            ("assumptions", Assumptions | None),
            ("layout", Layout | None),
        ):
            if not isinstance(getattr(self, name), kind):
                raise InvalidInput(
                    f"a card's {name} must be an object; found {getattr(self, name)!r:.60}"
                )
        if not isinstance(self.validation, str) or len(self.validation) > _TEXT_MAX:
            raise InvalidInput(f"a card's validation must be at most {_TEXT_MAX} characters")
        plain_text("a card's validation", self.validation)
        query_named(self.query)
        for name, known in (
            ("compensation", COMPENSATIONS),
            ("weights", WEIGHTS),
            ("vesting", VESTINGS),
            ("unearned", UNEARNED),
            ("cost", COSTS),
            ("version", (CARD_VERSION,)),
        ):
            if getattr(self, name) not in known:
                raise InvalidInput(
                    f"{name} must be one of {', '.join(map(str, known))}; "
                    f"found {getattr(self, name)!r:.60}"
                )
        self._check_reward()
        for name in ("features", "dimension", "rounds", "samples", "version"):
            whole_number(name, getattr(self, name), at_least=1)
        whole_number("classes", self.classes, at_least=0)
        self._check_model()
        self._check_layout()
        whole_number("min_participants", self.min_participants, at_least=2)
        whole_number("start_seed", self.start_seed, at_least=0)
        number("step_size", self.step_size, above=0)
        number("clip", self.clip, at_least=CLIP_MIN, at_most=CLIP_MAX)
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

    def _check_model(self) -> None:
        has = model_named(self.model, features=self.features, classes=self.classes).dimension
        if has != self.dimension:
            raise InvalidInput(
                f"a {self.model} of {self.features} features and {self.classes} classes has "
                f"dimension {has}; the card says {self.dimension}"
            )

    def _check_layout(self) -> None:
        if self.layout is None:
            return
        if len(self.layout.columns) + 1 != self.features:
            raise InvalidInput(
                f"a layout of {len(self.layout.columns)} columns and the constant 1 makes "
                f"{len(self.layout.columns) + 1} features; the card says {self.features}"
            )
        if self.layout.classes and len(self.layout.classes) != self.classes:
            raise InvalidInput(
                f"the layout names {len(self.layout.classes)} classes; the card has {self.classes}"
            )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TaskCard:
        """Read a card from its document; unknown and missing items are named."""
        parts = _known(cls, document, "card")
        if isinstance(parts.get("deadlines"), dict):
            parts["deadlines"] = Deadlines(**_known(Deadlines, parts["deadlines"], "deadlines"))
        if isinstance(parts.get("assumptions"), dict):
            said = _known(Assumptions, parts["assumptions"], "assumptions")
            parts["assumptions"] = Assumptions(**said)
        if parts.get("layout") is not None:
            parts["layout"] = Layout.of(parts["layout"])
        return cls(**parts)

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

    @property
    def document(self) -> dict[str, Any]:
        """Return the card as a plain document."""
        return asdict(self) | {"layout": self.layout.document if self.layout else None}

    @property
    def digest(self) -> str:
        """Return the hash that every later message of the trade refers to."""
        return digest(self.document)


def _said(name: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"a card's {name} must be said in words; found none")
    if len(text) > _TEXT_MAX:
        raise InvalidInput(
            f"a card's {name} must be at most {_TEXT_MAX} characters; found {len(text)}"
        )
    plain_text(f"a card's {name}", text)


def _known(kind: type, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the items of a document if they are exactly those of a record."""
    if not isinstance(document, dict):
        raise InvalidInput(f"a {name} must be an object; found {type(document).__name__}")
    items = {field.name: field for field in fields(kind)}
    unknown = [key for key in document if key not in items]
    if unknown:
        raise InvalidInput(f"a {name} has no item {unknown[0]!r:.60}; it has {', '.join(items)}")
    required = [key for key, field in items.items() if _is_required(field) and key not in document]
    if required:
        raise InvalidInput(f"a {name} needs {', '.join(required)}")
    return dict(document)


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
