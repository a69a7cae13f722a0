"""What evidence found, told once a task has ended: to each as much as is theirs to know.

Scores shown during training would be measurements of the reference: nobody sees one before the end.
Then auditors and the operator see every device, an owner its own, and the buyer how many.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence  # noqa: TC003 - read by web.shapes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.errors import Conflict, InvalidInput, NotAllowed, NotFound
from fedbourse.market.evidence import evidence_in, spec_of
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.service import show
from fedbourse.market.unearned import forfeited
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from fedbourse.learning.evidence import EvidenceRule
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Allocation, DeviceEvidence, Round, Task

Finding = Literal["shown", "undecided", "dismissed"]
_UNREVEALED = "The buyer has not revealed its reference records, so that nobody can recompute this."
_PAGE_BYTES = 4 * 2**20
"""Roughly what a page of findings or updates holds at most, unless one alone is longer."""


@dataclass(frozen=True)
class BlockResult:
    """What was decided at the end of a block of rounds."""

    block: int
    stands: bool
    """Whether dismissals count; else the reference fits too few, and everybody was paid."""


@dataclass(frozen=True)
class DeviceFinding:
    """What one device's updates showed in one block of rounds."""

    owner: str
    block: int
    rounds: int
    """How many of its updates were compared."""
    score: float
    """z, about a standard normal number where there are no data."""
    verdict: Finding
    dismissed_round: int | None
    """The round in which its updates fell to the bound."""
    echoes: bool
    """Whether its updates repeat the model's own steps; that is reported, and decides nothing."""
    sums: Mapping[str, Any]
    """All that the market added up, as ``learning.evidence`` has it."""


@dataclass(frozen=True)
class EvidenceReport:
    """What evidence found in a task that has ended."""

    task: str
    summary: str
    """In words."""
    blocks: Sequence[BlockResult]
    devices: int
    """How many devices trained."""
    shown: int
    """How many showed data in the last block that they took part in."""
    undecided: int
    """How many sent too little to tell."""
    dismissed: int
    forfeited_micro: int
    """The held pay that went to the market's fund."""
    revealed: bool
    """Whether the market has the reference records, from which auditors recompute all of this."""
    findings: Sequence[DeviceFinding]
    """By block and owner: all to auditors and the operator, an owner's own, none to the buyer."""
    next: str | None
    """Block and owner of the last of these findings, where more may follow."""


@dataclass(frozen=True)
class KeptRound:
    """A round's model, kept so that auditors can recompute evidence."""

    round: int
    request: str
    """The hash of the round request, which updates refer to."""
    model: str
    """Little-endian doubles, in base64."""
    reference: str | None
    """The reference gradient that the buyer sent before the round opened, in base64; null where it
    sent none, or the market has the records."""


@dataclass(frozen=True)
class KeptUpdate:
    """An update, kept so that auditors can recompute evidence."""

    owner: str
    vector: str
    """Its numbers as the owner sent them, in base64."""


@dataclass(frozen=True)
class KeptUpdatePage:
    """Updates of a round by their owners' names; a few where they are long."""

    updates: Sequence[KeptUpdate]
    next: str | None
    """The last of these owners, where more may follow."""


def evidence_report(
    tx: Transaction, caller: Caller, task_id: str, *, after: str = "", limit: int | None = None
) -> EvidenceReport:
    """Return what evidence found to auditors, the operator, the buyer, and owners who trained.

    ``after`` and ``limit`` choose among the findings, of which a page holds fewer if they are long.
    """
    task = ended_task(tx, caller, task_id)
    trained = [each for each in tx.allocations(task.id) if each.trained]
    sees_all = bool(caller.scopes & {"auditor", "operator"})
    if not sees_all and caller.party not in {task.buyer, *(each.owner for each in trained)}:
        raise NotAllowed(f"evidence is for those who took part; the caller is {caller.party}")
    rule = spec_of(task.card).rule(task.card.rounds)
    stored = tx.device_evidence(task.id)
    last = {each.owner: rule.verdict(evidence_in(each)) for each in stored}
    gone = {each.owner for each in trained if each.state == "dismissed"}
    verdicts = [last.get(each.owner) for each in trained if each.owner not in gone]
    lost = sum(forfeited(each, rounds=task.card.rounds) for each in trained)
    blocks = _blocks(tx, task)
    own = [each for each in stored if sees_all or each.owner == caller.party]
    findings, following = _findings(rule, own, after=after, limit=limit)
    summary = _summary(trained, blocks, gone=len(gone), lost=lost)
    revealed = tx.has_reference(task.id)
    return EvidenceReport(
        task=task.id,
        summary=summary if revealed or not trained else f"{summary} {_UNREVEALED}",
        blocks=blocks,
        devices=len(trained),
        shown=verdicts.count("shown"),
        undecided=len(verdicts) - verdicts.count("shown"),
        dismissed=len(gone),
        forfeited_micro=lost,
        revealed=revealed,
        findings=findings,
        next=following,
    )


def kept_round(tx: Transaction, caller: Caller, task_id: str, number: int) -> KeptRound:
    """Return a closed round's model to auditors and the operator, after the end."""
    round = _closed_round(tx, caller, task_id, number)
    gradient = tx.reference_gradient(round.task, number)
    return KeptRound(
        round=number,
        request=round.request_hash,
        model=base64.b64encode(round.model).decode(),
        reference=None if gradient is None else base64.b64encode(gradient).decode(),
    )


def kept_updates(
    tx: Transaction, caller: Caller, task_id: str, number: int, *, after: str, limit: int
) -> KeptUpdatePage:
    """Return a closed round's updates to auditors and the operator, after the end."""
    round = _closed_round(tx, caller, task_id, number)
    most = max(1, min(limit, _PAGE_BYTES // max(1, len(round.model))))
    vectors = tx.vectors(round.task, number, at_once=most, after=after, limit=most)
    updates = [KeptUpdate(owner, base64.b64encode(body).decode()) for owner, body in vectors]
    return KeptUpdatePage(updates, updates[-1].owner if len(updates) == most else None)


def _closed_round(tx: Transaction, caller: Caller, task_id: str, number: int) -> Round:
    caller.require("auditor", "operator")
    task = ended_task(tx, caller, task_id)
    round = tx.round(task.id, number)
    if round.closed_ms is None or number == task.card.rounds:
        raise NotFound(f"task {task.id} has no closed round {number}")
    return round


def reference_of(tx: Transaction, caller: Caller, task_id: str) -> bytes:
    """Return the reference file after the end: to auditors, the buyer, and owners if the card says.

    The operator has it anyway.
    """
    task = ended_task(tx, caller, task_id)
    if caller.party != task.buyer and not caller.scopes & {"auditor", "operator"}:
        own = tx.allocation(task.id, caller.party)
        if own is None or not own.trained or not spec_of(task.card).reveal_to_owners:
            raise NotAllowed("the card shows the reference records to auditors only")
    if not tx.has_reference(task.id):
        raise NotFound(f"the buyer of task {task.id} has not revealed its reference records")
    return tx.reference(task.id)


def ended_task(tx: Transaction, caller: Caller, task_id: str) -> Task:
    """Return a task with evidence that has ended."""
    task = show(tx.task(task_id), caller)
    if task.card.evidence is None:
        raise NotFound(f"the card of task {task.id} has no evidence")
    if task.state not in ENDED:
        raise Conflict(
            f"evidence is shown once a task has ended; it is {task.state.value}: a score that is "
            "seen earlier measures the reference"
        )
    return task


def _findings(
    rule: EvidenceRule, stored: Sequence[DeviceEvidence], *, after: str, limit: int | None
) -> tuple[list[DeviceFinding], str | None]:
    """Return a page of findings, and the place of its last one where more follow."""
    block, _, owner = after.partition("/")
    if after and not (owner and block.isdecimal() and block.isascii()):
        raise InvalidInput(
            f"after must be a block and an owner, such as 0/owner:ann; found {after}"
        )
    rest = [each for each in stored if not after or (each.block, each.owner) > (int(block), owner)]
    findings: list[DeviceFinding] = []
    size = 0
    for each in rest:
        if findings and (len(findings) == limit or (limit and size > _PAGE_BYTES)):
            return findings, f"{findings[-1].block}/{findings[-1].owner}"
        findings.append(_finding(rule, each))
        size += len(each.document)
    return findings, None


def _finding(rule: EvidenceRule, stored: DeviceEvidence) -> DeviceFinding:
    evidence = evidence_in(stored)
    return DeviceFinding(
        owner=stored.owner,
        block=stored.block,
        rounds=evidence.rounds,
        score=evidence.score,
        verdict=rule.verdict(evidence),
        dismissed_round=stored.dismissed_round,
        echoes=rule.is_echo(evidence),
        sums=evidence.document,
    )


def _blocks(tx: Transaction, task: Task) -> list[BlockResult]:
    events = tx.events(task.id, limit=10 * task.card.rounds + 1000)
    ends = [event.body.get("evidence", {}) for event in events]
    return [BlockResult(each["block"], each["stands"]) for each in ends if "stands" in each]


def _summary(
    trained: Sequence[Allocation], blocks: Sequence[BlockResult], *, gone: int, lost: int
) -> str:
    """Say what was found, in words that accuse nobody: evidence compares, and knows no reasons."""
    if not trained:
        return "No device trained, so that there was nothing to compare."
    if not any(each.stands for each in blocks):
        return (
            "Evidence is void: the updates do not show that the reference records fit enough of "
            f"the {len(trained)} devices. Nobody was dismissed, and all delivered rounds are paid."
        )
    if not gone:
        return (
            f"No update of the {len(trained)} devices speaks against the reference records. All "
            "delivered rounds are paid."
        )
    return (
        f"The updates of {gone} of {len(trained)} devices do not follow the reference records. "
        f"They were asked no more, and {credits_text(lost)} credits that were held for them went "
        "to the market's fund. Evidence says that updates differ, not why: honest records that "
        "are unlike the reference do so too."
    )
