"""Evidence in a market: what updates show beside the buyer's reference records, and what follows.

Pay is held for a block of rounds. When a round closes, each update is compared with the gradient
of the reference records at the same model: the market computes it from the records, or the buyer
sent it before the round opened (``commands.reference_gradients``). A device whose sums fall to the
bound is dismissed: it is asked no more, and its updates weigh nothing from that round on. When the
block ends, evidence *stands* or is void (``learning.evidence``): if it stands, the held pay of who
was dismissed is lost to the market's fund; if not, nobody was dismissed. All other held pay is
released.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.encoding.canonical import digest
from fedbourse.learning.aggregation import aggregate
from fedbourse.learning.evidence import Evidence
from fedbourse.learning.update_check import update_numbers
from fedbourse.ledger import Transfer
from fedbourse.market import merkle
from fedbourse.market.records import DeviceEvidence
from fedbourse.market.service import escrow, present
from fedbourse.privacy.noise import scale_bound
from fedbourse.tasks.evidence import reference_gradient, reference_records
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.evidence import EvidenceRule, Reference, ReferenceRecords
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Records
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Allocation, AllocationState, Task
    from fedbourse.market.service import Market
    from fedbourse.tasks.card import TaskCard
    from fedbourse.tasks.evidence import EvidenceSpec


def spec_of(card: TaskCard) -> EvidenceSpec:
    """Return what a card says of evidence, where it does."""
    return present(card.evidence)


@dataclass(frozen=True, eq=False)
class Directions:
    """What the updates of one round are compared with."""

    reference: Reference
    """The gradient of the reference records at the round's model."""
    first: FloatArray
    """That of the first round for which there is one, which base rates make nearly public."""

    @classmethod
    def stored(cls, tx: Transaction, task: Task) -> Directions:
        """Return those of the open round; there are some unless evidence of its block is void."""
        card, spec = task.card, spec_of(task.card)
        if spec.source == "records":
            return CardReference.of(card, tx.reference(task.id)).directions(_model(tx, task))
        now = present(tx.reference_gradient(task.id, task.round))
        first = present(tx.first_reference_gradient(task.id))
        reference = reference_gradient(now, card, spec)
        return cls(reference, reference_gradient(first, card, spec).mean)


@dataclass(frozen=True, eq=False)
class CardReference:
    """The reference records that a card commits to, and their gradients."""

    card: TaskCard
    records: Records

    @classmethod
    def of(cls, card: TaskCard, content: bytes) -> CardReference:
        """Read the reference file that a card commits to."""
        return cls(card, reference_records(content, card, spec_of(card)))

    @cached_property
    def first(self) -> FloatArray:
        """The gradient at the first model."""
        return self.gradient(self._model.start(seed=self.card.start_seed)).mean

    @cached_property
    def _model(self) -> Model:
        return self.card.build()

    @cached_property
    def _arranged(self) -> ReferenceRecords:
        return spec_of(self.card).rule(self.card.rounds).reference_records(self.records)

    def gradient(self, parameters: FloatArray) -> Reference:
        """Return the gradient at a model."""
        return self._arranged.at(self._model, parameters, clip=self.card.clip)

    def directions(self, parameters: FloatArray) -> Directions:
        """Return what updates are compared with in a round with this model."""
        return Directions(self.gradient(parameters), self.first)


@dataclass(frozen=True, eq=False)
class Comparison:
    """How a card's updates are compared with directions."""

    card: TaskCard

    @cached_property
    def rule(self) -> EvidenceRule:
        """The rule for one block of rounds."""
        return spec_of(self.card).rule(self.card.rounds)

    def scale(self, budget: float) -> float:
        """Return a scale that the noise of a device with this budget does not exceed."""
        return scale_bound(self.card.privacy_terms(task="evidence", budget=budget))

    def added(
        self,
        before: Mapping[str, Evidence],
        directions: Directions,
        updates: RoundUpdates,
        last: RoundUpdates,
        scales: Mapping[str, float],
    ) -> Iterator[tuple[str, Evidence]]:
        """Yield each owner's evidence with its update of one round.

        ``last`` are those of the updates of the round before that moved the model.
        """
        for owner, vector, others in self._beside_others(updates, last, scales):
            evidence = before.get(owner) or self.rule.begin()
            yield (
                owner,
                evidence.added(
                    vector,
                    scale=scales[owner],
                    reference=directions.reference,
                    first=directions.first,
                    others=others,
                ),
            )

    def _beside_others(
        self, updates: RoundUpdates, last: RoundUpdates, scales: Mapping[str, float]
    ) -> Iterator[tuple[str, FloatArray, FloatArray | None]]:
        """Yield updates, each beside the others' last aggregate, if there was one.

        Both rounds come in the order of owners' names, so that two vectors are in memory.
        """
        if not last.owners:
            yield from ((owner, vector, None) for owner, vector in updates.read())
            return
        sums = aggregate(
            (vector[None] for _, vector in last.read()),
            np.array([scales[owner] for owner in last.owners]),
            self.card.aggregation,
            dimension=self.card.dimension,
        )
        numbers = {owner: number for number, owner in enumerate(last.owners)}
        before = last.read()
        own = next(before, None)
        for owner, vector in updates.read():
            while own is not None and own[0] < owner:
                own = next(before, None)
            others = sums.total
            if own is not None and own[0] == owner:
                others = sums.others(numbers[owner], own[1])
            yield owner, vector, others


@dataclass(frozen=True)
class RoundUpdates:
    """The updates of a round, by their owners' names; read as often as needed."""

    owners: Sequence[str]
    read: Callable[[], Iterator[tuple[str, FloatArray]]]


@dataclass(frozen=True)
class Judgement:
    """What the updates of one round led to."""

    block: int
    dismissed: frozenset[str]
    """Whose updates of this round weigh nothing."""
    count: int
    """How many devices are dismissed in this block so far."""
    void: bool
    """Whether more than half of the devices fell to the bound: the reference fits nobody."""
    root: str
    """Over what all devices have shown in this block."""

    @property
    def document(self) -> dict[str, Any]:
        """What the log says of it: nobody's score."""
        return {
            "block": self.block,
            "dismissed": self.count,
            "void": self.void,
            "root": self.root,
        }


def judge_round(tx: Transaction, task: Task) -> Judgement:
    """Compare the open round's updates with the reference, and dismiss whose sums fell."""
    card, spec = task.card, spec_of(task.card)
    block = spec.block_of(task.round, rounds=card.rounds)
    stored = {each.owner: each for each in tx.device_evidence(task.id, block)}
    if task.void_block == block:
        return Judgement(block, frozenset(), 0, void=True, root=root_of(stored.values()))
    comparison, directions = Comparison(card), Directions.stored(tx, task)
    trained = {each.owner: each for each in tx.allocations(task.id) if each.trained}
    scales = {name: comparison.scale(present(each.budget)) for name, each in trained.items()}
    before = {name: evidence_in(each) for name, each in stored.items()}
    updates = _updates(tx, task, task.round)
    last = _updates(tx, task, task.round - 1, without=_weightless(tx, task, task.round - 1))
    fallen = set()
    for owner, evidence in comparison.added(before, directions, updates, last, scales):
        falls = comparison.rule.verdict(evidence) == "dismissed"
        fallen |= {owner} if falls else set()
        stored[owner] = DeviceEvidence(
            task.id, block, owner, json.dumps(evidence.document), task.round if falls else None
        )
    tx.put_device_evidence(stored.values())
    gone = {name for name, each in stored.items() if each.dismissed_round is not None}
    here = [each for each in trained.values() if each.state == "signed" or each.owner in gone]
    void = 2 * len(gone) > len(here)
    _ask(tx, here, but=set() if void else gone)
    return Judgement(
        block,
        frozenset() if void else frozenset(fallen),
        0 if void else len(gone),
        void=void,
        root=root_of(stored.values()),
    )


def _ask(tx: Transaction, allocations: Iterable[Allocation], *, but: Collection[str]) -> None:
    """Ask these owners in the next round, but some, who are dismissed."""
    for each in allocations:
        state: AllocationState = "dismissed" if each.owner in but else "signed"
        if state != each.state:
            tx.judge_allocation(each.task, each.owner, state, earned=each.earned, held=each.held)


def without_reference(tx: Transaction, task: Task) -> Task:
    """Return the task as it goes on without the next round's reference: its block is void.

    Whoever was dismissed in it is asked again.
    """
    block = spec_of(task.card).block_of(task.round, rounds=task.card.rounds)
    stored = tx.device_evidence(task.id, block)
    fallen = {each.owner for each in stored if each.dismissed_round is not None}
    _ask(tx, [each for each in tx.allocations(task.id) if each.owner in fallen], but=())
    return replace(task, void_block=block)


def end_block(market: Market, tx: Transaction, task: Task) -> dict[str, Any]:
    """Decide on the pay that is held in the open round's block: release it, or not.

    Returns what the log says of it.
    """
    card, spec = task.card, spec_of(task.card)
    block = spec.block_of(task.round, rounds=card.rounds)
    stored = {each.owner: each for each in tx.device_evidence(task.id, block)}
    gone = {name for name, each in stored.items() if each.dismissed_round is not None}
    trained = [each for each in tx.allocations(task.id) if each.trained]
    rule = spec.rule(card.rounds)
    stands = task.void_block != block and rule.stands(
        [
            evidence_in(stored[each.owner]) if each.owner in stored else rule.begin()
            for each in trained
            if each.state == "signed" or each.owner in gone
        ]
    )
    transfers = []
    for allocation in trained:
        dismissed = allocation.state == "dismissed" and (stands or allocation.owner not in gone)
        if not dismissed and allocation.held:
            transfers.append(_release(task, allocation, block))
        if allocation.held or (allocation.state == "dismissed") != dismissed:
            tx.judge_allocation(
                task.id,
                allocation.owner,
                "dismissed" if dismissed else "signed",
                earned=allocation.earned - (allocation.held if dismissed else 0),
                held=0,
            )
    tx.post(transfers, at_ms=market.now_ms())
    return {"block": block, "stands": stands}


def _release(task: Task, allocation: Allocation, block: int) -> Transfer:
    return Transfer(
        f"{task.id}/{allocation.owner}/block-{block}",
        escrow(task.id),
        allocation.owner,
        MicroCredits(allocation.held),
        f"held in block {block}, released",
    )


def voided(task: Task, judgement: Judgement) -> Task:
    """Return the task with its void block, where a judgement says so."""
    return replace(task, void_block=judgement.block) if judgement.void else task


def evidence_in(stored: DeviceEvidence) -> Evidence:
    """Return the sums that are stored."""
    return Evidence.of(json.loads(stored.document))


def root_of(stored: Iterable[DeviceEvidence]) -> str:
    """Return the root over what devices have shown in a block, by owner."""
    return merkle.root([leaf_of(each) for each in sorted(stored, key=lambda each: each.owner)])


def leaf_of(stored: DeviceEvidence) -> str:
    """Return the hash of what a device has shown."""
    return digest(
        {
            "block": stored.block,
            "owner": stored.owner,
            "sums": json.loads(stored.document),
            "dismissed_round": stored.dismissed_round,
        }
    )


def _model(tx: Transaction, task: Task) -> FloatArray:
    parameters: FloatArray = np.frombuffer(tx.round(task.id, task.round).model, dtype="<f8")
    return parameters


def _weightless(tx: Transaction, task: Task, round: int) -> set[str]:
    """Return whose updates of a closed round moved no model: who fell in it, unless all counted."""
    block = spec_of(task.card).block_of(round, rounds=task.card.rounds)
    if task.void_block == block:
        return set()
    stored = tx.device_evidence(task.id, block)
    return {each.owner for each in stored if each.dismissed_round == round}


def _updates(
    tx: Transaction, task: Task, round: int, *, without: Collection[str] = ()
) -> RoundUpdates:
    dimension = task.card.dimension

    def read() -> Iterator[tuple[str, FloatArray]]:
        for owner, body in tx.vectors(task.id, round, at_once=max(1, 2**20 // dimension)):
            if owner not in without:
                yield owner, update_numbers(body, dimension=dimension)

    names = [each.owner for each in tx.updates(task.id, round)] if round >= 0 else []
    return RoundUpdates([name for name in names if name not in without], read)
