"""What evidence will be able to tell: the budget below which a device cannot be judged.

A pilot trains on the buyer's reference records alone, without noise. What it adds up over rounds is
how strongly the reference points anywhere: |h|^2, less what its two halves do not agree on. Nobody
is paid for it, and nobody else's records are in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput

if TYPE_CHECKING:
    from fedbourse.learning.records import Records
    from fedbourse.tasks.card import TaskCard


def pilot_work(card: TaskCard) -> int:
    """Return how many products a pilot computes, about."""
    records = 0 if card.evidence is None else card.evidence.records
    return card.rounds * records * card.dimension


def least_budgets(card: TaskCard, records: Records) -> list[float]:
    """Return, for each block of rounds, the least rho whose updates can be judged one by one.

    95 % of the devices that send noise alone are dismissed at this budget, and 95 % of those with
    data like the reference's show data. Infinite where the reference points nowhere any more.
    """
    spec = card.evidence
    if spec is None:
        raise InvalidInput("the card has no evidence, so that no budget is too small to be judged")
    rule, model = spec.rule(card.rounds), card.build()
    arranged = rule.reference_records(records)
    parameters = model.start(seed=card.start_seed)
    squares = np.zeros(spec.block_of(card.rounds - 1, rounds=card.rounds) + 1)
    for number in range(card.rounds):
        reference = arranged.at(model, parameters, clip=card.clip)
        agreed = float(reference.mean @ reference.mean) * reference.reliability**2
        squares[spec.block_of(number, rounds=card.rounds)] += agreed
        parameters = parameters - card.step_size * reference.mean
    # The noise is that of all rounds, the decision that of a block.
    scaled = squares * rule.rounds / card.rounds
    return [
        rule.min_budget(squares=float(each), samples=card.samples, clip=card.clip)
        if each > 0
        else float("inf")
        for each in scaled
    ]
