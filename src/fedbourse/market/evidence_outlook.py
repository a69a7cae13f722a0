"""What evidence will be able to tell, for the buyer, before any update is sent.

The buyer chose the reference, so it may know below which budget a device cannot be judged. Which
owners sell less than that is theirs: the buyer is told the share of the pay, in tenths, and only
of ten owners or more, and where five or more are on either side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import Conflict, NotAllowed, NotFound
from fedbourse.market.commands.buyer import check_reference
from fedbourse.market.evidence import spec_of
from fedbourse.market.records import State
from fedbourse.market.service import show
from fedbourse.tasks.evidence import reference_records
from fedbourse.tasks.evidence_pilot import least_budgets, pilot_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Allocation, Task

OWNERS_MIN = 5
"""A share of the pay is told where at least so many owners are on either side."""
WORK_MAX = 2 * 10**9
"""Products that the market computes for a pilot: a few seconds."""
_BEFORE_TRAINING = (State.DRAFT, State.OPEN, State.ANNOUNCED, State.SETTLED)


@dataclass(frozen=True)
class EvidenceOutlook:
    """What evidence will be able to tell."""

    task: str
    least_budget: float | None
    """The budget in rho, to three digits, below which a device cannot be judged by itself: by a
    pilot on the reference records, in the first block. Null where no budget can, where the market
    does not have the records, or where the pilot is too much work for it."""
    min_budget: float
    """The smallest budget that the card buys."""
    unjudged_share: float | None
    """The part of the pay that goes to smaller budgets, in tenths; null before the settlement, and
    where there are fewer than ten owners."""
    summary: str
    """In words."""


def evidence_outlook(tx: Transaction, caller: Caller, task_id: str) -> EvidenceOutlook:
    """Return what evidence will be able to tell to the buyer and the operator, before training."""
    task = show(tx.task(task_id), caller)
    if caller.party != task.buyer and "operator" not in caller.scopes:
        raise NotAllowed(
            f"what evidence will be able to tell is for the buyer; the caller is {caller.party}"
        )
    if task.card.evidence is None:
        raise NotFound(f"the card of task {task.id} has no evidence")
    if task.state not in _BEFORE_TRAINING:
        raise Conflict(
            f"the task is {task.state.value}; what evidence finds is told once the task has ended"
        )
    check_reference(tx, task)
    least = _least(tx, task)
    share = None
    if least is not None and task.state is State.SETTLED:
        share = unjudged_share(least, tx.allocations(task.id))
    first = None if least is None or math.isinf(least[0]) else float(f"{least[0]:.3g}")
    return EvidenceOutlook(
        task=task.id,
        least_budget=first,
        min_budget=task.card.min_budget,
        unjudged_share=share,
        summary=_summary(task, first, share, is_computed=least is not None),
    )


def _least(tx: Transaction, task: Task) -> list[float] | None:
    if spec_of(task.card).source == "gradients" or pilot_work(task.card) > WORK_MAX:
        return None
    content = tx.reference(task.id)
    return least_budgets(task.card, reference_records(content, task.card, spec_of(task.card)))


def unjudged_share(least: Sequence[float], allocations: Sequence[Allocation]) -> float | None:
    """Return the part of the pay that goes to budgets too small to be judged, in tenths.

    Each block has its own least budget, and the same part of the pay. None where there are too few
    owners for two groups.
    """
    if len(allocations) < 2 * OWNERS_MIN:
        return None
    pay = sum(each.payment for each in allocations)
    shares = []
    for bound in least:
        small = [each.payment for each in allocations if (each.budget or 0.0) < bound]
        if len(small) < OWNERS_MIN:
            shares.append(0.0)
        elif len(allocations) - len(small) < OWNERS_MIN:
            shares.append(1.0)
        else:
            shares.append(sum(small) / pay)
    return round(sum(shares) / len(shares), 1)


def _summary(task: Task, least: float | None, share: float | None, *, is_computed: bool) -> str:
    if spec_of(task.card).source == "gradients":
        return (
            "The buyer keeps its reference records, so that the market has nothing to tell from; "
            "fedbourse task card --evidence prints below which budget a device cannot be judged."
        )
    if not is_computed:
        return (
            "A pilot on the reference records is too much work for the market; fedbourse task card "
            "--evidence prints below which budget a device cannot be judged."
        )
    if least is None:
        return (
            "By a pilot, the two halves of the reference records do not agree on anything: no "
            "device can be judged. More reference records help."
        )
    smallest = task.card.min_budget
    bought = f"budgets of {smallest:g} rho and more" if smallest else "budgets of any size"
    words = (
        f"By a pilot on the reference records, a device that sells less than {least:g} rho cannot "
        f"be judged by itself. The card buys {bought}."
    )
    if share is None and task.state is State.SETTLED:
        return (
            f"{words} Which part of the pay goes to smaller ones is not told for fewer than "
            f"{2 * OWNERS_MIN} owners, since it could tell what one of them sells."
        )
    if share is None:
        return words
    return f"{words} {_share_words(share)} of the pay goes to owners who sell less than that."


def _share_words(share: float) -> str:
    """Return a share in tenths in words, of which the ends are not exact."""
    return {0.0: "Hardly any", 1.0: "Nearly all"}.get(share, f"About {share:.0%}")
