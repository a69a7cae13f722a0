"""An owner's rules: what it sells, to whom, and for how much at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fedbourse.errors import InvalidInput, Refused
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, number, whole_number

if TYPE_CHECKING:
    from fedbourse.tasks.card import TaskCard


EVIDENCE_ACCEPTED = ("none", "any-class-mixture", "any")


class Policy(Protocol):
    """An owner's own rules. Each raises ``Refused`` with a reason, or returns."""

    def check_card(self, card: TaskCard, *, buyer: str) -> None:
        """Refuse a task that the owner wants no part in."""

    def check_terms(
        self, card: TaskCard, *, buyer: str, value: float, budget: float, payment: int
    ) -> None:
        """Refuse terms: a budget in rho for a payment in micro-credits."""


@dataclass(frozen=True)
class Limits:
    """The default policy: nothing is sold below its value."""

    min_price: float = 0.0
    """The lowest pay for a unit of rho, in credits; at least the owner's value in any case."""
    min_rounds: int = 1
    """Tasks with fewer rounds are refused: one update costs budget / rounds."""
    refused_data: tuple[str, ...] = ()
    """Words: a card with one of them in its category of data or its goal is refused."""
    only_buyers: tuple[str, ...] = ()
    """Buyers to sell to; everybody where there are none."""
    accept_upfront: bool = False
    """Whether tasks are joined that pay everything before round 0."""
    accept_evidence: str = "none"
    """Which tasks are joined that hold pay until updates were compared with the buyer's records:
    none; any-class-mixture, which dismiss no owner for its classes; or any."""
    max_held_rounds: int | None = None
    """The most rounds whose pay may be held; None for as many as a card says."""

    def __post_init__(self) -> None:
        number("min_price", self.min_price, at_least=0)
        if not isinstance(self.accept_upfront, bool):
            raise InvalidInput(
                f"accept_upfront must be true or false; found {self.accept_upfront!r:.60}"
            )
        if self.accept_evidence not in EVIDENCE_ACCEPTED:
            raise InvalidInput(
                f"accept_evidence must be one of {', '.join(EVIDENCE_ACCEPTED)}; found "
                f"{self.accept_evidence!r:.60}"
            )
        if self.max_held_rounds is not None:
            whole_number("max_held_rounds", self.max_held_rounds, at_least=1)
        whole_number("min_rounds", self.min_rounds, at_least=1)
        for name in ("refused_data", "only_buyers"):
            words = getattr(self, name)
            is_list = isinstance(words, list | tuple)  # a string would be read as its letters
            if not is_list or not all(isinstance(word, str) and word.strip() for word in words):
                raise InvalidInput(f"{name} must be words; found {words!r:.60}")
            object.__setattr__(self, name, tuple(words))

    def check_card(self, card: TaskCard, *, buyer: str) -> None:
        """Refuse by buyer, and by words of the card."""
        if self.only_buyers and buyer not in self.only_buyers:
            raise Refused(
                "buyer", f"the owner sells to {', '.join(self.only_buyers)}; the buyer is {buyer}"
            )
        if card.rounds < self.min_rounds:
            raise Refused(
                "rounds",
                f"the owner sells over at least {self.min_rounds} rounds; the card has "
                f"{card.rounds}, so that one update without pay costs too much",
            )
        if card.vesting == "upfront" and not self.accept_upfront:
            raise Refused(
                "upfront",
                "the card pays everything before round 0, which rewards owners who then deliver "
                "nothing; the owner's settings do not accept that (accept_upfront)",
            )
        self._check_evidence(card)
        text = f"{card.data} {card.goal}".casefold()
        for word in self.refused_data:
            if word.casefold() in text:
                raise Refused(
                    "data", f"the owner sells nothing about {word!r}; the card asks for it"
                )

    def _check_evidence(self, card: TaskCard) -> None:
        if card.evidence is None:
            return
        held, population = card.evidence.block_rounds(card.rounds), card.evidence.population
        accepted_by = [name for name in EVIDENCE_ACCEPTED if name in (population, "any")]
        if self.accept_evidence not in accepted_by:
            raise Refused(
                "evidence",
                f"the card holds pay for {held} rounds and compares updates with the buyer's "
                f"records ({population}); accept_evidence is {self.accept_evidence}, and must be "
                f"{' or '.join(accepted_by)} for this card (edit device.json)",
            )
        if self.max_held_rounds is not None and held > self.max_held_rounds:
            raise Refused(
                "held",
                f"the card holds the pay of up to {held} rounds; max_held_rounds is "
                f"{self.max_held_rounds}, and must be null or at least {held} for this card (edit "
                "device.json)",
            )

    def check_terms(
        self, card: TaskCard, *, buyer: str, value: float, budget: float, payment: int
    ) -> None:
        """Refuse pay below the owner's value, or below its minimum price."""
        least = max(value, self.min_price)
        price = payment / MICRO_CREDITS_PER_CREDIT / budget
        # A micro-credit is the smallest coin: what rounding took is no reason.
        if (payment + 1) / MICRO_CREDITS_PER_CREDIT < least * budget:
            raise Refused(
                "price", f"the pay is {price:.6g} credits for a unit of rho; at least {least:.6g}"
            )
