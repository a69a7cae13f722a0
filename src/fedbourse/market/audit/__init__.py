"""A task recomputed from its records: the log, what owners said, the settlement, and the money.

Works on the plain documents that the market publishes, so that anybody can run it on a machine of
its own: an auditor on everything, an owner on its allocation and the totals, a stranger on the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.market.audit.evidence import check_evidence
from fedbourse.market.audit.heads import SeenHead, verify_head
from fedbourse.market.audit.history import (
    check_card,
    check_chain,
    check_life,
    check_reward,
    check_totals,
)
from fedbourse.market.audit.money import check_escrow, check_vesting, verify_books
from fedbourse.market.audit.own_allocation import (
    check_own_allocation,
    check_own_earnings,
    check_own_payment,
)
from fedbourse.market.audit.promises import (
    check_activity,
    check_allocations,
    check_interests,
    check_payments,
    check_plans,
    check_replies,
    check_settlement,
    check_sums,
    check_terms,
    check_updates,
)
from fedbourse.market.audit.records import Check, TaskRecords, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedbourse.market.audit.records import Document

__all__ = ["Check", "SeenHead", "verify_books", "verify_head", "verify_task"]

_CHECKS: dict[str, Callable[[TaskRecords], str]] = {
    "card": check_card,
    "log": check_chain,
    "life cycle": check_life,
    "reward": check_reward,
    "totals": check_totals,
    "interests": check_interests,
    "replies": check_replies,
    "sums": check_sums,
    "activity": check_activity,
    "settlement": check_settlement,
    "plans": check_plans,
    "payments": check_payments,
    "allocations": check_allocations,
    "terms": check_terms,
    "updates": check_updates,
    "evidence": check_evidence,
    "vesting": check_vesting,
    "escrow": check_escrow,
}
_OWN_CHECKS: dict[str, Callable[[TaskRecords], str]] = {
    "own allocation": check_own_allocation,
    "own payment": check_own_payment,
    "own earnings": check_own_earnings,
}


def verify_task(
    *,
    task: Document,
    card: Document,
    events: list[Document],
    owners: list[Document] | None = None,
    own: Document | None = None,
    entries: list[Document] | None = None,
    escrow_micro: int | None = None,
    updates: Mapping[int, list[Document]] | None = None,
    evidence: Document | None = None,
) -> list[Check]:
    """Recompute everything that these documents allow, and say what differs.

    ``owners`` is what ``TaskView.everybody`` returns, ``own`` what ``TaskView.participation``
    returns, with its ``proof``; ``entries`` are the transfers of the escrow account, and
    ``escrow_micro`` is what it holds; ``updates`` are those of each round; ``evidence`` is what
    it was computed from, with the ``findings`` of its report.
    """
    records = TaskRecords(task, card, events, owners, own, entries, escrow_micro, updates, evidence)
    checks = [
        run(name, check, records)
        for name, check in _CHECKS.items()
        if check is not check_evidence or card.get("evidence") is not None
    ]
    if own is not None:
        checks += [run(name, check, records) for name, check in _OWN_CHECKS.items()]
    return checks
