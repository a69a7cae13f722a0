"""A task with evidence, the buyer's records, and owners with data or without."""

import numpy as np

from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.market.records import State
from fedbourse.tasks.evidence import EvidenceSpec, reference_file, reference_hash
from fedbourse.testing.trading import Owner, Trading

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
        "reference": reference,
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


def trained(trading: Trading, task, owners: list[Owner], *, without_data=(), until=None):
    """Let owners send updates until the end, some of them noise alone; dismissed ones send none."""
    data = {owner.name: records(SAMPLES, seed=10 + i) for i, owner in enumerate(owners)}
    while task.state is State.TRAINING and task.round != until:
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
