"""What a device remembers beside its spend: markets, deals, receipts and refusals.

They lie in the spend store's file, so that one lock guards them all.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from fedbourse.agent.wish import Wish
from fedbourse.errors import FedbourseError, InvalidFile, NotFound, Refused
from fedbourse.wire import bounds
from fedbourse.wire.canonical import canonical, digest
from fedbourse.wire.card import TaskCard
from fedbourse.wire.keys import key_id, verified
from fedbourse.wire.messages import privacy_terms
from fedbourse.wire.rotation import keys_since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fedbourse.agent.spend_store import SpendStore
    from fedbourse.privacy.terms import Terms

T = TypeVar("T")
DealState = Literal["joined", "signed", "declined", "ended"]
TASK_ENDED = ("completed", "cancelled")
"""The states in which a market asks for nothing more."""


@dataclass(frozen=True)
class Market:
    """A market that the device is enrolled in."""

    key: str
    """Its public key, pinned when the device enrolled: deals and accounts are named after it."""
    server: str
    device: str
    owner: str
    ca_file: str | None = None
    keys_since: tuple[str, ...] = ()
    """The keys that took its place since, each vouched for by the one before."""

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

    def after(self, documents: object) -> Market:
        """Return the market with the keys that its statements lead on to."""
        since = keys_since(self.signing_key, documents)
        return replace(self, keys_since=(*self.keys_since, *since))


@dataclass(frozen=True)
class Reply:
    """What the device replied to one tick."""

    offer: str
    """The hash of the offer."""
    tick: int
    total_budget: float
    """P, as announced."""
    reward_micro: int
    """R, as announced."""
    budget: float
    """rho, 0 where nothing is sold at that total."""


@dataclass(frozen=True)
class Deal:
    """A task that the device takes part in."""

    market: str
    """The market's key."""
    task: str
    owner: str
    buyer: str
    card_document: dict[str, Any]
    wish: Wish
    cap: float
    """The most rho to sell to this task, fixed when it was joined."""
    state: DealState = "joined"
    replies: tuple[Reply, ...] = ()
    """What was replied to each tick."""
    terms: dict[str, Any] | None = None
    """The terms as both sides signed them: the document, and both signatures."""
    outcome: str = ""
    """How it ended, in words."""
    sequence: int = -1
    """The last event of the task's log that the device acted on: the market takes none back."""
    last_hash: str = ""
    """That event's hash."""

    @property
    def name(self) -> str:
        """Its name on this device: two markets may use one task's id."""
        return f"{key_id(self.market)}/{self.task}"

    @cached_property
    def account(self) -> str:
        """The name of its account with the filter: one for each terms that are signed.

        Where another owner declines, the price is discovered again and other terms are signed; the
        account of the first ones is closed with nothing spent.
        """
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

    def privacy(self, terms: Mapping[str, Any]) -> Terms:
        """Return what the filter holds this deal to under some terms."""
        return privacy_terms(self.card, task=self.account_of(terms), budget=float(terms["budget"]))

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
class Answered:
    """An answer that may have left, and what the market gave for it."""

    round: int
    hash: str
    """SHA-256 of the answer."""
    query: str
    """The hash of the query that it answers."""
    receipt: dict[str, Any] | None


@dataclass(frozen=True)
class Refusal:
    """A question that the device did not answer, and why."""

    at_ms: int
    deal: str
    round: int | None
    reason: str
    sentence: str


class Deals:
    """The device's memory of its deals."""

    def __init__(
        self, store: SpendStore, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        """Keep them in a store."""
        self._store, self._now_ms = store, now_ms

    def markets(self) -> list[Market]:
        """Return the markets that the device is enrolled in."""
        return self._read("market", _market)

    def put_market(self, market: Market) -> None:
        """Remember a market, in place of what was known of it."""
        self._put("market", "key", market.key, asdict(market))

    def deals(self) -> list[Deal]:
        """Return all deals, the oldest first."""
        return self._read("deal", _deal)

    def deal(self, name: str) -> Deal | None:
        """Return one deal."""
        return next((deal for deal in self.deals() if deal.name == name), None)

    def live(self, market: Market) -> list[Deal]:
        """Return the deals with a market that have not ended."""
        found = [deal for deal in self.deals() if deal.market == market.key]
        return [deal for deal in found if deal.state in ("joined", "signed")]

    def make_room(self, market: Market, *, besides: str) -> None:
        """Refuse a deal where a market has too many, ``besides`` that of this name.

        The oldest that came to nothing are forgotten first; those that were ever signed stay.
        """
        others = [deal for deal in self.live(market) if deal.name != besides]
        if len(others) >= bounds.DEALS_MAX:
            raise Refused(
                "deals",
                f"{len(others)} deals with {market.server} have not ended, as many as a device "
                "follows at once; join again when one has",
            )
        kept = "FROM deal WHERE name LIKE ? || '/%'"
        size = f"SELECT coalesce(sum(length(document)), 0) {kept}"
        came_to_nothing = (
            f"SELECT name, length(document) {kept} AND json_extract(document, '$.terms') IS NULL "
            "AND json_extract(document, '$.state') IN ('declined', 'ended') ORDER BY rowid"
        )
        key = (key_id(market.key),)
        with self._store.statements() as run:
            (left,) = run.execute(size, key).fetchone()
            for name, length in run.execute(came_to_nothing, key).fetchall():
                if left + bounds.CARD_BYTES_MAX <= bounds.DEALS_BYTES_MAX:
                    break
                run.execute("DELETE FROM deal WHERE name = ?", (name.decode(),))
                left -= length
        if left + bounds.CARD_BYTES_MAX > bounds.DEALS_BYTES_MAX:
            raise Refused(
                "deals",
                f"the deals with {market.server} take {left} bytes, and a device keeps "
                f"{bounds.DEALS_BYTES_MAX} of one market at most; it joins nothing there any more",
            )

    def put(self, deal: Deal) -> Deal:
        """Remember a deal as it now stands."""
        document = {k: v for k, v in asdict(deal).items() if k != "card"}
        self._put("deal", "name", deal.name, document)
        return deal

    def change(self, deal: Deal, **items: Any) -> Deal:
        """Remember a deal with some items changed."""
        return self.put(replace(deal, **items))

    def answered(self, deal: Deal) -> list[Answered]:
        """Return every answer that may have left, by round."""
        with self._store.statements() as run:
            rows = run.execute(
                "SELECT round, hash, query, receipt FROM answered WHERE task = ? ORDER BY round",
                (deal.account,),
            ).fetchall()
        with _readable("a receipt"):
            return [
                Answered(
                    number,
                    hash.decode(),
                    query.decode(),
                    None if receipt is None else _receipt(receipt),
                )
                for number, hash, query, receipt in rows
            ]

    def asked(self, deal: Deal, query: str) -> None:
        """Hear the hash of the query that an answer will be stored for."""
        self._store.queries[deal.account] = query

    def unpaid_before(self, deal: Deal) -> int:
        """Return the answers without a receipt in deals with the same market that are over."""
        over = [
            each
            for each in self.deals()
            if each.market == deal.market and each.state in ("declined", "ended")
        ]
        return sum(len(self.unpaid(each)[1]) for each in over if each.name != deal.name)

    def is_paid(self, deal: Deal, round: int) -> bool:
        """Say whether the answer to a round has its receipt."""
        with self._store.statements() as run:
            found = run.execute(
                "SELECT 1 FROM answered WHERE task = ? AND round = ? AND receipt IS NOT NULL",
                (deal.account, _storable(round)),
            ).fetchone()
        return found is not None

    def unpaid(self, deal: Deal) -> tuple[int, list[int]]:
        """Return how many answers have their receipt, and the rounds of those that have none."""
        with self._store.statements() as run:
            count = "SELECT count(*) FROM answered WHERE task = ?"
            (answers,) = run.execute(count, (deal.account,)).fetchone()
            rows = run.execute(
                "SELECT round FROM answered WHERE task = ? AND receipt IS NULL ORDER BY round",
                (deal.account,),
            ).fetchall()
        return answers - len(rows), [number for (number,) in rows]

    def keep_receipt(self, deal: Deal, round: int, receipt: dict[str, Any]) -> None:
        """Store the receipt of an answer; the first one counts."""
        with self._store.statements() as run:
            run.execute(
                "UPDATE answered SET receipt = ? WHERE task = ? AND round = ? AND receipt IS NULL",
                (json.dumps(receipt), deal.account, round),
            )

    def refused(self, deal: Deal, round: int | None, refusal: Refused) -> None:
        """Remember a refusal; saying the same about one round again changes nothing.

        A market that asks for ever does not fill the disk: the first of a deal, and of all, are
        kept (``bounds``).
        """
        kept = None if round is None else _storable(round)
        with self._store.statements() as run:
            of_all, of_deal = run.execute(
                "SELECT count(*), count(*) FILTER (WHERE deal = ?) FROM refusal", (deal.name,)
            ).fetchone()
            known = run.execute(
                "SELECT 1 FROM refusal WHERE deal = ? AND round IS ? AND reason = ?",
                (deal.name, kept, refusal.reason),
            ).fetchone()
            room = of_all < bounds.REFUSALS_MAX and of_deal < bounds.DEAL_REFUSALS_MAX
            if known is None and room:
                run.execute(
                    "INSERT INTO refusal (at_ms, deal, round, reason, sentence) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (self._now_ms(), deal.name, kept, refusal.reason, str(refusal)),
                )

    def refusals(self) -> list[Refusal]:
        """Return every refusal, the oldest first."""
        with self._store.statements() as run:
            rows = run.execute(
                "SELECT at_ms, deal, round, reason, sentence FROM refusal ORDER BY id"
            ).fetchall()
        with _readable("a refusal"):
            return [
                Refusal(at_ms, deal.decode(), number, reason.decode(), sentence.decode())
                for at_ms, deal, number, reason, sentence in rows
            ]

    def _read(
        self, table: Literal["market", "deal"], made: Callable[[dict[str, Any]], T]
    ) -> list[T]:
        with self._store.statements() as run:
            rows = run.execute(f"SELECT document FROM {table} ORDER BY rowid").fetchall()
        with _readable(f"a {table}"):
            return [made(json.loads(document)) for (document,) in rows]

    def _put(self, table: str, column: str, key: str, document: dict[str, Any]) -> None:
        with self._store.statements() as run:
            run.execute(
                f"INSERT INTO {table} ({column}, document) VALUES (?, ?) "
                f"ON CONFLICT ({column}) DO UPDATE SET document = excluded.document",
                (key, json.dumps(document)),
            )


def _storable(round: int) -> int:
    """Return a round that comes from a stranger as the file can hold it."""
    return max(-(2**62), min(round, 2**62))


def _market(document: dict[str, Any]) -> Market:
    return Market(**document | {"keys_since": tuple(document["keys_since"])})


def _deal(document: dict[str, Any]) -> Deal:
    wish = Wish(**document.pop("wish"))
    replies = tuple(Reply(**reply) for reply in document.pop("replies"))
    deal = Deal(**document, wish=wish, replies=replies)
    if deal.state not in get_args(DealState):
        raise ValueError(deal.state)
    _ = (
        deal.name,
        deal.account,
        float(deal.cap),
        deal.card,
        deal.terms and deal.agreed,
        deal.payment,
    )
    return deal


def _receipt(text: bytes) -> dict[str, Any]:
    signed: dict[str, Any] = json.loads(text)
    _ = signed["receipt"]["round"], int(signed["receipt"]["earned_micro"])
    return signed


@contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except (FedbourseError, TypeError, ValueError, LookupError, AttributeError, RecursionError):
        raise InvalidFile(f"the device's file is damaged: {what} cannot be read") from None
