"""What a device's updates say of it over rounds.

An update is y = g + sigma N, a clipped mean of norm L at most and the device's own noise. Over n
updates two sums tell what one update cannot:

- the squared norms, in units of sigma^2, lie between chi2.ppf(1e-6, n d) and
  (L sqrt(n) / sigma + sqrt(chi2.isf(1e-6, n d)))^2, for whatever g of norm L at most;
- <y, u> / (sigma |u|), u the weighted mean of the others' updates in the same round, is a standard
  normal number where there is no g, and larger where g points as the others' does. Its sum over
  sqrt(n) is far below 0 only for who pulls against the others.

Neither withholds any pay. Pure noise of the right size passes both: the first because it is what
honest noise looks like, the second because nobody must agree with the others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence  # noqa: TC003 - read by web.shapes
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.learning.update_check import square_sum_bounds, update_numbers
from fedbourse.market.records import DeviceStatistics
from fedbourse.market.service import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.aggregation import Aggregate
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Allocation, Task

_FALSE_ALARM = 1e-6
_AGAINST = -4.753424308822899
"""What a standard normal number is below with a chance of 1e-6."""
REPEATS_MIN = 2
"""Two updates with the same numbers may be chance where there are few of them and small."""
NOTE = (
    "These sums flag a device; they never withhold its pay. Pure noise of the right size passes "
    "them, and so does false work that is small beside the noise."
)


@dataclass(frozen=True)
class DeviceMonitoring:
    """What an owner's updates say of its device, over the rounds that are closed."""

    owner: str
    updates: int
    squares: float
    """The sum of squared norms, in units of the noise's variance."""
    squares_low: float | None
    """Below this, updates are smaller than their noise; null once the budget was erased."""
    squares_high: float | None
    """Above this, they are larger than clip and noise allow."""
    agreement: float | None
    """How far they point where the others' do; below -4.75, they pull against them."""
    repeats: int
    """Updates with the same numbers as the one before."""
    refused: Mapping[str, int]
    """Rounds whose update was refused, by reason; of several to a round the last."""
    flags: Sequence[str]
    """What stands out, in words."""


@dataclass(frozen=True)
class MonitoringPage:
    """Devices by their owners' names."""

    task: str
    devices: Sequence[DeviceMonitoring]
    note: str
    """What these numbers cannot tell."""
    next: str | None
    """``after`` of the next page."""


def watch(
    tx: Transaction,
    task: Task,
    bodies: Iterable[tuple[str, bytes]],
    scales: FloatArray,
    aggregate: Aggregate,
) -> None:
    """Add the open round's updates to each owner's sums, beside the aggregate of all of them."""
    before = {each.owner: each for each in tx.device_statistics(task.id)}
    after = []
    for number, (owner, body) in enumerate(bodies):
        vector = update_numbers(body, dimension=task.card.dimension)
        sums = before.get(owner, DeviceStatistics(task.id, owner))
        others = aggregate.others(number, vector)
        after.append(added(sums, vector / scales[number], others, body))
    tx.put_device_statistics(after)


def added(
    sums: DeviceStatistics, noise: FloatArray, others: FloatArray, body: bytes
) -> DeviceStatistics:
    """Add an update, in units of its noise, beside the weighted sum of the others' updates."""
    length = float(np.linalg.norm(others))
    alone = not (np.isfinite(length) and length > 0)
    hash = hashlib.sha256(body).hexdigest()
    return replace(
        sums,
        updates=sums.updates + 1,
        squares=sums.squares + float(noise @ noise),
        compared=sums.compared + (not alone),
        agreement=sums.agreement + (0.0 if alone else float(noise @ (others / length))),
        repeats=sums.repeats + (hash == sums.last_vector),
        last_vector=hash,
    )


def of_task(
    tx: Transaction, caller: Caller, task_id: str, *, after: str, limit: int
) -> MonitoringPage:
    """Return every device to auditors and the operator, and to an owner its own."""
    task = show(tx.task(task_id), caller)
    everybody = bool(caller.scopes & {"auditor", "operator"})
    if everybody:
        allocations = tx.allocations(task.id, after=after, limit=limit)
    else:
        caller.require("owner", "auditor", "operator")
        own = tx.allocation(task.id, caller.party)
        allocations = [own] if own is not None and own.owner > after else []
    signed = [allocation for allocation in allocations if allocation.trained]
    names = [allocation.owner for allocation in signed]
    sums = {each.owner: each for each in tx.device_statistics(task.id, names)}
    refused = tx.refused_updates(task.id, names)
    devices = [
        device_document(
            task, allocation, sums.get(allocation.owner), refused.get(allocation.owner, {})
        )
        for allocation in signed
    ]
    last = allocations[-1].owner if everybody and len(allocations) == limit else None
    return MonitoringPage(task.id, devices, NOTE, last)


def device_document(
    task: Task, allocation: Allocation, sums: DeviceStatistics | None, refused: Mapping[str, int]
) -> DeviceMonitoring:
    """Return what the sums of a device say of it, in numbers and in words."""
    sums = sums or DeviceStatistics(task.id, allocation.owner)
    bounds = None
    if allocation.budget is not None and sums.updates:  # a budget may have been erased
        scale = task.card.privacy_terms(task=task.id, budget=allocation.budget).scale
        bounds = square_bounds(
            updates=sums.updates,
            dimension=task.card.dimension,
            clip_to_noise=task.card.clip / scale,
        )
    agreement = sums.agreement / math.sqrt(sums.compared) if sums.compared else None
    return DeviceMonitoring(
        owner=allocation.owner,
        updates=sums.updates,
        squares=sums.squares,
        squares_low=bounds and bounds[0],
        squares_high=bounds and bounds[1],
        agreement=agreement,
        repeats=sums.repeats,
        refused=refused,
        flags=flags(sums, bounds),
    )


def flags(sums: DeviceStatistics, bounds: tuple[float, float] | None) -> list[str]:
    """Return what stands out, in words; for an honest device that is three chances in a million.

    >>> flags(DeviceStatistics("t", "owner:ann", updates=10, squares=9.0, repeats=9), (30.0, 400.0))
    ['its updates are smaller than their noise', 'it sends the same numbers again']
    """
    notes = []
    if bounds is not None and sums.squares < bounds[0]:
        notes.append("its updates are smaller than their noise")
    if bounds is not None and sums.squares > bounds[1]:
        notes.append("its updates are larger than clip and noise allow")
    if sums.compared and sums.agreement < _AGAINST * math.sqrt(sums.compared):
        notes.append("it pulls against the others")
    if sums.repeats >= REPEATS_MIN:
        notes.append("it sends the same numbers again")
    return notes


def square_bounds(*, updates: int, dimension: int, clip_to_noise: float) -> tuple[float, float]:
    """Return between what the squared norms of honest updates sum to, in units of sigma^2."""
    low, high = _noise_bounds(updates * dimension)
    return low, (clip_to_noise * math.sqrt(updates) + math.sqrt(high)) ** 2


@lru_cache(maxsize=4096)
def _noise_bounds(numbers: int) -> tuple[float, float]:
    """Return between what the squares of so many numbers of pure noise sum to.

    Devices differ in their noise, and seldom in how many numbers they have sent.
    """
    return square_sum_bounds(numbers, false_alarm=_FALSE_ALARM)
