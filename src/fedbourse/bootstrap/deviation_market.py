"""Scenarios of ``study deviations`` played against the market's own commands.

A task runs from its card to its last credit through the commands that buyers, devices and the
clock use, over a temporary SQLite file, with time simulated. All commands of one task share a
transaction, since only the disk would notice the difference, and the study plays thousands.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import Conflict, InvalidInput, NotAllowed
from fedbourse.game.discovery import TICKS_MAX
from fedbourse.ledger import OUTSIDE
from fedbourse.market import answers, buying, clock, selling
from fedbourse.market.lifecycle import ENDED, Command
from fedbourse.market.parties import Caller, Device
from fedbourse.market.service import FUND, Market, present, taken
from fedbourse.market.task import State
from fedbourse.storage import SqlStore
from fedbourse.study.deviations.play import Allocation, Offer, Outcome, Terms
from fedbourse.units import MICRO_CREDITS_PER_CREDIT
from fedbourse.wire.canonical import canonical
from fedbourse.wire.keys import SigningKey, key_id
from fedbourse.wire.messages import least_pay, privacy_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fedbourse.market.ports import Store, Unit
    from fedbourse.market.task import Line, Task
    from fedbourse.study.deviations.play import Scenario

BUYER = Caller("buyer:study", frozenset({"buyer"}))
LATENCY_MS = 1000
"""How long a device needs to see a total and reply to it."""
_DEPOSIT_MICRO = 10**15
_START_MS = 1_800_000_000_000


@contextmanager
def deviation_market() -> Iterator[DeviationMarket]:
    """Open a market in a temporary folder, with a buyer that has all the money it needs."""
    with (
        tempfile.TemporaryDirectory(prefix="fedbourse-deviations-") as folder,
        SqlStore(f"sqlite:///{Path(folder) / 'market.db'}", connections=1) as store,
    ):
        study = DeviationMarket(store)
        with store.begin() as unit:
            route = OUTSIDE, BUYER.party
            study.market.pay(unit, "deposit", route, _DEPOSIT_MICRO, "to study with")
        yield study


@dataclass
class DeviationMarket:
    """Plays scenarios: time and devices are the study's, every rule is the market's."""

    store: Store
    time_ms: int = _START_MS
    market: Market = field(init=False)
    keys: dict[str, SigningKey] = field(default_factory=dict)
    """The device of each name that has ever taken part."""

    def __post_init__(self) -> None:
        """Make the market, with a key of its own."""
        self.market = Market(SigningKey.generate(), now_ms=lambda: self.time_ms)

    def play(self, scenario: Scenario) -> Outcome:
        """Play one task to its end."""
        with self.store.begin() as unit:
            for name in scenario.names:
                self._enrol(unit, name)
            return _Trade(self, unit, scenario).outcome()

    def _enrol(self, unit: Unit, name: str) -> None:
        if name not in self.keys:
            key = self.keys[name] = SigningKey.generate()
            device = Device(key_id(key.public), f"owner:{name}", key.public, self.time_ms)
            unit.put_device(device)


class _Trade:
    """One task, while it is played."""

    def __init__(self, study: DeviationMarket, unit: Unit, scenario: Scenario) -> None:
        """Publish the task, let all names register their interest, and announce the first total."""
        self._study, self._market, self._unit = study, study.market, unit
        self._setting, self._names = scenario.setting, scenario.names
        self._refusals: list[str] = []
        self._own: dict[str, dict[int, float]] = {name: {} for name in self._names}
        self._before = unit.balance(BUYER.party), unit.balance(FUND)
        task = buying.create(self._market, unit, BUYER, self._setting.card)
        self._id = task.id
        buying.open_task(self._market, unit, BUYER, task.id, confirm_upfront=True)
        for name in self._names:
            selling.register_interest(
                self._market,
                unit,
                self._caller(name),
                task.id,
                value=None,
                previous=task.card.digest,
            )
        buying.announce(self._market, unit, BUYER, task.id)

    def outcome(self) -> Outcome:
        """Play until the task has ended; say who sold what, and where the money went."""
        steps = {
            State.ANNOUNCED: self._tick,
            State.SETTLED: self._decide,
            State.TRAINING: self._deliver,
        }
        while (task := self._task()).state not in ENDED:
            steps[task.state](task)
        spent = self._before[0] - self._unit.balance(BUYER.party)
        fund = self._unit.balance(FUND) - self._before[1]
        trained = self._unit.has_round(task.id, 0)
        return Outcome(
            completed=task.state is State.COMPLETED,
            rounds=task.card.rounds,
            allocations={
                _name_of(line): Allocation(
                    budget=present(line.budget),
                    payment=line.payment / MICRO_CREDITS_PER_CREDIT,
                    earned=line.earned / MICRO_CREDITS_PER_CREDIT,
                    delivered=line.answered,
                )
                for line in (self._unit.lines(task.id) if trained else ())
            },
            refunded=self._setting.reward - spent / MICRO_CREDITS_PER_CREDIT,
            fund=fund / MICRO_CREDITS_PER_CREDIT,
            ticks=len(task.totals),
            refusals=tuple(self._refusals),
        )

    # announced

    def _tick(self, task: Task) -> None:
        """Let names reply at once; if the tick is then still open, reply or leave at its end."""
        ends = present(task.tick_ends_ms)
        offers = {
            name: Offer(
                self._setting.reward,
                task.totals,
                last=self._is_last(task),
                own=tuple((task.totals[tick], r) for tick, r in self._own[name].items()),
            )
            for name in self._inside(task)
        }
        # In a tick that ends before a device can have seen it, who waits for it comes first.
        steps = [
            (self._study.time_ms + LATENCY_MS, self._reply_at_once),
            (ends - 1, self._reply_late),
        ]
        for moment, step in sorted(steps, key=itemgetter(0)):
            if moment < ends:
                self._study.time_ms = moment
                step(task, offers)
                if self._moves_on():
                    return
        self._study.time_ms = ends
        self._moves_on()

    def _is_last(self, task: Task) -> bool:
        """Say whether a tick is the last one, if it lasts as long as it may."""
        after = present(task.tick_ends_ms) + task.card.deadlines.tick_s * 1000
        count = task.tick - task.first_tick + 1
        return after > present(task.deadline_ms) or count >= TICKS_MAX

    def _reply_at_once(self, task: Task, offers: dict[str, Offer]) -> None:
        for name, offer in offers.items():
            self._reply(task, name, self._names[name].replies(offer))
        if self._setting.settle_at == task.tick:
            self._attempt(partial(taken, self._unit, BUYER, task.id, Command.SETTLE))

    def _reply_late(self, task: Task, offers: dict[str, Offer]) -> None:
        for name, offer in offers.items():
            if self._names[name].leaves(offer):
                selling.withdraw(self._market, self._unit, self._caller(name), task.id)
            else:
                self._reply(task, name, self._names[name].late_replies(offer))

    def _inside(self, task: Task) -> list[str]:
        """Return the names that are not out of the task."""
        out = self._unit.exits(task.id, [f"owner:{name}" for name in self._names])
        return [name for name in self._names if f"owner:{name}" not in out]

    def _reply(self, task: Task, name: str, budgets: Sequence[float]) -> None:
        """Reply with the first budget that the market accepts."""
        for budget in budgets:
            reply = partial(
                selling.submit_plan,
                self._market,
                self._unit,
                self._caller(name),
                task.id,
                tick=task.tick,
                budget=budget,
                previous=task.offer,
            )
            if self._attempt(reply):
                self._own[name][task.tick] = budget
                return

    # settled

    def _decide(self, task: Task) -> None:
        """Let names sign, decline, or do neither."""
        for line in self._unit.lines(task.id):
            offered = selling.offered_terms(self._market, task, line)
            terms, name = offered["terms"], _name_of(line)
            least = least_pay(
                budget=terms["budget"],
                total_budget=terms["total_budget"],
                reward_micro=present(task.reward),
            )
            signs = self._names[name].signs(
                Terms(
                    budget=terms["budget"],
                    payment=terms["payment_micro"] / MICRO_CREDITS_PER_CREDIT,
                    least_payment=least / MICRO_CREDITS_PER_CREDIT,
                )
            )
            if signs is not None:
                signature = self._study.keys[name].sign(canonical(terms)) if signs else None
                selling.decide(
                    self._market,
                    self._unit,
                    self._caller(name),
                    task.id,
                    accept=signs,
                    terms_digest=offered["digest"],
                    signature=signature,
                )
        self._wait(present(task.deadline_ms))

    # training

    def _deliver(self, task: Task) -> None:
        """Let those who want to deliver an update; noise of the right size passes for one."""
        for line in self._unit.lines(task.id):
            if self._names[_name_of(line)].delivers(task.round):
                privacy = privacy_terms(task.card, task=task.id, budget=present(line.budget))
                update = np.full(task.card.dimension, privacy.scale).astype("<f8").tobytes()
                answers.accept_answer(
                    self._market,
                    self._unit,
                    self._caller(_name_of(line)),
                    task.id,
                    round=task.round,
                    body=update,
                )
        self._wait(present(task.deadline_ms))

    # the market's side

    def _task(self) -> Task:
        return self._unit.task(self._id)

    def _moves_on(self) -> bool:
        return clock.move_on(self._market, self._unit, self._id)

    def _wait(self, until_ms: int) -> None:
        """Let the market act: at once, or when time has come."""
        if not self._moves_on():
            self._study.time_ms = until_ms
            self._moves_on()

    def _attempt(self, command: Callable[[], object]) -> bool:
        """Carry out a command; where the market refuses it, remember why.

        These commands write nothing before they have checked everything.
        """
        try:
            command()
        except (Conflict, InvalidInput, NotAllowed) as refusal:
            self._refusals.append(str(refusal))
            return False
        return True

    def _caller(self, name: str) -> Caller:
        key = self._study.keys[name]
        return Caller(f"owner:{name}", frozenset({"owner"}), key_id(key.public))


def _name_of(line: Line) -> str:
    return line.owner.removeprefix("owner:")
