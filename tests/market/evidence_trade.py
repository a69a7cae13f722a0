"""A task with evidence, the buyer's records, and owners with data or without."""

from dataclasses import replace

import numpy as np

from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.market.commands.reference_gradients import put_reference_gradient
from fedbourse.market.evidence import CardReference
from fedbourse.market.records import State
from fedbourse.tasks.evidence import EvidenceSpec, gradient_file, reference_file, reference_hash
from fedbourse.testing.trading import BUYER, Owner, Trading

SAMPLES, ROUNDS = 200, 8
VALUES = (1.0, 1.05, 1.1, 1.15, 1.2)


def records(count: int, *, seed: int, labels: str = "right") -> Records:
    """Draw records of two classes that a line separates, or whose labels mean nothing."""
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(count, 4))
    score = raw @ np.array([2.0, -1.0, 0.5, 0.0]) + rng.normal(size=count)
    right = (score > 0).astype(float)
    if labels == "wrong":
        right = 1 - right
    return Records(np.column_stack([raw, np.ones(count)]), right, 2)


REFERENCE = reference_file(records(400, seed=1), salt=bytes(32))
WRONG = reference_file(records(400, seed=1, labels="wrong"), salt=bytes(32))


def changes(reference: bytes = REFERENCE, **evidence) -> dict:
    """What makes a card one with evidence."""
    spec = EvidenceSpec(reference=reference_hash(reference), records=400, **evidence)
    return {
        "evidence": spec,
        "reference": reference if spec.source == "records" else None,
        "features": 5,
        "rounds": ROUNDS,
        "samples": SAMPLES,
        "min_participants": 2,
    }


def gradient_of(task, trading, data: Records) -> np.ndarray:
    with trading.store.read() as tx:
        model = np.frombuffer(tx.round(task.id, task.round).model, dtype="<f8")
    one = Federation(data, np.array([0, len(data)]))
    return task.card.build().clipped_means(model, one, clip=task.card.clip)[0]


def reference_gradient_of(task, trading, reference: bytes = REFERENCE) -> bytes:
    """Return what a buyer that keeps its records sends for the round that waits."""
    with trading.store.read() as tx:
        model = np.frombuffer(tx.round(task.id, task.round).model, dtype="<f8")
    evidence = replace(task.card.evidence, reference=reference_hash(reference))
    kept = CardReference.of(replace(task.card, evidence=evidence), reference)
    return gradient_file(kept.gradient(model), reference=reference, round=task.round)


def send_gradient(task, trading, content: bytes | None = None, *, round: int | None = None):
    """Send the reference gradient of the round that waits, or what is given in its place."""
    return trading.do(
        put_reference_gradient,
        BUYER,
        task.id,
        round=task.round if round is None else round,
        content=reference_gradient_of(task, trading) if content is None else content,
    )


def trained(trading: Trading, task, owners: list[Owner], *, without_data=(), until=None, late=()):
    """Let owners send updates until the end, some of them noise alone; dismissed ones send none.

    A buyer that keeps its records sends their gradient to all rounds but those in which it is late.
    """
    data = {owner.name: records(SAMPLES, seed=10 + i) for i, owner in enumerate(owners)}
    while task.state is State.TRAINING and task.round != until:
        if task.reference_ends_ms is not None:
            if task.round in late:
                trading.wait(task.card.deadlines.round_s)
            else:
                send_gradient(task, trading)
            task = trading.task(task.id)
        for allocation in trading.allocations(task.id):
            if allocation.state != "signed":
                continue
            owner = next(each for each in owners if each.name == allocation.owner)
            honest = owner.name not in {owners[i].name for i in without_data}
            gradient = gradient_of(task, trading, data[owner.name]) if honest else 0.0
            trading.update(owner, task, gradient=gradient)
        trading.advance()
        task = trading.task(task.id)
    return task
