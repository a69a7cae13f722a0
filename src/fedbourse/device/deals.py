"""A device's markets, deals, receipts and refusals, in the spend store's file under its lock."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from fedbourse.device.bidding_strategy import BiddingStrategy
from fedbourse.device.deal import Deal, DealState, Delivered, KnownMarket, Refusal, SentReply
from fedbourse.errors import FedbourseError, InvalidFile, Refused
from fedbourse.protocol import bounds
from fedbourse.protocol.keys import key_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedbourse.device.spend_store import SpendStore

T = TypeVar("T")


class Deals:
    """The store of a device's deals."""

    def __init__(
        self, store: SpendStore, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._store, self._now_ms = store, now_ms

    def markets(self) -> list[KnownMarket]:
        """Return the markets that the device is enrolled in."""
        return self._read("market", _market)

    def put_market(self, market: KnownMarket) -> None:
        """Store a market."""
        self._put("market", "key", market.key, asdict(market))

    def deals(self) -> list[Deal]:
        """Return all deals, the oldest first."""
        return self._read("deal", _deal)

    def deal(self, name: str) -> Deal | None:
        """Return one deal."""
        return next((deal for deal in self.deals() if deal.name == name), None)

    def live(self, market: KnownMarket) -> list[Deal]:
        """Return the deals with a market that have not ended."""
        return [deal for deal in self.deals() if deal.market == market.key and deal.is_live]

    def make_room(self, market: KnownMarket, *, besides: str) -> None:
        """Refuse a deal where a market has too many, ``besides`` the one of this name.

        The oldest ones without a sale are deleted first; those that were ever signed stay.
        """
        others = [deal for deal in self.live(market) if deal.name != besides]
        if len(others) >= bounds.DEALS_MAX:
            raise Refused(
                "deals",
                f"{len(others)} deals with {market.server} have not ended, as many as a device "
                "follows at once; join again when one has",
            )
        of_market = "FROM deal WHERE name LIKE ? || '/%'"
        size = f"SELECT coalesce(sum(length(document)), 0) {of_market}"
        without_sale = (
            f"SELECT name, length(document) {of_market} "
            "AND json_extract(document, '$.terms') IS NULL "
            "AND json_extract(document, '$.state') IN ('declined', 'ended') ORDER BY rowid"
        )
        key = (key_id(market.key),)
        with self._store.statements() as run:
            (left,) = run.execute(size, key).fetchone()
            for name, length in run.execute(without_sale, key).fetchall():
                if left + bounds.CARD_BYTES_MAX <= bounds.DEALS_BYTES_MAX:
                    break
                run.execute("DELETE FROM deal WHERE name = ?", (name.decode(),))
                left -= length
        if left + bounds.CARD_BYTES_MAX > bounds.DEALS_BYTES_MAX:
            raise Refused(
                "deals",
                f"the deals with {market.server} take {left} bytes; a device stores at most "
                f"{bounds.DEALS_BYTES_MAX} of one market, and joins nothing more there",
            )

    def put(self, deal: Deal) -> Deal:
        """Store a deal."""
        document = {k: v for k, v in asdict(deal).items() if k != "card"}
        self._put("deal", "name", deal.name, document)
        return deal

    def change(self, deal: Deal, **items: Any) -> Deal:
        """Store a deal with some items changed."""
        return self.put(replace(deal, **items))

    def delivered(self, deal: Deal) -> list[Delivered]:
        """Return every update that may have been sent, by round."""
        with self._store.statements() as run:
            rows = run.execute(
                "SELECT round, hash, request, receipt FROM delivered WHERE task = ? ORDER BY round",
                (deal.account,),
            ).fetchall()
        with _readable("a receipt"):
            return [
                Delivered(
                    number,
                    hash.decode(),
                    request.decode(),
                    None if receipt is None else _receipt(receipt),
                )
                for number, hash, request, receipt in rows
            ]

    def set_request(self, deal: Deal, request: str) -> None:
        """Set the hash of the round request that the next update is stored with."""
        self._store.requests[deal.account] = request

    def unpaid_before(self, deal: Deal) -> int:
        """Return how many updates of ended deals with the same market have no receipt."""
        return sum(
            len(self.unpaid(each)[1])
            for each in self.deals()
            if each.market == deal.market and not each.is_live and each.name != deal.name
        )

    def is_paid(self, deal: Deal, round: int) -> bool:
        """Say whether the update of a round has its receipt."""
        with self._store.statements() as run:
            row = run.execute(
                "SELECT 1 FROM delivered WHERE task = ? AND round = ? AND receipt IS NOT NULL",
                (deal.account, _storable(round)),
            ).fetchone()
        return row is not None

    def unpaid(self, deal: Deal) -> tuple[int, list[int]]:
        """Return how many updates have their receipt, and the rounds of those without one."""
        with self._store.statements() as run:
            count = "SELECT count(*) FROM delivered WHERE task = ?"
            (updates,) = run.execute(count, (deal.account,)).fetchone()
            rows = run.execute(
                "SELECT round FROM delivered WHERE task = ? AND receipt IS NULL ORDER BY round",
                (deal.account,),
            ).fetchall()
        return updates - len(rows), [number for (number,) in rows]

    def keep_receipt(self, deal: Deal, round: int, receipt: dict[str, Any]) -> None:
        """Store the receipt of an update; the first one counts."""
        with self._store.statements() as run:
            run.execute(
                "UPDATE delivered SET receipt = ? WHERE task = ? AND round = ? AND receipt IS NULL",
                (json.dumps(receipt), deal.account, round),
            )

    def refused(self, deal: Deal, round: int | None, refusal: Refused) -> None:
        """Store a refusal, once for each round and reason.

        A market that goes on for ever does not fill the disk: only the first of a deal, and of
        all, are stored (``bounds``).
        """
        number = None if round is None else _storable(round)
        with self._store.statements() as run:
            of_all, of_deal = run.execute(
                "SELECT count(*), count(*) FILTER (WHERE deal = ?) FROM refusal", (deal.name,)
            ).fetchone()
            same = run.execute(
                "SELECT 1 FROM refusal WHERE deal = ? AND round IS ? AND reason = ?",
                (deal.name, number, refusal.reason),
            ).fetchone()
            room = of_all < bounds.REFUSALS_MAX and of_deal < bounds.DEAL_REFUSALS_MAX
            if same is None and room:
                run.execute(
                    "INSERT INTO refusal (at_ms, deal, round, reason, sentence) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (self._now_ms(), deal.name, number, refusal.reason, str(refusal)),
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
        self, table: Literal["market", "deal"], parse: Callable[[dict[str, Any]], T]
    ) -> list[T]:
        with self._store.statements() as run:
            rows = run.execute(f"SELECT document FROM {table} ORDER BY rowid").fetchall()
        with _readable(f"a {table}"):
            return [parse(json.loads(document)) for (document,) in rows]

    def _put(self, table: str, column: str, key: str, document: dict[str, Any]) -> None:
        with self._store.statements() as run:
            run.execute(
                f"INSERT INTO {table} ({column}, document) VALUES (?, ?) "
                f"ON CONFLICT ({column}) DO UPDATE SET document = excluded.document",
                (key, json.dumps(document)),
            )


def _storable(round: int) -> int:
    """Return a round that the market named as a number that the file can hold."""
    return max(-(2**62), min(round, 2**62))


def _market(document: dict[str, Any]) -> KnownMarket:
    return KnownMarket(**document | {"keys_since": tuple(document["keys_since"])})


def _deal(document: dict[str, Any]) -> Deal:
    strategy = BiddingStrategy(**document.pop("strategy"))
    replies = tuple(SentReply(**reply) for reply in document.pop("replies"))
    deal = Deal(**document, strategy=strategy, replies=replies)
    if deal.state not in get_args(DealState):
        raise ValueError(deal.state)
    # Whatever is derived from the document must be readable too.
    _ = deal.name, deal.account, float(deal.cap), deal.card, deal.payment
    _ = deal.terms and deal.agreed
    return deal


def _receipt(text: bytes) -> dict[str, Any]:
    signed: dict[str, Any] = json.loads(text)
    _ = signed["receipt"]["round"], int(signed["receipt"]["earned_micro"])
    _ = int(signed["receipt"]["held_micro"])
    return signed


@contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except (FedbourseError, TypeError, ValueError, LookupError, AttributeError, RecursionError):
        raise InvalidFile(f"the device's file is damaged: {what} cannot be read") from None
