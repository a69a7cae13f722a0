"""Buyers and owners who trade all at once, in many threads, while a market is struck."""

from __future__ import annotations

import json
import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedbourse.errors import FedbourseError
from fedbourse.testing.e2e.supervised import Supervised
from fedbourse.testing.e2e.trade import BUYER, CARD, Client, Owner, Trade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUYERS = (BUYER, "buyer:bravo")
OWNERS = {f"owner:{name}": 1.0 + 0.05 * n for n, name in enumerate(("ann", "bob", "cy", "dee"))}
LIVE_MAX = 3
"""Tasks that a buyer has under way at once."""
SHORT = {
    "interest_s": 6.0,
    "tick_s": 2.0,
    "plans_s": 15.0,
    "terms_s": 5.0,
    "review_s": 0.5,
    "round_s": 4.0,
}
"""Deadlines that act while the market is struck."""
ENDED = ("completed", "cancelled")


class Soaked(Supervised):
    """A market whose clients wait at a gate while it is down."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Start it."""
        self.gate = threading.Event()
        self.gate.set()
        self.under_way: set[tuple[str, str]] = set()
        super().__init__(*arguments, **options)

    def mend(self, seconds: float = 0.0) -> None:
        """Wait as a client does; somebody else mends."""
        self.gate.wait(120)
        time.sleep(min(seconds, 0.05))

    @contextmanager
    def sending(self, caller: str, key: str) -> Iterator[None]:
        """Know of a write from before it is sent until its response."""
        self.under_way.add((caller, key))
        try:
            yield
        finally:
            self.under_way.discard((caller, key))


class Load:
    """Buyers and owners, each in a thread of its own, who trade until they are told to end."""

    def __init__(self, market: Soaked, seed: int) -> None:
        """Let everybody in."""
        self.market = market
        self.refused = 0
        """Requests that came too late, or asked for more than there was."""
        self.ending = threading.Event()
        self.failures: list[BaseException] = []
        self._paying_in = threading.Lock()
        self._trade = Trade(market)
        self.auditor = self._trade.client("auditor:kay")
        self.buyers = [self._trade.client(party) for party in BUYERS]
        self.owners = [self._trade.owner(party, value) for party, value in OWNERS.items()]
        self._threads = [
            threading.Thread(target=self._live, args=(life, who, random.Random(f"{seed} {n}")))
            for n, (life, who) in enumerate(
                [(self._buy, buyer) for buyer in self.buyers]
                + [(self._sell, owner) for owner in self.owners]
            )
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let everybody finish, and close all connections."""
        self.ending.set()
        for thread in self._threads:
            thread.join()
        self._trade.close()

    def _live(self, life: Callable[..., None], who: Client, rng: random.Random) -> None:
        try:
            life(who, rng)
        except Exception as error:
            self.failures.append(error)

    @contextmanager
    def _perhaps(self) -> Iterator[None]:
        """Try what may come too late, or too often."""
        try:
            yield
        except FedbourseError as error:
            if error.http_status >= 500:
                raise
            self.refused += 1

    def _buy(self, buyer: Client, rng: random.Random) -> None:
        live: dict[str, float] = {}
        count = 0
        while not (self.ending.is_set() and not live):
            count += 1
            with self._perhaps():
                if not self.ending.is_set() and count % 10 == 1:
                    self._pay_in(buyer, count)
                if not self.ending.is_set() and len(live) < LIVE_MAX:
                    card = CARD | {"deadlines": SHORT, "rounds": rng.choice((2, 3))}
                    task = buyer.write("create", "/v1/tasks", card, name=str(count))["task"]
                    buyer.write("open", f"/v1/tasks/{task}/open", {}, name=task)
                    live[task] = time.monotonic() + rng.uniform(0.3, 1.5)
                if rng.random() < 0.1:
                    take_out(buyer, rng, at_most=100_000)
            for task, ready in list(live.items()):
                with self._perhaps():
                    state = buyer.get(f"/v1/tasks/{task}")["state"]
                    if state in ENDED:
                        del live[task]
                    elif rng.random() < 0.01:
                        body = {"reason": "enough"}
                        buyer.write("cancel", f"/v1/tasks/{task}/cancel", body, name=task)
                    elif state == "open" and time.monotonic() > ready:
                        buyer.write("announce", f"/v1/tasks/{task}/announce", {}, name=task)
            time.sleep(rng.uniform(0.02, 0.1))

    def _pay_in(self, buyer: Client, count: int) -> None:
        reference = f"{buyer.party}-{count}"
        line = {"reference": reference, "party": buyer.party, "credits": "12"}
        file_name = self.market.folder / "payments" / "received.jsonl"
        with self._paying_in, file_name.open("a") as file:
            file.write(json.dumps(line) + "\n")
        buyer.write("deposit", "/v1/deposits", {"reference": reference}, name=reference)

    def _sell(self, owner: Owner, rng: random.Random) -> None:
        done: set[tuple[object, ...]] = set()
        while not self.ending.is_set() or self._active(owner):
            for task in owner.get("/v1/tasks?limit=20")["tasks"]:
                self._take_part(owner, task, done, rng)
            if rng.random() < 0.1:
                with self._perhaps():
                    take_out(owner, rng, at_most=200_000)
            time.sleep(rng.uniform(0.02, 0.1))

    def _active(self, owner: Owner) -> bool:
        return any(t["state"] not in ENDED for t in owner.get("/v1/tasks?limit=50")["tasks"])

    def _take_part(
        self,
        owner: Owner,
        task: dict[str, Any],
        done: set[tuple[object, ...]],
        rng: random.Random,
    ) -> None:
        id, state = task["task"], task["state"]
        # A task may be settled twice after one tick: then its log has grown.
        step = (id, state, task["tick"], task["round"], state == "settled" and task["events"])
        if step in done or state in ENDED:
            return
        done.add(step)
        with self._perhaps():
            if state == "open":
                owner.like(task, report=rng.random() < 0.5)
            elif state == "announced":
                owner.plan(task)
            elif owner.get(f"/v1/tasks/{id}/participation")["allocation"] is None:
                return  # it came too late, or was not chosen
            elif state == "settled":
                owner.decide(id, accept=rng.random() < 0.9)
            elif rng.random() < 0.97:
                owner.update(id, task["round"])


def take_out(who: Client, rng: random.Random, *, at_most: int) -> None:
    """Withdraw a little."""
    body = {"amount_micro": rng.randint(1, at_most), "destination": f"the bank of {who.party}"}
    who.write("withdraw", "/v1/withdrawals", body, name=f"{rng.getrandbits(64):x}")
