"""``fedbourse task card``: an example of a task card, to start from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from fedbourse.cli.evidence_options import (
    NO_EVIDENCE,
    EvidenceOptions,
    is_file,
    reference_part,
    write_reference,
)
from fedbourse.cli.output import OUTPUT, write_document
from fedbourse.errors import InvalidInput

if TYPE_CHECKING:
    from fedbourse.learning.records import Records

_ASSUMPTIONS, _PAY, _SETTLEMENT = (
    Group.create_ordered(name) for name in ("Assumptions", "Pay", "Settlement")
)


def card(
    *,
    data: str | None = None,
    chance: Annotated[float | None, Parameter(group=_ASSUMPTIONS)] = None,
    ceiling: Annotated[float | None, Parameter(group=_ASSUMPTIONS)] = None,
    vesting: Annotated[Literal["by-round", "upfront"], Parameter(group=_PAY)] = "by-round",
    unearned: Annotated[Literal["fund", "refund", "share"], Parameter(group=_PAY)] = "fund",
    compensation: Annotated[
        Literal["proportional", "clock"], Parameter(group=_SETTLEMENT)
    ] = "proportional",
    lot: Annotated[float | None, Parameter(group=_SETTLEMENT)] = None,
    cost: Annotated[Literal["convex", "linear"], Parameter(group=_SETTLEMENT)] = "convex",
    min_budget: Annotated[float, Parameter(group=_SETTLEMENT)] = 0.0,
    min_total_budget: Annotated[float, Parameter(group=_SETTLEMENT)] = 0.0,
    review_s: Annotated[float, Parameter(group=_SETTLEMENT)] = 600.0,
    evidence: EvidenceOptions = NO_EVIDENCE,
    out: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
) -> None:
    """Write an example of a task card, to start from, and say what its rules of pay invite.

    For example:

        fedbourse task card --out card.json

        fedbourse task card --data flights.csv:late --min-total-budget 0.5 --out card.json

        fedbourse task card --data flights.csv:late --evidence 500 --out card.json

        fedbourse task card --data flights.csv:late --compensation clock --lot 0.02 --out card.json

    Parameters
    ----------
    data
        Records of your own, FILE[:LABEL_COLUMN] or a name that fedbourse train knows: the card then
        has their columns by name, and the numbers that scale them, so that owners' devices find the
        same columns in their own tables.
    chance
        The accuracy of guessing, such as the share of the most frequent class; with data, by
        default that of a pilot on half of your own records.
    ceiling
        The accuracy that training without noise would reach; with data, by default that of the
        same pilot, by scikit-learn.
    vesting
        by-round: pay follows delivered rounds. upfront: all of it before round 0; an owner that
        then delivers nothing keeps all of its pay.
    unearned
        Where the pay goes of rounds that a device does not deliver: to a fund that no party of the
        task controls; back to you (refund), which owners read as an invitation to shills of yours;
        or to the owners who delivered (share), which invites shills of theirs.
    compensation
        How the reward buys budgets: proportional, the paper's, where owners share it by what they
        sell; or clock, where each sells the same lot or nothing at a falling price.
    lot
        The budget that each owner sells under the clock, in rho.
    cost
        What owners' replies to ticks must be explained by: any convex cost, or a linear one.
    min_budget
        The smallest budget that is bought from an owner, in rho.
    min_total_budget
        The task is cancelled if all budgets together are below this, in rho.
    review_s
        How many seconds you have to look, and still cancel, once all owners have signed.
    out
        The file to write to, in place of standard output.
    """
    from fedbourse.demos.example_card import example_card
    from fedbourse.tasks.incentives import CLOCK_INCENTIVE, incentive_of

    reference = _reference(evidence, data, out) if evidence.evidence is not None else None
    document = example_card(
        data,
        chance=chance,
        ceiling=ceiling,
        vesting=vesting,
        unearned=unearned,
        cost=cost,
        compensation=compensation,
        min_total_budget=min_total_budget,
        review_s=review_s,
        **_budgets(compensation, lot, min_budget),
        **({} if reference is None else reference.items),
    )
    rules = f"rules of pay: {incentive_of(vesting=vesting, unearned=unearned)}"
    if compensation == "clock":
        rules = f"rules of pay: {CLOCK_INCENTIVE}"
    notes = [rules, _assumed(document["assumptions"])]
    if reference is not None and out is not None:
        least = _least_budget(document, reference.records)
        file = write_reference(out, reference.content)
        notes += [
            f"the {len(reference.records)} reference records, with their salt, are in {file}, "
            "which only you can read; keep them secret until the task has ended",
            least,
            f"next: fedbourse task create {out}",
        ]
    write_document(document, out, "an example card", *notes)


def _budgets(compensation: str, lot: float | None, min_budget: float) -> dict[str, float]:
    """Return the bounds on what is bought from an owner."""
    if (lot is None) == (compensation == "clock"):
        raise InvalidInput(
            "--lot and --compensation clock go together: everybody sells the same lot; "
            f"found --compensation {compensation} {'without' if lot is None else 'with'} --lot"
        )
    return {"min_budget": min_budget} if lot is None else {"min_budget": lot, "max_rho": lot}


@dataclass(frozen=True, eq=False)
class _Reference:
    records: Records
    content: bytes
    items: dict[str, Any]
    """What the card says of it."""


def _reference(options: EvidenceOptions, data: str | None, out: Path | None) -> _Reference:
    from fedbourse.learning.data import load
    from fedbourse.tasks.evidence import reference_file

    assert options.evidence is not None
    if data is None or out is None:
        raise InvalidInput(
            "--evidence needs --data, whose columns the card has, and --out, beside which the "
            f"reference records are written; {'--data' if data is None else '--out'} is missing"
        )
    source = load(data)
    records = reference_part(options.evidence, source)
    content = reference_file(records)
    left = len(source.buyer) - (0 if is_file(options.evidence) else len(records))
    items = {
        "evidence": options.spec(content, records).document,
        "validation": f"{left} records of the buyer's own.",
    }
    return _Reference(records, content, items)


def _least_budget(document: dict[str, Any], records: Records) -> str:
    """Return in words below which budget a device cannot be judged."""
    from fedbourse.tasks.card import TaskCard
    from fedbourse.tasks.evidence_pilot import least_budgets

    first = least_budgets(TaskCard.of(document), records)[0]
    if math.isinf(first):
        return (
            "evidence: the two halves of your records do not agree on anything, so that no device "
            "can be judged by itself; set more records aside"
        )
    words = (
        f"evidence: by a pilot, a device that sells less than {first:.3g} rho cannot be judged by "
        "itself"
    )
    if first > document["max_rho"]:
        return (
            f"{words}, and the card buys at most {document['max_rho']:g} rho of one; hold pay for "
            "more rounds, ask for more samples, or set more records aside"
        )
    return f'{words}; with "min_budget": {first:.3g} the card would buy no smaller budget'


def _assumed(assumptions: dict[str, Any] | None) -> str:
    """Return in words which accuracy the card assumes, and what to give for another one."""
    if assumptions is None:
        return (
            "assumed accuracy: none, for your records alone do not tell it; give --chance, the "
            "share of the most frequent class, and --ceiling, the accuracy without noise"
        )
    return (
        f"assumed accuracy: {assumptions['chance']:.1%} by guessing, {assumptions['ceiling']:.1%} "
        "without noise; --chance and --ceiling say otherwise"
    )
