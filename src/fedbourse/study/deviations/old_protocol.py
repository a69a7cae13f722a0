"""The protocol before its rules: a model, since the market no longer speaks it.

P moved by the same rule as today, but

- a reply was a plan that stood until its owner replaced it, at any tick, however it contradicted
  earlier ones; who fell silent kept its last plan;
- the buyer could settle whenever it liked with the plans at hand, and so did the deadline;
- devices signed for any pay of at least their value;
- the pay of who declined, did not sign or did not deliver went back to the buyer.

``unearned: share`` did not exist either; it is played here as if those who delivered had got that
pay, which is what it was weighed against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedbourse.game.mechanisms import pay_proportionally
from fedbourse.game.price_discovery import PriceDiscovery, TickSum
from fedbourse.market.offers import first_total
from fedbourse.market.unearned import shared_pay
from fedbourse.protocol.messages import earned
from fedbourse.study.deviations.play import (
    PlayedOffer,
    PlayedTerms,
    Scenario,
    Stake,
    Strategy,
    TradeOutcome,
)
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits

if TYPE_CHECKING:
    from collections.abc import Sequence

TICKS_MAX = 200
"""However fast devices replied, there were no more announcements."""
_FITS = 1e-5
"""How far from 1 shares may sum, for each owner, where P has converged."""


def play_old_protocol(scenario: Scenario) -> TradeOutcome:
    """Play a task as it would have gone before the rules."""
    ticks = _Ticks(scenario)
    ticks.run()
    return _trained(scenario, ticks)


@dataclass
class _Ticks:
    """Price discovery, and the plans that it ends with."""

    scenario: Scenario
    plans: dict[str, float] = field(default_factory=dict)
    totals: list[float] = field(default_factory=list)
    full_length: int = 0
    """Ticks that lasted as long as they may: what brings the deadline nearer."""

    def run(self) -> None:
        """Announce totals until P has converged, time is up, or the buyer settles."""
        setting, names = self.scenario.setting, dict(self.scenario.names)
        first = first_total(setting.card, reward=setting.reward, interested=len(names))
        discovery = PriceDiscovery.start(total_budget=first)
        while True:
            self.totals.append(discovery.total_budget)
            tick = len(self.totals) - 1
            self._reply(names)
            over = self.full_length >= setting.ticks or tick + 1 >= TICKS_MAX
            if over or tick == setting.settle_at:
                return
            sums = self._sums()
            discovery = discovery.after(sums)
            if discovery.converged:
                if abs(sums.share_sum - 1.0) <= _FITS * max(sums.positive, 1):
                    return
                # Replies contradicted each other: the bracket says nothing about P any more.
                discovery = PriceDiscovery.start(total_budget=sums.total_budget).after(sums)

    def _reply(self, names: dict[str, Strategy]) -> None:
        setting = self.scenario.setting
        last = self.full_length + 1 >= setting.ticks or len(self.totals) >= TICKS_MAX
        offer = PlayedOffer(setting.reward, tuple(self.totals), last=last)
        waits = False
        for name, strategy in names.items():
            replies = strategy.replies(offer)
            waits = waits or not replies
            self._replace(name, replies)
        if waits:
            self.full_length += 1
            for name in [name for name, strategy in names.items() if strategy.leaves(offer)]:
                del names[name]
                self.plans.pop(name, None)
            for name, strategy in names.items():
                self._replace(name, strategy.late_replies(offer))

    def _replace(self, name: str, replies: Sequence[float]) -> None:
        """Let the first reply stand in place of the plan before; nothing was refused."""
        if replies:
            self.plans[name] = replies[0]

    def _sums(self) -> TickSum:
        total, positive = self.totals[-1], [plan for plan in self.plans.values() if plan]
        return TickSum(total, len(positive), math.fsum(plan / total for plan in positive))


def _trained(scenario: Scenario, ticks: _Ticks) -> TradeOutcome:
    """Settle with the plans at hand, let names sign, and train with those who did."""
    setting = scenario.setting
    reward = MicroCredits(round(setting.reward * MICRO_CREDITS_PER_CREDIT))
    plans = {name: plan for name, plan in ticks.plans.items() if plan}
    payments = pay_proportionally(list(plans.values()), reward=reward).tolist() if plans else []
    signed = {
        name: payment
        for name, payment in zip(plans, payments, strict=True)
        if payment and scenario.names[name].signs(PlayedTerms(plans[name], _credits(payment), 0.0))
    }
    if len(signed) < setting.card.min_participants:
        return TradeOutcome(False, setting.rounds, {}, setting.reward, 0.0, len(ticks.totals))
    rounds = [
        [name for name in signed if scenario.names[name].delivers(number)]
        for number in range(setting.rounds)
    ]
    delivered = {name: sum(name in names for names in rounds) for name in signed}
    pay = {
        name: earned(payment, delivered=delivered[name], rounds=setting.rounds)
        for name, payment in signed.items()
    }
    if setting.vesting == "upfront":
        pay = {name: MicroCredits(payment) for name, payment in signed.items()}
    elif setting.unearned == "share":
        shared = shared_pay(signed, rounds, rounds=setting.rounds)
        pay = {name: MicroCredits(amount) for name, amount in shared.items()}
    return TradeOutcome(
        completed=True,
        rounds=setting.rounds,
        allocations={
            name: Stake(plans[name], _credits(signed[name]), _credits(pay[name]), count)
            for name, count in delivered.items()
        },
        refunded=_credits(reward - sum(pay.values())),
        fund=0.0,
        ticks=len(ticks.totals),
    )


def _credits(micro: int) -> float:
    return micro / MICRO_CREDITS_PER_CREDIT
