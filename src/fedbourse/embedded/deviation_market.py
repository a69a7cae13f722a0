"""Scenarios of ``study deviations`` played against the market's own commands.

A task runs from its card to its last credit through the commands that buyers, devices and the
scheduler use, on an embedded market. All commands of one task share a
transaction, since only the disk would notice the difference, and the study plays thousands.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.embedded.market import embedded_market
from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Conflict, InvalidInput, NotAllowed
from fedbourse.game.price_discovery import TICKS_MAX
from fedbourse.market import updates
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import scheduler
from fedbourse.market.lifecycle import ENDED, Command
from fedbourse.market.parties import Caller
from fedbourse.market.records import State
from fedbourse.market.service import FUND, present, taken
from fedbourse.protocol.messages import min_pay
from fedbourse.study.deviations.play import PlayedOffer, PlayedTerms, Stake, TradeOutcome
from fedbourse.study.deviations.sending import SeenRound, of_records
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fedbourse.embedded.market import EmbeddedDevice, EmbeddedMarket
    from fedbourse.game.columns import FloatArray
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Allocation as SettledAllocation
    from fedbourse.market.records import Task
    from fedbourse.study.deviations.play import Scenario

BUYER = Caller("buyer:study", frozenset({"buyer"}))
LATENCY_MS = 1000
"""How long a device needs to see a total and reply to it."""
_DEPOSIT = MicroCredits(10**15)


@contextmanager
def deviation_market() -> Iterator[DeviationMarket]:
    """Open a market in a temporary folder, with a buyer that has all the money it needs."""
    with embedded_market() as embedded:
        embedded.deposit(BUYER, _DEPOSIT)
        yield DeviationMarket(embedded)


@dataclass
class DeviationMarket:
    """Plays scenarios: time and devices are the study's, every rule is the market's."""

    embedded: EmbeddedMarket
    devices: dict[str, EmbeddedDevice] = field(default_factory=dict)
    """The device of each name that has ever taken part."""

    def play(self, scenario: Scenario) -> TradeOutcome:
        """Play one task to its end."""
        if fresh := [name for name in scenario.names if name not in self.devices]:
            enrolled = self.embedded.enrol(f"owner:{name}" for name in fresh)
            self.devices |= zip(fresh, enrolled, strict=True)
        with self.embedded.store.begin() as tx:
            return _Trade(self, tx, scenario).outcome()


class _Trade:
    """One task, while it is played."""

    def __init__(self, study: DeviationMarket, tx: Transaction, scenario: Scenario) -> None:
        self._time, self._devices, self._tx = study.embedded, study.devices, tx
        self._market = study.embedded.market
        self._setting, self._names = scenario.setting, scenario.names
        self._refusals: list[str] = []
        self._own: dict[str, dict[int, float]] = {name: {} for name in self._names}
        self._before = tx.balance(BUYER.party), tx.balance(FUND)
        task = buyer_commands.create(self._market, tx, BUYER, self._setting.card)
        self._id, self._sends = task.id, scenario.sends
        if (reference := self._setting.reference) is not None:
            buyer_commands.put_reference(self._market, tx, BUYER, task.id, content=reference)
        buyer_commands.open_task(self._market, tx, BUYER, task.id, confirm_upfront=True)
        for name in self._names:
            owner_commands.register_interest(
                self._market,
                tx,
                self._caller(name),
                task.id,
                value=None,
                previous=task.card.digest,
            )
        buyer_commands.announce(self._market, tx, BUYER, task.id)

    def outcome(self) -> TradeOutcome:
        """Play until the task has ended; say who sold what, and where the money went."""
        steps = {
            State.ANNOUNCED: self._tick,
            State.SETTLED: self._decide,
            State.TRAINING: self._deliver,
        }
        while (task := self._task()).state not in ENDED:
            steps[task.state](task)
        spent = self._before[0] - self._tx.balance(BUYER.party)
        fund = self._tx.balance(FUND) - self._before[1]
        trained = self._tx.has_round(task.id, 0)
        return TradeOutcome(
            completed=task.state is State.COMPLETED,
            rounds=task.card.rounds,
            allocations={
                _name_of(allocation): Stake(
                    budget=present(allocation.budget),
                    payment=allocation.payment / MICRO_CREDITS_PER_CREDIT,
                    earned=allocation.earned / MICRO_CREDITS_PER_CREDIT,
                    delivered=allocation.delivered,
                )
                for allocation in (self._tx.allocations(task.id) if trained else ())
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
            name: PlayedOffer(
                self._setting.reward,
                task.totals,
                last=self._is_last(task),
                own=tuple((task.totals[tick], r) for tick, r in self._own[name].items()),
            )
            for name in self._inside(task)
        }
        # In a tick that ends before a device can have seen it, who waits for it comes first.
        steps = [
            (self._time.now_ms + LATENCY_MS, self._reply_at_once),
            (ends - 1, self._reply_late),
        ]
        for moment, step in sorted(steps, key=itemgetter(0)):
            if moment < ends:
                self._time.now_ms = moment
                step(task, offers)
                if self._moves_on():
                    return
        self._time.now_ms = ends
        self._moves_on()

    def _is_last(self, task: Task) -> bool:
        """Say whether a tick is the last one, if it lasts as long as it may."""
        after = present(task.tick_ends_ms) + task.card.deadlines.tick_s * 1000
        count = task.tick - task.first_tick + 1
        return after > present(task.deadline_ms) or count >= TICKS_MAX

    def _reply_at_once(self, task: Task, offers: dict[str, PlayedOffer]) -> None:
        for name, offer in offers.items():
            self._reply(task, name, self._names[name].replies(offer))
        if self._setting.settle_at == task.tick:
            self._attempt(partial(taken, self._tx, BUYER, task.id, Command.SETTLE))

    def _reply_late(self, task: Task, offers: dict[str, PlayedOffer]) -> None:
        for name, offer in offers.items():
            if self._names[name].leaves(offer):
                owner_commands.leave_task(self._market, self._tx, self._caller(name), task.id)
            else:
                self._reply(task, name, self._names[name].late_replies(offer))

    def _inside(self, task: Task) -> list[str]:
        """Return the names that are not out of the task."""
        out = self._tx.exits(task.id, [f"owner:{name}" for name in self._names])
        return [name for name in self._names if f"owner:{name}" not in out]

    def _reply(self, task: Task, name: str, budgets: Sequence[float]) -> None:
        """Reply with the first budget that the market accepts."""
        for budget in budgets:
            reply = partial(
                owner_commands.submit_plan,
                self._market,
                self._tx,
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
        for allocation in self._tx.allocations(task.id):
            offered = owner_commands.offered_terms(self._market, task, allocation)
            terms, name = offered.terms, _name_of(allocation)
            least = min_pay(
                budget=terms["budget"],
                total_budget=terms["total_budget"],
                reward_micro=present(task.reward),
            )
            signs = self._names[name].signs(
                PlayedTerms(
                    budget=terms["budget"],
                    payment=terms["payment_micro"] / MICRO_CREDITS_PER_CREDIT,
                    min_payment=least / MICRO_CREDITS_PER_CREDIT,
                )
            )
            if signs is not None:
                signature = self._devices[name].key.sign(canonical(terms)) if signs else None
                owner_commands.decide(
                    self._market,
                    self._tx,
                    self._caller(name),
                    task.id,
                    accept=signs,
                    terms_digest=offered.digest,
                    signature=signature,
                )
        self._wait(present(task.deadline_ms))

    # training

    def _deliver(self, task: Task) -> None:
        """Let those who want to deliver an update."""
        for allocation in self._tx.allocations(task.id):
            name = _name_of(allocation)
            if allocation.state == "signed" and self._names[name].delivers(task.round):
                privacy = task.card.privacy_terms(task=task.id, budget=present(allocation.budget))
                update = self._update(task, name, scale=privacy.scale)
                updates.accept_update(
                    self._market,
                    self._tx,
                    self._caller(_name_of(allocation)),
                    task.id,
                    round=task.round,
                    body=update.astype("<f8").tobytes(),
                )
        self._wait(present(task.deadline_ms))

    def _update(self, task: Task, name: str, *, scale: float) -> FloatArray:
        """Return what a name sends; where nobody looks, numbers of the right size will do."""
        if task.card.evidence is None:
            return np.full(task.card.dimension, scale)
        models = [
            np.frombuffer(self._tx.round(task.id, number).model, dtype="<f8")
            for number in range(max(0, task.round - 1), task.round + 1)
        ]
        before = models[0] if len(models) > 1 else None
        own_round = SeenRound(name, task.card.build(), models[-1], before)
        noise = np.random.default_rng([zlib.crc32(name.encode()), task.round])
        sent = self._sends.get(name, of_records())(own_round)
        return sent + noise.standard_normal(len(sent)) * scale

    # the market's side

    def _task(self) -> Task:
        return self._tx.task(self._id)

    def _moves_on(self) -> bool:
        return scheduler.move_on(self._market, self._tx, self._id)

    def _wait(self, until_ms: int) -> None:
        """Let the market act: at once, or when time has come."""
        if not self._moves_on():
            self._time.now_ms = until_ms
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
        return self._devices[name].caller


def _name_of(allocation: SettledAllocation) -> str:
    return allocation.owner.removeprefix("owner:")
