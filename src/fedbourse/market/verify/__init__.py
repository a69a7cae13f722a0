"""A task recomputed from its records: the log, what owners said, the settlement, and the money.

Works on the plain documents that the market publishes, so that anybody can run it on a machine of
its own: an auditor on everything, an owner on its own line and the totals, a stranger on the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.market.verify.heads import SignedHead, verify_head
from fedbourse.market.verify.history import (
    check_card,
    check_chain,
    check_life,
    check_reward,
    check_totals,
)
from fedbourse.market.verify.money import check_escrow, check_vesting, verify_books
from fedbourse.market.verify.own_line import check_own_earnings, check_own_line, check_own_payment
from fedbourse.market.verify.promises import (
    check_activity,
    check_answers,
    check_interests,
    check_lines,
    check_payments,
    check_plans,
    check_replies,
    check_settlement,
    check_sums,
    check_terms,
)
from fedbourse.market.verify.records import Check, Records, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedbourse.market.verify.records import Document

__all__ = ["Check", "SignedHead", "verify_books", "verify_head", "verify_task"]

_CHECKS: dict[str, Callable[[Records], str]] = {
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
    "lines": check_lines,
    "terms": check_terms,
    "answers": check_answers,
    "vesting": check_vesting,
    "escrow": check_escrow,
}
_OWN_CHECKS: dict[str, Callable[[Records], str]] = {
    "own line": check_own_line,
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
    answers: Mapping[int, list[Document]] | None = None,
) -> list[Check]:
    """Recompute everything that these documents allow, and say what differs.

    ``owners`` is what ``documents.everybody`` gives, ``own`` what ``documents.mine`` gives, with
    the ``proof`` of ``documents.proof``; ``entries`` are the transfers of the escrow account, and
    ``escrow_micro`` is what it holds; ``answers`` are those of each round.
    """
    records = Records(task, card, events, owners, own, entries, escrow_micro, answers)
    checks = [run(name, check, records) for name, check in _CHECKS.items()]
    if own is not None:
        checks += [run(name, check, records) for name, check in _OWN_CHECKS.items()]
    return checks
