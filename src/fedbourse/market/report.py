"""The report of a finished trade as one plain document: pages and terminals only lay it out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.market.offers import predicted_accuracy
from fedbourse.market.service import escrow
from fedbourse.privacy import DELTA, epsilon, whole_owner
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.records import Scaling
    from fedbourse.learning.rounds import RoundResult
    from fedbourse.market.evidence_report import EvidenceReport
    from fedbourse.market.records import Entry, Task
    from fedbourse.privacy.terms import Terms
    from fedbourse.units import MicroCredits


@dataclass(frozen=True)
class Participant:
    """An owner who took part, and what became of its allocation."""

    owner: int
    """Its number among all who were interested."""
    terms: Terms
    payment: MicroCredits
    """What was agreed, of which a part is earned with each delivered round."""
    delivered: int
    earned: MicroCredits
    spent: float
    """What its device's filter says is gone, in zCDP."""
    lifetime_cap: float


@dataclass(frozen=True, eq=False)
class Trade:
    """A completed trade, as the market's books and all devices together know it."""

    task: Task
    reward: MicroCredits
    reward_method: str
    totals: tuple[float, ...]
    """The total budgets that were announced, and the one that was settled at."""
    regret: float
    """The most that any owner could gain by another budget, in credits."""
    participants: tuple[Participant, ...]
    declined: tuple[str, ...]
    """Why owners who were chosen did not sign."""
    parameters: FloatArray
    rounds: tuple[RoundResult, ...]
    transfers: tuple[Entry, ...]
    """All entries of the market's books."""
    evidence: EvidenceReport | None = None
    """What evidence found, where the card has it."""


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
    card = trade.task.card
    budgets = np.array([each.terms.rho for each in trade.participants])
    return {
        "version": __version__,
        "origin": dict(origin),
        "card": asdict(card) | {"digest": card.digest},
        "scaling": {"shift": scaling.shift.tolist(), "scale": scaling.scale.tolist()},
        "interested": trade.task.interested,
        "participants": len(trade.participants),
        "declined": list(trade.declined),
        "reward_method": trade.reward_method,
        "accuracy_value": card.assumed.accuracy_value,
        "regret": trade.regret,
        "announcements": list(trade.totals),
        "total_budget": float(budgets.sum()),
        "delta": DELTA,
        "whole_owner_budget": whole_owner(float(budgets.max()), samples=card.samples),
        "owners": _owners(trade, budgets),
        "parameters": trade.parameters.tolist(),
        "rounds": [asdict(each) for each in trade.rounds],
        "accuracy": {
            "measured": trade.rounds[-1].accuracy,
            "chance": card.assumed.chance,
            "ceiling": card.assumed.ceiling,
            "validation_records": validation_records,
            "predicted": _predicted(trade, budgets),
            "references": dict(references),
        },
        "money": trade_money(trade),
        "evidence": None if trade.evidence is None else _evidence(trade, trade.evidence),
        "transfers": _transfers(trade),
    }


def _owners(trade: Trade, budgets: FloatArray) -> list[dict[str, Any]]:
    """Return what each participant sold, spent and earned."""
    epsilons = epsilon(rho=budgets, delta=DELTA).tolist()
    findings = _findings(trade.evidence) if trade.evidence else {}
    return [
        {
            "owner": each.owner,
            "budget": each.terms.rho,
            "epsilon": sold,
            "noise_scale": each.terms.scale,
            "payment_micro": int(each.payment),
            "delivered": each.delivered,
            "earned_micro": int(each.earned),
            "spent": each.spent,
            "spent_epsilon": epsilon(rho=each.spent, delta=DELTA) if each.spent else 0.0,
            "lifetime_cap": each.lifetime_cap,
            "cap_share": each.spent / each.lifetime_cap,
            "finding": findings.get(f"owner:{each.owner}"),
        }
        for each, sold in zip(trade.participants, epsilons, strict=True)
    ]


def _findings(evidence: EvidenceReport) -> dict[str, dict[str, Any]]:
    """Return what each owner's updates showed in the last block in which it was asked."""
    stands = {each.block: each.stands for each in evidence.blocks}
    return {
        each.owner: {
            "verdict": "void"
            if each.verdict == "dismissed" and not stands.get(each.block)
            else each.verdict,
            "score": each.score,
            "dismissed_round": each.dismissed_round,
        }
        for each in evidence.findings
    }


def _predicted(trade: Trade, budgets: FloatArray) -> dict[str, float]:
    """Return the accuracy that each model predicts for the budgets sold."""
    card = trade.task.card
    owners = np.array([each.owner for each in trade.participants], dtype=np.int64)
    return predicted_accuracy(card, budgets, owners, interested=trade.task.interested)


def _evidence(trade: Trade, evidence: EvidenceReport) -> dict[str, Any]:
    """Return what evidence found, and what became of the pay that was held for it."""
    blocks = f"{trade.task.id}/owner:"
    released = sum(
        each.amount
        for each in trade.transfers
        if each.id.startswith(blocks) and "/block-" in each.id
    )
    return {
        "summary": evidence.summary,
        "stands": any(each.stands for each in evidence.blocks),
        "shown": evidence.shown,
        "undecided": evidence.undecided,
        "dismissed": evidence.dismissed,
        "held_micro": released + evidence.forfeited_micro,
        "released_micro": released,
        "forfeited_micro": evidence.forfeited_micro,
    }


def trade_money(trade: Trade) -> dict[str, int]:
    """Return where the reward went, from the entries of the books alone.

    What escrow held beyond the reward, and gave back, is no part of it.
    """
    account = escrow(trade.task.id)
    into = sum(each.amount for each in trade.transfers if each.credit == account)
    to_owners = to_buyer = to_fund = 0
    for each in trade.transfers:
        if each.debit == account and each.credit.startswith("owner:"):
            to_owners += each.amount
        elif each.debit == account and each.credit == trade.task.buyer:
            to_buyer += each.amount
        elif each.debit == account:
            to_fund += each.amount
    return {
        "reward_micro": int(trade.reward),
        "payments_micro": sum(each.payment for each in trade.participants),
        "earned_micro": to_owners,
        "refunded_micro": to_buyer - (into - trade.reward),
        "fund_micro": to_fund,
        "escrow_micro": into - to_owners - to_buyer - to_fund,
        "transfers": len(trade.transfers),
    }


def _transfers(trade: Trade) -> list[dict[str, Any]]:
    """Return all transfers; in place of the task's id, which no seed repeats, its card's hash."""
    id, name = trade.task.id, trade.task.card.digest[:8]
    return [
        {
            "id": each.id.replace(id, name),
            "debit": each.debit.replace(id, name),
            "credit": each.credit.replace(id, name),
            "amount": int(each.amount),
            "memo": each.memo,
        }
        for each in trade.transfers
    ]
