"""A whole trade in one process: reward, plans, settlement, escrow, training, payout.

Nothing here knows an owner's value but the owners themselves: the card assumes a distribution, and
the equilibrium is found by announcing totals (``game.discovery``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame, Refused
from fedbourse.game import discover, regret
from fedbourse.learning.engines import LocalEngine
from fedbourse.learning.rounds import train
from fedbourse.ledger import OUTSIDE, Book, Transfer
from fedbourse.market.offers import choose_reward
from fedbourse.market.settlement import settle
from fedbourse.privacy.filter import Filter
from fedbourse.privacy.memory_store import MemoryStore
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits, credits_text
from fedbourse.wire.messages import earned, privacy_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedbourse.game import Discovered
    from fedbourse.game.columns import BoolArray, FloatArray, IntArray
    from fedbourse.learning.engines import Answers
    from fedbourse.learning.models import Model
    from fedbourse.learning.partition import Federation
    from fedbourse.learning.records import Records
    from fedbourse.learning.rounds import Round, Run
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms
    from fedbourse.wire.card import TaskCard


@dataclass(frozen=True, eq=False)
class Owners:
    """The owners who are interested, and what each keeps to itself."""

    values: FloatArray
    lifetime_caps: FloatArray
    records: Callable[[IntArray], Federation]
    """The records of the owners who are asked for, read only when training starts."""
    noise: Callable[[Sequence[Terms]], Noise]
    available: Callable[[int, int], BoolArray] | None = None
    """Who of those who train is there in a round; see ``LocalEngine``."""


@dataclass(frozen=True, eq=False)
class Trade:
    """A completed trade. Arrays have one entry for each owner who was chosen, in rising order."""

    card: TaskCard
    interested: int
    reward: MicroCredits
    reward_method: str
    discovery: Discovered
    regret: float
    """The most that any owner could gain by another budget, in credits."""
    owners: IntArray
    plans: FloatArray
    payments: IntArray
    terms: tuple[Terms, ...]
    declined: tuple[str, ...]
    """Why owners who had a plan did not sign."""
    lifetime_caps: FloatArray
    spent: FloatArray
    """What each device's filter says is gone, in zCDP."""
    run: Run
    book: Book

    @property
    def account(self) -> str:
        """The escrow account of the task."""
        return _escrow(self.card)


def run_trade(
    card: TaskCard,
    model: Model,
    validation: Records,
    owners: Owners,
    *,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda sentence: None,
    on_round: Callable[[Round], None] = lambda seen: None,
) -> Trade:
    """Carry a trade from the published card to the last payment.

    ``validation`` are the buyer's own records, by which it judges the model.
    """
    interested = len(owners.values)
    on_step(f"{interested} owners are interested; none is asked for its value")
    reward, method = choose_reward(card, interested=interested)
    on_step(f"the buyer announces a reward of {credits_text(reward)} credits ({method})")

    amount = reward / MICRO_CREDITS_PER_CREDIT
    found = discover(owners.values, reward=amount, caps=owners.lifetime_caps)
    plans = np.minimum(found.budgets, owners.lifetime_caps)
    on_step(
        f"{found.rounds} announcements later the plans stand still: "
        f"{np.count_nonzero(plans)} owners sell {plans.sum():.4g} rho in all"
    )
    payments = settle(plans, reward=reward)
    book = Book()
    _deposit(book, card, reward)
    on_step(f"escrow holds {credits_text(reward)} credits")

    signed, declined = _sign(card, plans, payments, owners.lifetime_caps)
    if len(signed) < 2:
        raise InvalidGame(f"fewer than two owners signed: {'; '.join(declined) or 'nobody did'}")
    chosen = np.array(sorted(signed), dtype=np.int64)
    terms = tuple(signed[i][0] for i in chosen.tolist())
    engine = LocalEngine(
        model,
        owners.records(chosen),
        terms,
        owners.noise(terms),
        filters=[signed[i][1] for i in chosen.tolist()],
        available=owners.available,
    )
    on_step(f"{len(chosen)} owners have signed; training starts")
    answered = np.zeros(len(chosen), dtype=np.int64)

    def after_round(seen: Round, answers: Answers) -> None:
        answered[answers.owners] += 1
        for i in answers.owners.tolist():
            _vest(book, card, int(chosen[i]), int(payments[chosen[i]]), int(answered[i]))
        on_round(seen)

    run = train(
        engine,
        model,
        validation,
        step_size=card.step_size,
        rounds=card.rounds,
        weights=card.weights,
        seed=seed,
        on_round=after_round,
    )
    for guard in engine.filters:
        guard.close(card.digest)
    _refund(book, card)
    return Trade(
        card=card,
        interested=interested,
        reward=reward,
        reward_method=method,
        discovery=found,
        regret=regret(owners.values, plans, reward=amount, caps=owners.lifetime_caps),
        owners=chosen,
        plans=plans[chosen],
        payments=payments[chosen],
        terms=terms,
        declined=declined,
        lifetime_caps=owners.lifetime_caps[chosen],
        spent=np.array([float(guard.accounts()[0].spent) for guard in engine.filters]),
        run=run,
        book=book,
    )


def _sign(
    card: TaskCard, plans: FloatArray, payments: IntArray, caps: FloatArray
) -> tuple[dict[int, tuple[Terms, Filter]], tuple[str, ...]]:
    """Let each owner with pay sign its terms; a device that cannot reserve the budget declines."""
    signed, declined = {}, []
    for i in np.flatnonzero(payments).tolist():
        terms = privacy_terms(card, task=card.digest, budget=float(plans[i]))
        guard = Filter(MemoryStore(), lifetime_cap=float(caps[i]))
        try:
            guard.agree(terms)
        except Refused as refusal:
            declined.append(f"owner {i}: {refusal}")
        else:
            signed[i] = terms, guard
    return signed, tuple(declined)


def _escrow(card: TaskCard) -> str:
    return f"escrow:{card.digest[:8]}"


def _deposit(book: Book, card: TaskCard, reward: MicroCredits) -> None:
    task = card.digest[:8]
    book.post(Transfer(f"{task}/deposit", OUTSIDE, "buyer", reward, "the buyer pays in"))
    book.post(
        Transfer(f"{task}/escrow", "buyer", _escrow(card), reward, "the whole reward is held")
    )


def _vest(book: Book, card: TaskCard, owner: int, payment: int, answered: int) -> None:
    """Pay what one more answered round has earned: the difference of two floors."""
    due = earned(payment, answered=answered, rounds=card.rounds)
    before = earned(payment, answered=answered - 1, rounds=card.rounds)
    if due > before:
        book.post(
            Transfer(
                f"{card.digest[:8]}/owner:{owner}/{answered}",
                _escrow(card),
                f"owner:{owner}",
                MicroCredits(due - before),
                f"answer {answered} of {card.rounds}",
            )
        )


def _refund(book: Book, card: TaskCard) -> None:
    left = book.balance(_escrow(card))
    if left:
        book.post(Transfer(f"{card.digest[:8]}/refund", _escrow(card), "buyer", left, "not earned"))
