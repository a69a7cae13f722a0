"""The report of a finished trade as one plain document: pages and terminals only lay it out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedbourse.game import ACCURACY_MODELS, Accuracy
from fedbourse.market.offers import training_of
from fedbourse.privacy import DELTA, epsilon, whole_owner
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.records import Scaling
    from fedbourse.market.trade import Trade


def trade_report(
    trade: Trade,
    *,
    validation_records: int,
    scaling: Scaling,
    references: Mapping[str, float],
    origin: Mapping[str, object],
) -> dict[str, Any]:
    """Return what happened: who took part, what it paid, cost and brought.

    ``references`` are accuracies to compare with; ``origin`` is what it takes to get the trade
    again.
    """
    budgets: FloatArray = trade.plans
    book, card, assumed = trade.book, trade.card, trade.card.assumed
    precisions = training_of(card).precisions(budgets, trade.owners)
    predicted = {
        name: Accuracy(name, chance=assumed.chance, ceiling=assumed.ceiling).of(
            precisions, trade.interested
        )
        for name in ACCURACY_MODELS
    }
    epsilons = epsilon(rho=budgets, delta=DELTA).tolist()
    spent_epsilons = [
        epsilon(rho=spent, delta=DELTA) if spent else 0.0 for spent in trade.spent.tolist()
    ]
    owners = [
        {
            "owner": int(owner),
            "budget": terms.rho,
            "epsilon": epsilons[i],
            "noise_scale": terms.scale,
            "payment_micro": int(trade.payments[i]),
            "answered": int(trade.run.answered[i]),
            "earned_micro": int(book.balance(f"owner:{owner}")),
            "spent": float(trade.spent[i]),
            "spent_epsilon": spent_epsilons[i],
            "lifetime_cap": float(trade.lifetime_caps[i]),
            "cap_share": float(trade.spent[i] / trade.lifetime_caps[i]),
        }
        for i, (owner, terms) in enumerate(zip(trade.owners, trade.terms, strict=True))
    ]
    earned = sum(owner["earned_micro"] for owner in owners)
    return {
        "version": __version__,
        "origin": dict(origin),
        "card": asdict(card) | {"digest": card.digest},
        "scaling": {"shift": scaling.shift.tolist(), "scale": scaling.scale.tolist()},
        "interested": trade.interested,
        "participants": len(owners),
        "declined": list(trade.declined),
        "reward_method": trade.reward_method,
        "weight": assumed.weight,
        "regret": trade.regret,
        "announcements": list(trade.discovery.totals),
        "total_budget": float(budgets.sum()),
        "delta": DELTA,
        "whole_owner_budget": whole_owner(float(budgets.max()), samples=card.samples),
        "owners": owners,
        "parameters": trade.run.parameters.tolist(),
        "rounds": [asdict(seen) for seen in trade.run.rounds],
        "accuracy": {
            "measured": trade.run.accuracy,
            "chance": assumed.chance,
            "ceiling": assumed.ceiling,
            "validation_records": validation_records,
            "predicted": predicted,
            "references": dict(references),
        },
        "money": {
            "reward_micro": int(trade.reward),
            "payments_micro": int(trade.payments.sum()),
            "earned_micro": earned,
            "refunded_micro": sum(
                int(t.amount)
                for t in book.transfers
                if (t.source, t.target) == (trade.account, "buyer")
            ),
            "escrow_micro": int(book.balance(trade.account)),
            "transfers": len(book.transfers),
        },
        "transfers": [asdict(transfer) for transfer in book.transfers],
    }
