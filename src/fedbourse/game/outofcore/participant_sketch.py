"""The linear game's participants from one reading of any number of owners, mergeable.

Adding owners can only lower the cutoff: whoever stays out of a subset's equilibrium stays out of
the whole one. So the participants of a union are the participants of the parts' participants put
together: a summary that can be merged in any order, grouping and number of machines, and holds only
those who may still take part.

One reading: blocks stream through the cache, and only values below a bound are held; when their
number has doubled, their own cutoff is the next bound, and whoever it keeps out is dropped. Where
more than ``TABLE_MAX`` owners may take part, those of the fullest bins are only counted (see
``bins``), so that memory stays bounded; their names are given up, and all decisions stay exact.
Only where the cutoff lies within a bin, and its owners cannot be read again, is it known to 1e-12.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidGame
from fedbourse.game.array_spans import on_every_core, select
from fedbourse.game.columns import FloatArray, column
from fedbourse.game.cutoff import SLACK, find_cutoff
from fedbourse.game.game import too_few
from fedbourse.game.outofcore.bins import Bin, BinnedOwners, bin_starts
from fedbourse.game.outofcore.chunk_scan import SAMPLE, ChunkScan, below
from fedbourse.game.outofcore.refinement import Refinement
from fedbourse.game.participants import (
    ROWS_MAX,
    SOURCES_MAX,
    OwnerTable,
    ParticipantSet,
    checked_names,
    place_of,
    smallest,
    source_and_row,
)
from fedbourse.game.profile import Equilibrium
from fedbourse.units import whole_number

TABLE_MAX = 1 << 20
"""How many owners a sketch holds individually: some 50 MB at most, while it drops others."""


class ParticipantSketch:
    """Those owners of a linear game who may still take part; grows and merges.

    >>> sketch = ParticipantSketch()
    >>> sketch.add([1.0, 5.0])
    >>> sketch.add([1.0, 2.0])
    >>> result = sketch.result(reward=8.0)
    >>> result.participants, result.budgets
    (array([0, 2]), array([2., 2.]))
    """

    def __init__(self, *, first_position: int = 0, read_again: bool = False) -> None:
        """Start empty; the first owner added without a source has this position.

        Whoever can read all owners again may leave out the counts that stand in for it.
        """
        self.owners = 0
        self._rows = {"": whole_number("first_position", first_position, at_least=0)}
        """How many rows each source had so far."""
        self._numbers = {"": 0}
        """The number of each source, in the order of arrival."""
        self._bound = math.inf
        self._outsider = math.inf
        self._tables: list[OwnerTable] = []
        self._bins: dict[int, Bin] = {}
        self._refinements: dict[int, Refinement] | None = None if read_again else {}
        """The owners of bins by finer bins, for a cutoff that lies within one of them."""
        self._prune_above = 4 * SAMPLE

    def add(self, values: object, *, names: object = None, source: str = "") -> None:
        """Add a column of owners' values.

        ``names`` says what these owners are called. Otherwise they are known by their rows, which
        go on from those of the same ``source`` that were added before.
        """
        row, where = self._rows.get(source, 0), _where(source)
        data = column("values", values, start=row, where=where)
        row_names = checked_names(names, len(data))
        if row + len(data) > ROWS_MAX:
            raise InvalidGame(f"positions{where} must lie below 2^40; found {row + len(data) - 1}")
        bound = min(self._bound, _bound_by_sample(data))
        buffer = np.empty(len(data))  # pages that are never written cost nothing

        def work(start: int, stop: int) -> ChunkScan:
            scan = ChunkScan(
                data,
                buffer[start:stop],
                bound,
                bins=list(self._bins),
                lists_members=self._refinements is not None,
                where=where,
            )
            return scan.run(start, stop, row)

        scans = on_every_core(work, len(data))  # refuses bad values before anything is added
        self._bound = min(scan.bound for scan in scans)
        self._outsider = min([self._outsider, *(scan.outsider for scan in scans)])
        self.owners += len(data)
        self._rows[source] = row + len(data)
        first = place_of(self._number(source), row)
        for scan in scans:
            self._merge_bins(scan.bins)
            for start, members in scan.members:
                self._refine(start, members)
        self._take([scan.result(first - row, row_names) for scan in scans])

    def merge(self, other: ParticipantSketch) -> None:
        """Take over another sketch's owners; rows, sources and names stay as they are."""
        if other is self:
            raise InvalidGame("a sketch cannot be merged with itself: its owners would count twice")
        for source, rows in other._rows.items():
            self._rows[source] = max(self._rows.get(source, 0), rows)
        numbers = np.array([self._number(source) for source in other._rows])
        moved = []
        for table in other._tables:
            number, row = source_and_row(table.places)
            moved.append(replace(table, places=place_of(numbers[number], row)))
        self._bound = min(self._bound, other._bound)
        self._outsider = min(self._outsider, other._outsider)
        self.owners += other.owners
        self._merge_bins(other._bins)
        self._merge_refinements(other)
        own, self._tables = self._tables, []
        self._take([self._without_binned(table) for table in (*own, *moved)])
        if self._bins:
            self._prune()  # bins of parts may be out of the whole

    def result(self, reward: float) -> Equilibrium:
        """Return the equilibrium of all owners added, for the linear cost."""
        from fedbourse.game.profile import linear_equilibrium

        return linear_equilibrium(self.participants(), reward=reward)

    def participants(self) -> ParticipantSet:
        """Return who takes part, decided strictly: an owner at the cutoff stays out."""
        if self.owners < 2:
            raise InvalidGame(too_few(self.owners))
        table = self._collect()
        self._refuse_zero(table)
        if (undecided := self.undecided_bin()) is not None:
            return self._participants_within(undecided)
        cutoff = self._binned().cutoff() if self._bins else find_cutoff(table.values)
        inside = table.values <= cutoff.highest
        beyond = [one.least for one in self._bins.values() if one.least > cutoff.highest]
        outsiders = [self._outsider, self._bound, smallest(select(table.values, ~inside)), *beyond]
        return ParticipantSet(
            owners=self.owners,
            cutoff=cutoff,
            cheapest_outsider=math.inf if cutoff.count == self.owners else min(outsiders),
            members=too_many if len(beyond) < len(self._bins) else partial(table.only, inside),
            sources=dict(self._rows),
        )

    def undecided_bin(self) -> Bin | None:
        """Return the bin of which some owners take part and some do not, if there is one.

        Only another reading of all owners can tell which.
        """
        return self._binned().undecided() if self._bins else None

    def refine(self, refinement: Refinement) -> None:
        """Replace the undecided bin by its finer bins, from another reading."""
        coarse = self._bins.pop(refinement.coarse.first)
        parts = refinement.parts(self._binned(coarse).joins)
        self._bins |= {part.first: part for part in parts}
        above = math.nextafter(parts[-1].largest, math.inf) if parts else coarse.least
        self._outsider = min(self._outsider, above)

    @property
    def binned(self) -> bool:
        """Say whether some owners are counted in bins, not held individually."""
        return bool(self._bins)

    def _participants_within(self, undecided: Bin) -> ParticipantSet:
        """Return who takes part where the cutoff lies within a bin, by its finer bins.

        It lies in one of them then, of relative width 2^-40, whose owners all take part as if they
        had its least value: so the cutoff is off by less than that, too.
        """
        if self._refinements is None:
            raise InvalidGame(
                f"some of {undecided.count} owners with values from {undecided.least:.17g} to "
                f"{undecided.largest:.17g} take part; another reading, which read_again promised, "
                "must tell which"
            )
        refined = copy.copy(self)
        refined._bins = dict(self._bins)
        refined.refine(self._refinements[undecided.first])
        if (left := refined.undecided_bin()) is None:
            return refined.participants()
        refined._bins[left.first] = replace(left, offsets=0, largest=left.least)
        participants = refined.participants()
        # Whoever lies above a bound was never counted.
        reach = min(left.largest, self._bound, below(self._outsider))
        return replace(participants, cutoff=replace(participants.cutoff, reach=reach))

    def _number(self, source: str) -> int:
        number = self._numbers.setdefault(source, len(self._numbers))
        if number >= SOURCES_MAX:
            raise InvalidGame(f"there must be at most {SOURCES_MAX} sources; found one more")
        return number

    def _row(self, place: np.int64) -> tuple[int, str]:
        """Return an owner's row, and the words that name its source."""
        number, row = source_and_row(place)
        return int(row), _where(list(self._rows)[number])

    def _binned(self, besides: Bin | None = None) -> BinnedOwners:
        bins = list(self._bins.values())
        least = [one.least for one in (*bins, *([besides] if besides else []))]
        values = self._collect().values
        return BinnedOwners(values, bins, cheapest_binned=min(least, default=math.inf))

    def _collect(self) -> OwnerTable:
        """Return all owners that are held individually, in the order of places."""
        if len(self._tables) > 1:
            table = OwnerTable.concat(self._tables)
            if (np.diff(table.places) < 0).any():  # merged out of order
                table = table.take(np.argsort(table.places))
            same = np.diff(table.places) == 0
            if same.any():
                row, where = self._row(table.places[np.argmax(same)])
                raise InvalidGame(
                    f"position {row}{where} was added twice: give parts a first_position, or a "
                    "source each"
                )
            self._tables = [table]
        return self._tables[0] if self._tables else OwnerTable.concat([])

    def _take(self, tables: list[OwnerTable]) -> None:
        """Hold more owners individually, and drop whoever is out by now."""
        self._tables += [table for table in tables if len(table.values)]
        size = sum(len(table.values) for table in self._tables)
        if len(self._tables) > 1 and size > self._prune_above:
            self._prune()
            self._prune_above = 2 * max(len(self._collect().values), 2 * SAMPLE)

    def _merge_bins(self, bins: dict[int, Bin]) -> None:
        for first, one in bins.items():
            self._bins[first] = self._bins[first].merged(one) if first in self._bins else one

    def _refine(self, first: int, members: FloatArray) -> None:
        """Count members of a bin by finer bins, unless they can be read again."""
        if self._refinements is None:
            return
        if first not in self._refinements:
            self._refinements[first] = Refinement(Bin.empty(first))
        self._refinements[first].add(members)

    def _merge_refinements(self, other: ParticipantSketch) -> None:
        if self._refinements is None or other._refinements is None:
            self._refinements = None
            return
        for first, refinement in other._refinements.items():
            if first in self._refinements:
                self._refinements[first].merge(refinement)
            else:
                self._refinements[first] = copy.deepcopy(refinement)

    def _without_binned(self, table: OwnerTable) -> OwnerTable:
        """Count owners in the bins that they belong to, and return the others."""
        alone = np.ones(len(table.values), np.bool_)
        for first, one in self._bins.items():
            inside = one.contains(table.values) & (table.values <= self._bound)
            self._bins[first] = one.with_values(table.values[inside])
            self._refine(first, table.values[inside])
            alone &= ~inside
        return table if alone.all() else table.only(alone)

    def _prune(self) -> None:
        """Lower the bound to the cutoff of those held, and drop whoever lies above."""
        table = self._collect()
        self._refuse_zero(table)
        if self._bins:
            self._bound = min(self._bound, self._binned().bound())
            for one in [one for one in self._bins.values() if one.least > self._bound]:
                del self._bins[one.first]
                if self._refinements is not None:
                    del self._refinements[one.first]
                self._outsider = min(self._outsider, one.least)
            inside = table.values <= self._bound
        else:
            cutoff = find_cutoff(table.values)
            self._bound = min(self._bound, cutoff.tau * (1 + SLACK))
            inside = table.values <= cutoff.highest
        self._outsider = min(self._outsider, smallest(select(table.values, ~inside)))
        self._bound = min(self._bound, below(self._outsider))
        table = table.only(inside)
        self._tables = [self._fill_bins(table) if len(table.values) > TABLE_MAX else table]

    def _fill_bins(self, table: OwnerTable) -> OwnerTable:
        """Count the owners of the fullest bins until half of ``TABLE_MAX`` is left; return them."""
        starts, bin_of_owner, counts = np.unique(
            bin_starts(table.values), return_inverse=True, return_counts=True
        )
        fullest = np.argsort(-counts, kind="stable")
        left = len(table.values) - np.cumsum(counts[fullest])
        full = fullest[: int(np.argmax(left <= TABLE_MAX // 2)) + 1]
        for i in full:
            first, members = int(starts[i]), table.values[bin_of_owner == i]
            self._bins[first] = Bin.empty(first).with_values(members)
            self._refine(first, members)
        return table.only(~np.isin(bin_of_owner, full))

    def _refuse_zero(self, table: OwnerTable) -> None:
        """Refuse a value of 0: no owner with one is ever dropped."""
        if smallest(table.values) == 0:
            row, where = self._row(table.places[int(np.argmin(table.values))])
            raise InvalidGame(f"values[{row}]{where} must be a finite number above 0; found 0.0")


def _bound_by_sample(data: npt.NDArray[Any]) -> float:
    """Return a bound on the cutoff from a few values spread over the data."""
    if len(data) <= 4 * SAMPLE:
        return math.inf
    sample = np.array(data[:: len(data) // SAMPLE], dtype=np.float64)
    if not (np.isfinite(sample).all() and sample.min() > 0):  # the scan will say where
        return math.inf
    return find_cutoff(sample).tau * (1 + SLACK)


def too_many() -> NoReturn:
    """Refuse to list more owners than are held individually."""
    raise InvalidGame(
        f"more than {TABLE_MAX} owners may take part, too many to be listed: ask "
        "budgets_of(values), chunk by chunk"
    )


def _where(source: str) -> str:
    return f" of {source}" if source else ""
