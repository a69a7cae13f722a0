"""The agent: one object that guards an owner's privacy and sells it for as much as it is worth.

The command line and applications use the same one.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from fedbourse.agent.advice import Advice, advise
from fedbourse.agent.data import FileData, check_data, check_schema, device_records
from fedbourse.agent.deals import Deal, Deals, Market
from fedbourse.agent.folder import DeviceFolder, DeviceSettings
from fedbourse.agent.following import WITHDRAWN, Following, Owner
from fedbourse.agent.ledger import Ledger, ledger_of
from fedbourse.agent.market_client import MarketClient, enrolment
from fedbourse.agent.reservations import Reservations
from fedbourse.agent.running import Running
from fedbourse.agent.verifying import Check, verify_deal
from fedbourse.agent.wish import Wish
from fedbourse.errors import (
    Conflict,
    FedbourseError,
    InvalidInput,
    NotFound,
    Refused,
    Unreachable,
)
from fedbourse.privacy.fast_noise import FastNoise
from fedbourse.privacy.filter import Filter, left_of
from fedbourse.privacy.noise import ExactNoise
from fedbourse.wire import bounds
from fedbourse.wire.canonical import digest
from fedbourse.wire.connection import Connection
from fedbourse.wire.keys import key_id
from fedbourse.wire.messages import enrolment_message

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from fedbourse.agent.data import DataCheck, DataSource
    from fedbourse.agent.following import Event, Until
    from fedbourse.agent.policy import Policy
    from fedbourse.agent.record_rule import RecordSpec
    from fedbourse.learning.device_records import DeviceRecords
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms
    from fedbourse.wire.card import TaskCard


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
        rules = settings.limits if policy is None else policy
        for rule in ("check_card", "check_terms"):
            if not callable(getattr(rules, rule, None)):
                raise InvalidInput(f"a policy has the rules check_card and check_terms; no {rule}")
        self.tell = on_event
        self._read_only = read_only
        self._store = self.folder.spend(read_only=read_only)
        self.guard = Filter(self._store, lifetime_cap=settings.lifetime_cap)
        self.deals = Deals(self._store)
        self._lock, self._followed = threading.Lock(), set[str]()
        self.stop = threading.Event()
        """Set it, and whatever follows a deal returns soon; nothing is lost."""
        self._owner = Owner(
            settings=settings,
            policy=rules,
            deals=self.deals,
            guard=self.guard,
            records=self._records,
            noise=noise or (ExactNoise if settings.noise == "exact" else FastNoise),
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
        """Return the agent."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the folder go."""
        self.close()

    def close(self) -> None:
        """Let the folder go."""
        self._store.close()

    @property
    def settings(self) -> DeviceSettings:
        """What the owner told its device."""
        return self.folder.settings

    def enrol(self, server: str, token: str, *, ca_file: str | None = None) -> Market:
        """Enrol in a market with a one-time token, and pin its key."""
        if not token.strip().startswith("fbe_"):
            raise InvalidInput(
                "a device enrols with a one-time token, which begins with fbe_ (fedbourse token "
                "enrol makes it); found something else"
            )
        key = self.folder.key
        small = bounds.DEVICE_DOCUMENT_BYTES_MAX
        with Connection(server, key=key, ca_file=ca_file, document_bytes_max=small) as line:
            body = {"token": token.strip(), "public_key": key.public}
            # The same key each time: a device that ended before it knew can enrol once more.
            taken_in = line.post("/v1/enrolments", body, idempotency_key=digest(body)[:32])
        said = enrolment(taken_in)
        market = Market(
            key=said["market_public_key"],
            server=server,
            device=key_id(key.public),
            owner=said["owner"],
            ca_file=ca_file,
        )
        with Connection(
            server, market_key=market.key, ca_file=ca_file, document_bytes_max=small
        ) as line:
            # Everybody knows a market's public key; only the market itself can sign with it.
            message = enrolment_message(
                device=market.device, owner=market.owner, host=line.authority
            )
            line.check_signed(message, said["signature"])
            rotations = line.check_market().get("rotations")
        market = self._under_known_key(market, rotations)
        for known in self.deals.markets():
            if known.key == market.key and known.server != server:
                raise Conflict(
                    f"the market with this key is known at {known.server}, and this is {server}; "
                    f"if it has moved: fedbourse device move-market {known.server} {server}"
                )
        self.deals.put_market(market)
        return market

    def _under_known_key(self, market: Market, rotations: object) -> Market:
        """Return a market by the key that the device knows it by, if it is not a new one to it."""
        for known in self.deals.markets():
            since = known.after(rotations)
            if since.signing_key == market.key:
                return replace(market, key=since.key, keys_since=since.keys_since)
        return market

    def move_market(self, old: str, new: str, *, ca_file: str | None = None) -> Market:
        """Follow a market to a new address, on its owner's word; its key stays the one pinned."""
        market = replace(self.market(old), server=new, ca_file=ca_file)
        with self._client(market) as client:
            market = client.market
        self.deals.put_market(market)
        return market

    def market(self, server: str | None = None) -> Market:
        """Return the market at an address; without one, the only one there is."""
        markets = self.deals.markets()
        found = [each for each in markets if server in (None, each.server)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(each.server for each in markets)
        if not markets:
            raise NotFound("the device is enrolled in no market; fedbourse device enrol does that")
        if server is None:
            raise InvalidInput(f"the device is enrolled in several markets, name one of: {known}")
        raise NotFound(f"the device is not enrolled at {server}; it is at {known}")

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
        (card,) = self.cards([task], server=server)
        return card

    def cards(self, tasks: Sequence[str], *, server: str | None = None) -> list[TaskCard]:
        """Return the cards of some tasks of one market."""
        with self._client(self.market(server)) as client:
            return [client.card(task)[1] for task in tasks]

    def check_data(self, card: RecordSpec) -> DataCheck:
        """Return how the owner's records fit a card, or a recipe; nobody else hears of it."""
        return check_data(card, self._source())

    @property
    def left(self) -> float:
        """What is neither spent nor promised of the lifetime cap, in rho."""
        return left_of(self.settings.lifetime_cap, self.guard.accounts())

    def join(self, task: str, wish: Wish | None = None, *, server: str | None = None) -> Deal:
        """Register interest in a task, if policy, cap and the data's schema allow it.

        No record is looked at: who joins must tell nothing about them. Joining again replaces the
        wish while the task is open.
        """
        wish = wish or Wish()
        market = self.market(server)
        with self._client(market) as client:
            buyer, card = client.card(task)
            deal = Deal(
                market=market.key,
                task=task,
                owner=market.owner,
                buyer=buyer,
                card_document=card.document,
                wish=wish,
                cap=wish.cap(card, left=self.left),
            )
            before = self.deals.deal(deal.name)
            # One that came to nothing before terms were signed may be tried again.
            if before is not None and (before.state == "signed" or before.terms is not None):
                raise Conflict(f"task {task} was joined before; its deal is {before.state}")
            if (state := client.task(task)["state"]) != "open":
                joined = before is not None and before.state == "joined"
                raise Conflict(
                    f"a task can be joined while it is open; task {task} is {state}"
                    f"{'; you have joined it: device run goes on' if joined else ''}"
                )
            try:
                self._owner.policy.check_card(card, buyer=buyer)
                self.deals.make_room(market, besides=deal.name)
                unpaid = self.deals.unpaid_before(deal)
                if unpaid >= self.settings.risk_rounds:
                    raise Refused(
                        "unpaid",
                        f"{market.server} gave no receipt for {unpaid} answers in tasks that are "
                        f"over, and the owner risks {self.settings.risk_rounds} (risk_rounds in "
                        f"{self.folder.path / 'device.json'})",
                    )
                if self.left < (wish.budget or 0.0):
                    raise Refused(
                        "over-cap",
                        f"a budget of {wish.budget:g} does not fit: {self.left:g} is left of the "
                        f"lifetime cap of {self.settings.lifetime_cap:g}",
                    )
                if min(deal.cap, wish.budget or deal.cap) < card.min_budget:
                    raise Refused(
                        "min-budget",
                        f"the card buys at least {card.min_budget:g} rho from an owner; for sale "
                        f"is at most {min(deal.cap, wish.budget or deal.cap):g}",
                    )
            except Refused as refusal:
                self.deals.refused(deal, None, refusal)
                raise
            check_schema(card, self._source())
            deal = self.deals.put(deal)
            try:
                client.register(deal, self.settings.value if wish.report_value else None)
            except Unreachable:  # it may have been heard: ``run`` says it again
                self.deals.put(before or deal)
                raise
            except FedbourseError as error:  # what was wished before still holds
                self.deals.put(before or replace(deal, state="declined", outcome=str(error)))
                raise
        return deal

    def withdraw(self, task: str) -> Deal:
        """Step back from a task before it is settled: nothing is sold, and nothing is owed.

        That cannot be taken back. A thread that follows the deal ends with its next look.
        """
        deal = self.deal_of(task)
        if deal.outcome == WITHDRAWN:
            return deal
        with self._client(self._market_of(deal)) as client:
            try:
                client.withdraw(task)
            except NotFound:
                if deal.state != "joined":
                    raise
                # The market never heard of the interest: it is enough not to say it again.
        self._owner.withdrawn.add(deal.name)
        Reservations(deal, self.guard).free()
        return self.deals.change(deal, state="declined", outcome=WITHDRAWN, terms=None)

    def follow(
        self,
        deal: Deal,
        until: Until = "ended",
        *,
        on_start: Callable[[Following], None] = lambda following: None,
    ) -> Deal:
        """Follow a deal: plan at each tick, sign or decline, answer; reconnect where needed."""
        market = self._market_of(deal)
        deal = self.deals.deal(deal.name) or deal  # the caller's may be from before
        self._source()  # no terms are signed that nothing can be answered from
        with self._alone(deal), self._client(market) as client:
            following = Following(deal, client, self._owner)
            on_start(following)
            return following.until(until)

    def run(
        self, *, join_open: bool = False, only: Deal | None = None, until: Until = "ended"
    ) -> list[Deal]:
        """Follow all deals at once, or ``only`` one, until they have ended; return them.

        ``join_open`` joins every open task that the policy accepts, and goes on until ``stop`` is
        set. A deal that fails does not end the others; its error is raised once they are done.
        """
        return Running(self).until(until, join_open=join_open, only=only)

    def ledger(self) -> Ledger:
        """Return what was spent, for whom, and what was earned."""
        return ledger_of(self.deals, self.guard)

    def verify(self, task: str) -> list[Check]:
        """Compare the device's own records of a task with the market's."""
        deal = self.deal_of(task)
        with self._client(self._market_of(deal)) as client:
            return verify_deal(deal, self.deals, client)

    def deal_of(self, task: str) -> Deal:
        """Return the deal about a task."""
        found = [deal for deal in self.deals.deals() if deal.task == task]
        if not found:
            raise NotFound(f"the device has no deal about task {task!r:.60}")
        return found[-1]

    def _market_of(self, deal: Deal) -> Market:
        for market in self.deals.markets():
            if market.key == deal.market:
                return market
        raise NotFound(f"the market of task {deal.task} is not known to this device")

    def _records(self, deal: Deal) -> DeviceRecords:
        return device_records(deal.card, self._source(), secret=self.folder.records_secret)

    def _source(self) -> DataSource:
        if self._data is None:
            raise InvalidInput(
                "the device has no data: name a file in its settings, or give the agent a source"
            )
        return self._data

    @contextmanager
    def _alone(self, deal: Deal) -> Iterator[None]:
        """Let one thread alone follow a deal: what is unpaid is looked at before each charge."""
        with self._lock:
            if deal.name in self._followed:
                raise Conflict(f"task {deal.task} is followed in this process already")
            self._followed.add(deal.name)
        try:
            yield
        finally:
            with self._lock:
                self._followed.discard(deal.name)

    @contextmanager
    def _client(self, market: Market) -> Iterator[MarketClient]:
        # Somebody who only looks on writes nothing down, and follows again the next time.
        known = (lambda market: None) if self._read_only else self.deals.put_market
        client = MarketClient(market, self.folder.key, on_rotation=known)
        try:
            client.check_market()
            yield client
        finally:
            client.close()
