"""What answers come to: the weighted mean of a round, and what each device's say over rounds.

Vectors are read one after the other, twice, so that memory grows with the model and not with the
number of answers.

An answer is y = g + sigma N, a clipped mean of norm L at most and the device's own noise. Over n
answers two sums tell what one answer cannot:

- the squared norms, in units of sigma^2, lie between chi2.ppf(1e-6, n d) and
  (L sqrt(n) / sigma + sqrt(chi2.isf(1e-6, n d)))^2, for whatever g of norm L at most;
- <y, u> / (sigma |u|), u the weighted mean of the others' answers in the same round, is a standard
  normal number where there is no g, and larger where g points as the others' does. Its sum over
  sqrt(n) is far below 0 only for who pulls against the others.

Neither withholds any pay. Pure noise of the right size passes both: the first because it is what
honest noise looks like, the second because nobody must agree with the others.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.learning.answer_check import answer_numbers, square_sum_bounds
from fedbourse.market.service import present, show
from fedbourse.market.task import Drift
from fedbourse.wire.messages import privacy_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fedbourse.game.columns import FloatArray
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.task import Line, Task

_IN_MEMORY_BYTES = 2**23
_FALSE_ALARM = 1e-6
_AGAINST = -4.753424308822899
"""What a standard normal number is below with a chance of 1e-6."""
REPEATS_MIN = 2
"""Two answers with the same numbers may be chance where there are few of them and small."""
NOTE = (
    "These sums flag a device; they never withhold its pay. Pure noise of the right size passes "
    "them, and so does false work that is small beside the noise."
)
Document = dict[str, Any]


def mean_and_drift(unit: Unit, task: Task) -> FloatArray:
    """Return the weighted mean of the open round's answers, and add them to each owner's sums.

    Weights are those of ``learning.rounds.weighted_mean``.
    """
    d, names = task.card.dimension, {each.owner for each in unit.answers(task.id, task.round)}
    scales = {
        line.owner: privacy_terms(task.card, task=task.id, budget=present(line.budget)).scale
        for line in unit.lines(task.id)
        if line.owner in names
    }
    # Relative to the least noise, so that no square overflows.
    least = min(scales.values())
    precise = task.card.weights == "precision"
    weights = {name: (scale / least) ** -2.0 if precise else 1.0 for name, scale in scales.items()}
    total = np.zeros(d)
    for owner, body in _bodies(unit, task):
        total += weights[owner] * answer_numbers(body, dimension=d)
    before = {each.owner: each for each in unit.drifts(task.id)}
    after = []
    for owner, body in _bodies(unit, task):
        vector, scale = answer_numbers(body, dimension=d), scales[owner]
        others = total - weights[owner] * vector
        sums = before.get(owner, Drift(task.id, owner))
        after.append(added(sums, vector / scale, others, body))
    unit.put_drifts(after)
    mean: FloatArray = total / sum(weights[owner] for owner in sorted(weights))
    return mean


def added(sums: Drift, noise: FloatArray, others: FloatArray, body: bytes) -> Drift:
    """Add an answer, in units of its noise, beside the weighted sum of the others' answers."""
    length = float(np.linalg.norm(others))
    alone = not (np.isfinite(length) and length > 0)
    hash = hashlib.sha256(body).hexdigest()
    return replace(
        sums,
        answers=sums.answers + 1,
        squares=sums.squares + float(noise @ noise),
        compared=sums.compared + (not alone),
        agreement=sums.agreement + (0.0 if alone else float(noise @ (others / length))),
        repeats=sums.repeats + (hash == sums.last_vector),
        last_vector=hash,
    )


def _bodies(unit: Unit, task: Task) -> Iterator[tuple[str, bytes]]:
    at_once = max(1, _IN_MEMORY_BYTES // (8 * task.card.dimension))
    return unit.vectors(task.id, task.round, at_once=at_once)


def of_task(unit: Unit, caller: Caller, task_id: str, *, after: str, limit: int) -> Document:
    """Return every device's drift to auditors and the operator, and to an owner its own."""
    task = show(unit.task(task_id), caller)
    everybody = bool(caller.scopes & {"auditor", "operator"})
    if everybody:
        lines = unit.lines(task.id, after=after, limit=limit)
    else:
        caller.require("owner", "auditor", "operator")
        own = unit.line(task.id, caller.party)
        lines = [own] if own is not None and own.owner > after else []
    sums = {each.owner: each for each in unit.drifts(task.id)}
    refused = unit.refused_answers(task.id)
    devices = [
        device_document(task, line, sums.get(line.owner), refused.get(line.owner, {}))
        for line in lines
        if line.state == "signed"
    ]
    last = lines[-1].owner if everybody and len(lines) == limit else None
    return {"task": task.id, "devices": devices, "note": NOTE, "next": last}


def device_document(
    task: Task, line: Line, sums: Drift | None, refused: Mapping[str, int]
) -> Document:
    """Return what the sums of a device say of it, in numbers and in words."""
    sums = sums or Drift(task.id, line.owner)
    bounds = None
    if line.budget is not None and sums.answers:  # a budget may have been erased
        scale = privacy_terms(task.card, task=task.id, budget=line.budget).scale
        bounds = square_bounds(
            answers=sums.answers,
            dimension=task.card.dimension,
            clip_to_noise=task.card.clip / scale,
        )
    agreement = sums.agreement / math.sqrt(sums.compared) if sums.compared else None
    return {
        "owner": line.owner,
        "answers": sums.answers,
        "squares": sums.squares,
        "squares_low": bounds and bounds[0],
        "squares_high": bounds and bounds[1],
        "agreement": agreement,
        "repeats": sums.repeats,
        "refused": dict(refused),
        "flags": flags(sums, bounds),
    }


def flags(sums: Drift, bounds: tuple[float, float] | None) -> list[str]:
    """Return what stands out, in words; for an honest device that is three chances in a million.

    >>> flags(Drift("t", "owner:ann", answers=10, squares=9.0, repeats=9), (30.0, 400.0))
    ['its answers are smaller than their noise', 'it sends the same numbers again']
    """
    said = []
    if bounds is not None and sums.squares < bounds[0]:
        said.append("its answers are smaller than their noise")
    if bounds is not None and sums.squares > bounds[1]:
        said.append("its answers are larger than clip and noise allow")
    if sums.compared and sums.agreement < _AGAINST * math.sqrt(sums.compared):
        said.append("it pulls against the others")
    if sums.repeats >= REPEATS_MIN:
        said.append("it sends the same numbers again")
    return said


@lru_cache(maxsize=4096)
def square_bounds(*, answers: int, dimension: int, clip_to_noise: float) -> tuple[float, float]:
    """Return between what the squared norms of honest answers sum to, in units of sigma^2."""
    low, high = square_sum_bounds(answers * dimension, false_alarm=_FALSE_ALARM)
    return low, (clip_to_noise * math.sqrt(answers) + math.sqrt(high)) ** 2
