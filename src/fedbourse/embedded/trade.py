"""A trade on a market in this process, from the published card to the last payment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbourse.embedded.simulated_devices import SimulatedDevices, owner_number, terms_of
from fedbourse.errors import InvalidGame
from fedbourse.game import regret
from fedbourse.learning.rounds import evaluate_round
from fedbourse.market.commands.buyer import announce, create, open_task, put_reference
from fedbourse.market.evidence_report import evidence_report
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.offers import micro_credits_of
from fedbourse.market.parties import Caller
from fedbourse.market.records import State
from fedbourse.market.report import Participant, Trade
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, credits_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedbourse.embedded.market import EmbeddedMarket
    from fedbourse.embedded.simulated_devices import SimulatedOwners
    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Records
    from fedbourse.learning.rounds import RoundResult
    from fedbourse.market.records import Entry, Task
    from fedbourse.tasks.card import TaskCard

BUYER = Caller("buyer:demo", frozenset({"buyer"}))
_AUDITOR = Caller("auditor:demo", frozenset({"auditor"}))
_ENTRIES_AT_ONCE = 10_000


class EmbeddedTrade:
    """One buyer with one task, and the devices of all who are interested in it.

    ``reference`` is the file that the card's evidence commits to.
    """

    def __init__(
        self,
        embedded: EmbeddedMarket,
        card: TaskCard,
        model: Model,
        validation: Records,
        owners: SimulatedOwners,
        *,
        reference: bytes | None = None,
        on_step: Callable[[str], None] = lambda sentence: None,
        on_round: Callable[[RoundResult], None] = lambda result: None,
    ) -> None:
        self._embedded, self._card, self._model = embedded, card, model
        self._validation, self._owners, self._reference = validation, owners, reference
        self._on_step, self._on_round = on_step, on_round
        self.devices = SimulatedDevices(embedded, model, owners)
        self._rounds: list[RoundResult] = []

    def run(self) -> Trade:
        """Carry the trade from its draft to its end."""
        task = self._announce()
        steps = {
            State.ANNOUNCED: self._tick,
            State.SETTLED: self._sign,
            State.TRAINING: self._train,
        }
        while task.state not in ENDED:
            task = steps[task.state](task)
        if task.state is State.CANCELLED:
            with self._embedded.store.read() as tx:
                (end,) = tx.events(task.id, after=task.last_sequence - 1, limit=1)
            raise InvalidGame(f"the market cancelled the task: {end.body['reason']}")
        self.devices.close(task)
        return self._finished(task)

    def _announce(self) -> Task:
        """Pay in, publish the card, gather interest, and announce the reward."""
        embedded, card = self._embedded, self._card
        embedded.deposit(BUYER, micro_credits_of(card.reserve))
        with embedded.store.begin() as tx:
            draft = create(embedded.market, tx, BUYER, card)
            if self._reference is not None:
                put_reference(embedded.market, tx, BUYER, draft.id, content=self._reference)
            task = open_task(embedded.market, tx, BUYER, draft.id)
        self.devices.register(task)
        self._on_step(f"{len(self.devices)} owners are interested; none is asked for its value")
        with embedded.store.begin() as tx:
            task = announce(embedded.market, tx, BUYER, task.id)
            (event,) = tx.events(task.id, after=task.last_sequence - 1, limit=1)
        self._method = str(event.body["offer"]["method"])
        assert task.reward is not None
        reward = credits_text(task.reward)
        self._on_step(f"the buyer announces a reward of {reward} credits ({self._method})")
        self._on_step(f"escrow holds {reward} credits")
        return task

    def _tick(self, task: Task) -> Task:
        """Let the devices reply to a total, and the market announce the next one or settle."""
        self.devices.reply(task)
        task = self._embedded.advance(task.id)
        if task.state is State.SETTLED:
            budgets = self._budgets(task)
            self._on_step(
                f"settled after {len(task.totals)} ticks: {np.count_nonzero(budgets)} owners sell "
                f"{budgets.sum():.4g} rho in all"
            )
        return task

    def _sign(self, task: Task) -> Task:
        """Let the devices of those who were chosen sign or decline their terms."""
        self.devices.decide(task)
        task = self._embedded.advance(task.id)
        if task.state is State.TRAINING:
            with self._embedded.store.read() as tx:
                signed = tx.count_allocations(task.id, state="signed")
            self._on_step(f"{signed} owners have signed; training starts")
        return task

    def _train(self, task: Task) -> Task:
        """Let the devices update the model of a round, and evaluate what the market makes of it."""
        number, updates = task.round, self.devices.update(task)
        task = self._embedded.advance(task.id)
        if task.state is not State.CANCELLED:
            result = evaluate_round(
                number,
                self._model,
                self._parameters(task),
                self._validation,
                updates=updates,
                step_size=self._card.step_size,
            )
            self._rounds.append(result)
            self._on_round(result)
        return task

    def _parameters(self, task: Task) -> FloatArray:
        """Return the model of the open round, or the last one."""
        with self._embedded.store.read() as tx:
            return np.frombuffer(tx.round(task.id, task.round).model, dtype="<f8")

    def _budgets(self, task: Task) -> FloatArray:
        """Return what every owner sells; 0 where it was not chosen."""
        budgets = np.zeros(len(self.devices))
        with self._embedded.store.read() as tx:
            for allocation in tx.allocations(task.id):
                budgets[owner_number(allocation)] = terms_of(task, allocation).rho
        return budgets

    def _finished(self, task: Task) -> Trade:
        """Return what the market's books and the devices' filters say at the end."""
        owners = self._owners
        assert task.reward is not None
        assert task.total_budget is not None
        with self._embedded.store.read() as tx:
            signed = [each for each in tx.allocations(task.id) if each.trained]
            earned = {each.owner: tx.balance(each.owner) for each in signed}
            evidence = evidence_report(tx, _AUDITOR, task.id) if task.card.evidence else None
        participants = [
            Participant(
                owner=owner_number(each),
                terms=terms_of(task, each),
                payment=each.payment,
                delivered=each.delivered,
                earned=earned[each.owner],
                spent=self.devices.spent(task, owner_number(each)),
                lifetime_cap=float(owners.lifetime_caps[owner_number(each)]),
            )
            for each in sorted(signed, key=owner_number)
        ]
        return Trade(
            task=task,
            reward=task.reward,
            reward_method=self._method,
            totals=task.totals,
            regret=regret(
                owners.values,
                self._budgets(task),
                reward=task.reward / MICRO_CREDITS_PER_CREDIT,
                caps=owners.lifetime_caps,
            ),
            participants=tuple(participants),
            declined=tuple(self.devices.declined),
            parameters=self._parameters(task),
            rounds=tuple(self._rounds),
            evidence=evidence,
            transfers=tuple(self._entries()),
        )

    def _entries(self) -> Iterator[Entry]:
        """Yield every transfer of the market's books."""
        after = 0
        with self._embedded.store.read() as tx:
            while entries := tx.entries(after=after, limit=_ENTRIES_AT_ONCE):
                yield from entries
                after = entries[-1].sequence
