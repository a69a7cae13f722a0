"""The agent: guards an owner's privacy and sells it; used by the command line and applications."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from fedbourse.device.advice import Advice, advise
from fedbourse.device.bidding_strategy import BiddingStrategy
from fedbourse.device.data import FileData, check_data, check_schema, device_records
from fedbourse.device.deal import Deal, KnownMarket
from fedbourse.device.deal_worker import DealWorker
from fedbourse.device.deals import Deals
from fedbourse.device.enrolment import enrol
from fedbourse.device.folder import DeviceFolder, DeviceSettings
from fedbourse.device.ledger import Ledger, ledger_of
from fedbourse.device.live_deal import LEFT_TASK, Owner
from fedbourse.device.market_client import MarketClient
from fedbourse.device.reservations import Reservations
from fedbourse.device.runner import run_deals
from fedbourse.device.verification import DeviceCheck, verify_deal
from fedbourse.errors import (
    Conflict,
    FedbourseError,
    InvalidInput,
    NotFound,
    ProtocolError,
    Refused,
    Unreachable,
)
from fedbourse.privacy.filter import Filter, left_of
from fedbourse.privacy.noise import ExactNoise
from fedbourse.protocol import bounds

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from fedbourse.device.data import DataCheck, DataSource
    from fedbourse.device.deal_worker import Until
    from fedbourse.device.live_deal import Event
    from fedbourse.device.policy import Policy
    from fedbourse.device.record_rule import RecordSpec
    from fedbourse.learning.device_records import DeviceRecords
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms
    from fedbourse.tasks.card import TaskCard


class Agent:
    """One owner's device.

    One process at a time may sell from a folder; ``read_only`` agents may look on meanwhile.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        data: DataSource | None = None,
        policy: Policy | None = None,
        noise: Callable[[Sequence[Terms]], Noise] | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
        read_only: bool = False,
    ) -> None:
        """Open a device's folder.

        ``data`` and ``policy`` take the place of those in the folder's settings. ``noise`` is for
        tests and studies: a device draws its own, from the system's randomness.
        """
        self.folder = DeviceFolder(folder)
        settings = self.folder.settings
        if data is None and settings.data is not None:
            data = FileData(settings.data)
        self._data = data
        policy = settings.limits if policy is None else policy
        for method in ("check_card", "check_terms"):
            if not callable(getattr(policy, method, None)):
                raise InvalidInput(
                    f"a policy must have the methods check_card and check_terms; found no {method}"
                )
        self.tell = on_event
        self._read_only = read_only
        self._store = self.folder.spend(read_only=read_only)
        self.guard = Filter(self._store, lifetime_cap=settings.lifetime_cap)
        self.deals = Deals(self._store)
        self._lock, self._followed = threading.Lock(), set[str]()  # names of deals
        self.stop = threading.Event()
        """Set it, and whatever works on a deal returns soon; nothing is lost."""
        self._owner = Owner(
            settings=settings,
            policy=policy,
            deals=self.deals,
            guard=self.guard,
            records=self._records,
            noise=noise or ExactNoise,
            tell=self.tell,
            stop=self.stop,
        )

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        settings: DeviceSettings,
        *,
        separate_cap: bool = False,
        **options: Any,
    ) -> Agent:
        """Make a device's folder, readable by its owner alone, and open it.

        A data file that another folder guards is refused, unless ``separate_cap`` says that a
        second lifetime cap about the same records is meant.
        """
        DeviceFolder.create(folder, settings, separate_cap=separate_cap)
        return cls(folder, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder."""
        self._store.close()

    @property
    def settings(self) -> DeviceSettings:
        """The owner's settings."""
        return self.folder.settings

    def enrol(self, server: str, token: str, *, ca_file: str | None = None) -> KnownMarket:
        """Enrol in a market with a one-time token, and pin its key."""
        market, rotations = enrol(server, token, self.folder.key, ca_file=ca_file)
        pinned = self.deals.markets()
        for each in pinned:  # the device may know it by an earlier key
            rotated = each.after(rotations)
            if rotated.signing_key == market.key:
                market = replace(market, key=rotated.key, keys_since=rotated.keys_since)
                break
        for each in pinned:
            if each.key == market.key and each.server != server:
                raise Conflict(
                    f"the market with this key is pinned at {each.server}, and this is {server}; "
                    f"if it has moved: fedbourse device move-market {each.server} {server}"
                )
        self.deals.put_market(market)
        return market

    def move_market(self, old: str, new: str, *, ca_file: str | None = None) -> KnownMarket:
        """Follow a market to a new address, on its owner's word; its pinned key stays."""
        market = replace(self.market(old), server=new, ca_file=ca_file)
        with self._client(market) as client:
            market = client.market
        self.deals.put_market(market)
        return market

    def market(self, server: str | None = None) -> KnownMarket:
        """Return the market at an address; without one, the only one there is."""
        markets = self.deals.markets()
        matches = [each for each in markets if server in (None, each.server)]
        if len(matches) == 1:
            return matches[0]
        servers = ", ".join(each.server for each in markets)
        if not markets:
            raise NotFound("the device is not enrolled in any market; use fedbourse device enrol")
        if server is None:
            raise InvalidInput(f"the device is enrolled in several markets; name one of {servers}")
        raise NotFound(f"the device is not enrolled at {server}; it is at {servers}")

    def tasks(
        self,
        state: str | None = "open",
        *,
        server: str | None = None,
        at_most: int = bounds.TASKS_MAX,
    ) -> list[dict[str, Any]]:
        """Return the tasks that a market publishes, the newest first, at most so many."""
        with self._client(self.market(server)) as client:
            return client.tasks(state, at_most=at_most)

    def advise(
        self, task: str, *, server: str | None = None, budgets: Sequence[float] | None = None
    ) -> Advice:
        """Return what budgets would earn and cost in a task."""
        with self._client(self.market(server)) as client:
            _, card = client.card(task)
            return advise(
                card,
                client.task(task),
                value=self._owner.bid_value,
                lifetime_cap=self.settings.lifetime_cap,
                left=self.left,
                budgets=budgets,
            )

    def card(self, task: str, *, server: str | None = None) -> TaskCard:
        """Return a task's card."""
        return self.cards([task], server=server)[0]

    def cards(self, tasks: Sequence[str], *, server: str | None = None) -> list[TaskCard]:
        """Return the cards of some tasks of one market."""
        with self._client(self.market(server)) as client:
            return [client.card(task)[1] for task in tasks]

    def check_data(self, card: RecordSpec) -> DataCheck:
        """Return how the owner's records fit a card, or a recipe; for the owner alone."""
        return check_data(card, self._source())

    @property
    def left(self) -> float:
        """What is neither spent nor promised of the lifetime cap, in rho."""
        return left_of(self.settings.lifetime_cap, self.guard.accounts())

    def join(
        self, task: str, strategy: BiddingStrategy | None = None, *, server: str | None = None
    ) -> Deal:
        """Register interest in a task, if policy, cap and the data's schema allow it.

        No record is read: who joins must tell nothing about them. Joining again replaces the
        bidding strategy while the task is open.
        """
        strategy = strategy or BiddingStrategy()
        market = self.market(server)
        with self._client(market) as client:
            buyer, card = client.card(task)
            deal = Deal(
                market=market.key,
                task=task,
                owner=market.owner,
                buyer=buyer,
                card_document=card.document,
                strategy=strategy,
                cap=strategy.cap(card, left=self.left),
            )
            before = self.deals.deal(deal.name)
            # One that came to nothing before terms were signed may be tried again.
            if before is not None and (before.state == "signed" or before.terms is not None):
                raise Conflict(f"task {task} was joined before; its deal is {before.state}")
            if (state := client.task(task)["state"]) != "open":
                hint = "; you have joined it: device run continues"
                raise Conflict(
                    f"a task can be joined while it is open; task {task} is {state}"
                    f"{hint if before is not None and before.state == 'joined' else ''}"
                )
            try:
                self._check_join(deal, market)
            except Refused as refusal:
                self.deals.refused(deal, None, refusal)
                raise
            check_schema(card, self._source())
            deal = self.deals.put(deal)
            try:
                client.register(deal, self.settings.value if strategy.report_value else None)
            except (ProtocolError, Unreachable):  # it may have arrived: ``run`` registers again
                self.deals.put(before or deal)
                raise
            except FedbourseError as error:  # the strategy of before still holds
                self.deals.put(before or replace(deal, state="declined", outcome=str(error)))
                raise
        return deal

    def _check_join(self, deal: Deal, market: KnownMarket) -> None:
        """Refuse a task that policy, caps or unpaid updates of the same market forbid."""
        card, budget, settings = deal.card, deal.strategy.budget, self.settings
        self._owner.policy.check_card(card, buyer=deal.buyer)
        self.deals.make_room(market, besides=deal.name)
        unpaid = self.deals.unpaid_before(deal)
        if unpaid >= settings.max_unpaid_rounds:
            raise Refused(
                "unpaid",
                f"{market.server} gave no receipt for {unpaid} updates in tasks that are over; the "
                f"owner risks {settings.max_unpaid_rounds} "
                f"(max_unpaid_rounds in {self.folder.path / 'device.json'})",
            )
        if self.left < (budget or 0.0):
            raise Refused(
                "over-cap",
                f"a budget of {budget:g} does not fit: {self.left:g} is left of the lifetime cap "
                f"of {settings.lifetime_cap:g}",
            )
        most = min(deal.cap, budget or deal.cap)
        if most < card.min_budget:
            raise Refused(
                "min-budget",
                f"the card buys at least {card.min_budget:g} rho from an owner; for sale is at "
                f"most {most:g}",
            )

    def leave_task(self, task: str) -> Deal:
        """Leave a task before it is settled: nothing is sold, and nothing is owed.

        That cannot be undone. A deal worker ends with its next look at the task.
        """
        deal = self.deal_of(task)
        if deal.outcome == LEFT_TASK:
            return deal
        with self._client(self._market_of(deal)) as client:
            try:
                client.leave_task(task)
            except NotFound:
                if deal.state != "joined":
                    raise
                # The market never received the interest: it is enough not to register again.
        self._owner.left.add(deal.name)
        Reservations(deal, self.guard).free()
        return self.deals.change(deal, state="declined", outcome=LEFT_TASK, terms=None)

    def follow(
        self,
        deal: Deal,
        until: Until = "ended",
        *,
        on_start: Callable[[DealWorker], None] = lambda worker: None,
    ) -> Deal:
        """Follow a deal: plan at each tick, sign or decline, send updates; reconnect if needed."""
        market = self._market_of(deal)
        deal = self.deals.deal(deal.name) or deal  # the caller's may be outdated
        self._source()  # no terms are signed without data to compute updates from
        with self._alone(deal), self._client(market) as client:
            worker = DealWorker(deal, client, self._owner)
            on_start(worker)
            return worker.until(until)

    def run(
        self, *, join_open: bool = False, only: Deal | None = None, until: Until = "ended"
    ) -> list[Deal]:
        """Follow all deals at once, or ``only`` one, until they have ended; return them.

        ``join_open`` joins every open task that the policy accepts, and continues until ``stop`` is
        set. A deal that fails does not end the others; its error is raised once they are done.
        """
        return run_deals(self, until, join_open=join_open, only=only)

    def ledger(self) -> Ledger:
        """Return what was spent, for whom, and what was earned."""
        return ledger_of(self.deals, self.guard)

    def verify(self, task: str) -> list[DeviceCheck]:
        """Compare the device's own records of a task with the market's."""
        deal = self.deal_of(task)
        with self._client(self._market_of(deal)) as client:
            return verify_deal(deal, self.deals, client)

    def deal_of(self, task: str) -> Deal:
        """Return the deal about a task."""
        for deal in reversed(self.deals.deals()):
            if deal.task == task:
                return deal
        raise NotFound(f"the device has no deal about task {task!r:.60}")

    def _market_of(self, deal: Deal) -> KnownMarket:
        for market in self.deals.markets():
            if market.key == deal.market:
                return market
        raise NotFound(f"this device is not enrolled in the market of task {deal.task}")

    def _records(self, deal: Deal) -> DeviceRecords:
        return device_records(deal.card, self._source(), secret=self.folder.records_secret)

    def _source(self) -> DataSource:
        if self._data is None:
            raise InvalidInput(
                "the device has no data: name a file in its settings, or pass a data source"
            )
        return self._data

    @contextmanager
    def _alone(self, deal: Deal) -> Iterator[None]:
        """Let only one thread follow a deal: unpaid updates are counted before each charge."""
        with self._lock:
            if deal.name in self._followed:
                raise Conflict(f"task {deal.task} is already followed in this process")
            self._followed.add(deal.name)
        try:
            yield
        finally:
            with self._lock:
                self._followed.discard(deal.name)

    @contextmanager
    def _client(self, market: KnownMarket) -> Iterator[MarketClient]:
        # A read-only agent stores nothing, and follows the rotation again the next time.
        on_rotation = (lambda market: None) if self._read_only else self.deals.put_market
        with closing(MarketClient(market, self.folder.key, on_rotation=on_rotation)) as client:
            client.check_market()
            yield client
