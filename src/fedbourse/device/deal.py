"""A device's plain records: markets, deals, deliveries and refusals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import NotFound
from fedbourse.protocol.keys import key_id, verified
from fedbourse.protocol.messages import min_pay
from fedbourse.protocol.rotation import keys_since
from fedbourse.tasks.card import TaskCard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedbourse.device.bidding_strategy import BiddingStrategy
    from fedbourse.privacy.terms import Terms

DealState = Literal["joined", "signed", "declined", "ended"]
TASK_ENDED = ("completed", "cancelled")
"""The states in which a market asks for nothing more."""


@dataclass(frozen=True)
class KnownMarket:
    """A market that the device is enrolled in."""

    key: str
    """Its public key, pinned when the device enrolled: deals and accounts are named after it."""
    server: str
    device: str
    owner: str
    ca_file: str | None = None
    keys_since: tuple[str, ...] = ()
    """The keys that replaced it since, each signed by the one before."""

    @property
    def signing_key(self) -> str:
        """The key that the market signs with now."""
        return self.keys[-1]

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that the market has signed with."""
        return (self.key, *self.keys_since)

    def signed(self, message: object, signature: str) -> bool:
        """Say whether the market has signed a message, with any of its keys."""
        return any(verified(key, canonical(message), signature) for key in self.keys)

    def after(self, documents: object) -> KnownMarket:
        """Return the market with the keys that its rotation statements lead to."""
        since = keys_since(self.signing_key, documents)
        return replace(self, keys_since=(*self.keys_since, *since))


@dataclass(frozen=True)
class SentReply:
    """The device's tick reply."""

    offer: str
    """The hash of the offer."""
    tick: int
    total_budget: float
    """P, as announced."""
    reward_micro: int
    """R, as announced."""
    budget: float
    """rho, 0 where nothing is sold at that total."""

    @property
    def min_pay(self) -> int:
        """The least pay for this budget at the announced price, in micro-credits."""
        return min_pay(
            budget=self.budget, total_budget=self.total_budget, reward_micro=self.reward_micro
        )


@dataclass(frozen=True)
class Deal:
    """A task that the device takes part in."""

    market: str
    """The market's key."""
    task: str
    owner: str
    buyer: str
    card_document: dict[str, Any]
    strategy: BiddingStrategy
    cap: float
    """The most rho to sell to this task, fixed when it was joined."""
    state: DealState = "joined"
    replies: tuple[SentReply, ...] = ()
    """One for each tick."""
    terms: dict[str, Any] | None = None
    """The signed terms: the document, and both signatures."""
    outcome: str = ""
    """How it ended, in words."""
    sequence: int = -1
    """The last event of the task's log that the device acted on."""
    last_hash: str = ""
    """That event's hash."""
    final: dict[str, Any] | None = None
    """What the market signed at the end, where evidence held pay: the allocation's state,
    earned_micro and held_micro."""

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.state in ("joined", "signed")

    @property
    def name(self) -> str:
        """Its name on this device: two markets may use the same task id."""
        return f"{key_id(self.market)}/{self.task}"

    @cached_property
    def account(self) -> str:
        """The name of its account with the filter, one for each signed terms (``reservations``)."""
        return self.account_of(self.terms["terms"]) if self.terms else self.name

    def account_of(self, terms: Mapping[str, Any]) -> str:
        """Return the name of the account of some terms."""
        return f"{self.name}@{digest(terms)[:16]}"

    def owns(self, account: str) -> bool:
        """Say whether an account with the filter is one of this deal."""
        return deal_name(account) == self.name

    @cached_property
    def card(self) -> TaskCard:
        """Return the card that the owner agreed to."""
        return TaskCard.of(self.card_document)

    @property
    def payment(self) -> int:
        """Return what all rounds together bring, in micro-credits; 0 before terms are signed."""
        return int(self.terms["terms"]["payment_micro"]) if self.terms else 0

    def released(self, round: int, delivered: Iterable[Delivered]) -> int:
        """Return how many updates with a receipt lie before the block of rounds that this is in.

        Evidence holds the pay of one block at a time; without it nothing is held.
        """
        evidence, rounds = self.card.evidence, self.card.rounds
        receipts = [each.round for each in delivered if each.receipt is not None]
        if evidence is None:
            return 0
        block = evidence.block_of(round, rounds=rounds)
        return sum(evidence.block_of(each, rounds=rounds) < block for each in receipts)

    def privacy(self, terms: Mapping[str, Any]) -> Terms:
        """Return what the filter holds this deal to under some terms."""
        return self.card.privacy_terms(task=self.account_of(terms), budget=float(terms["budget"]))

    @property
    def agreed(self) -> Terms:
        """Return what was agreed."""
        if self.terms is None:
            raise NotFound(f"no terms of task {self.task} were signed")
        return self.privacy(self.terms["terms"])


def deal_name(account: str) -> str:
    """Return the name of the deal that an account with the filter belongs to."""
    return account.rpartition("@")[0]


@dataclass(frozen=True)
class Delivered:
    """An update that may have been sent, and its receipt."""

    round: int
    hash: str
    """SHA-256 of the update."""
    request: str
    """The hash of its round request."""
    receipt: dict[str, Any] | None


@dataclass(frozen=True)
class Refusal:
    """A round, or a task, that the device refused, and why."""

    at_ms: int
    deal: str
    round: int | None
    reason: str
    sentence: str
