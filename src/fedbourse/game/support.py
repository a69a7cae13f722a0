"""The linear game's participants from one reading of any number of owners, mergeable.

Adding owners can only lower the threshold: whoever stays out of a subset's equilibrium stays out of
the whole one. So the participants of a union are the participants of the parts' participants put
together: a summary that can be merged in any order, grouping and number of machines, and holds only
those who may still take part.

One reading: blocks stream through the cache, and only values below a bound are kept; when what is
kept has doubled, its own threshold is the next bound, and whoever it keeps out is dropped. Where
more than ``KEPT`` owners may take part, the fullest cells of values become crowds (see ``crowd``),
so that memory stays bounded; their names are given up, and all decisions stay exact. Only where the
threshold cuts through a crowd, and nobody can read its owners again, values are known to 1e-12.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.chunk_walk import SAMPLE, ChunkWalk, below
from fedbourse.game.columns import FloatArray, column
from fedbourse.game.crowd import Crowd, Mixed, Split, cell_of, empty_crowd
from fedbourse.game.participants import (
    ROWS_MAX,
    SOURCES_MAX,
    Kept,
    Participants,
    least,
    names_of,
    place_of,
    row_of,
    source_of,
    together,
)
from fedbourse.game.rules import too_few
from fedbourse.game.spans import chosen, on_every_core
from fedbourse.game.threshold import SLACK, threshold
from fedbourse.units import whole_number

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedbourse.game.profile import Equilibrium

KEPT = 1 << 20
"""How many owners a support keeps one by one: some 50 MB at most, while it drops others."""


class Support:
    """Those owners of a linear game who may still take part; grows and merges.

    >>> support = Support()
    >>> support.add([1.0, 5.0])
    >>> support.add([1.0, 2.0])
    >>> found = support.result(reward=8.0)
    >>> found.participants, found.budgets
    (array([0, 2]), array([2., 2.]))
    """

    def __init__(self, *, first_position: int = 0, read_again: bool = False) -> None:
        """Start with nobody; the first owner added without a source has this position.

        Whoever can read all owners again may leave out the counts that stand in for it.
        """
        self.owners = 0
        self._rows = {"": whole_number("first_position", first_position, at_least=0)}
        """How many rows each source had so far."""
        self._numbers = {"": 0}
        """Which number each of them has: in the order of coming."""
        self._bound = math.inf
        self._outsider = math.inf
        self._kept: list[Kept] = []
        self._crowds: dict[int, Crowd] = {}
        self._splits: dict[int, Split] | None = None if read_again else {}
        """The owners of crowds by finer cells, for a threshold that cuts through one of them."""
        self._prune_above = 4 * SAMPLE

    def add(self, values: object, *, names: object = None, source: str = "") -> None:
        """Add a column of owners' values.

        ``names`` says what these owners are called. Otherwise they are known by their rows, which
        go on from those of the same ``source`` that were added before.
        """
        row = self._rows.get(source, 0)
        data = column("values", values, start=row, where=_where(source))
        called = names_of(names, len(data))
        if row + len(data) > ROWS_MAX:
            raise InvalidGame(
                f"positions{_where(source)} must lie below 2^40; found {row + len(data) - 1}"
            )
        bound = min(self._bound, _bound_by_sample(data))
        room = np.empty(len(data))  # pages that are never written cost nothing

        def work(start: int, stop: int) -> ChunkWalk:
            walk = ChunkWalk(
                data,
                room[start:stop],
                bound,
                cells=list(self._crowds),
                lists_members=self._splits is not None,
                where=_where(source),
            )
            return walk.run(start, stop, row)

        walks = on_every_core(work, len(data))  # refuses what is no value: nothing was added then
        self._bound = min(walk.bound for walk in walks)
        self._outsider = min([self._outsider, *(walk.outsider for walk in walks)])
        self.owners += len(data)
        self._rows[source] = row + len(data)
        first = place_of(self._number(source), row)
        for walk in walks:
            self._join(walk.crowds)
            for cell, members in walk.members:
                self._count(cell, members)
        self._take([walk.result(first - row, called) for walk in walks])

    def merge(self, other: Support) -> None:
        """Take over another summary's owners; rows, sources and names stay as they are."""
        if other is self:
            raise InvalidGame(
                "a support cannot be merged with itself: its owners would count twice"
            )
        for source, rows in other._rows.items():
            self._rows[source] = max(self._rows.get(source, 0), rows)
        numbers = np.array([self._number(source) for source in other._rows])
        moved = [
            replace(kept, places=place_of(numbers[source_of(kept.places)], row_of(kept.places)))
            for kept in other._kept
        ]
        self._bound = min(self._bound, other._bound)
        self._outsider = min(self._outsider, other._outsider)
        self.owners += other.owners
        self._join(other._crowds)
        self._join_splits(other)
        own, self._kept = self._kept, []
        self._take([self._without_crowds(piece) for piece in (*own, *moved)])
        if self._crowds:
            self._prune()  # crowds of parts may be out of the whole

    def result(self, reward: float) -> Equilibrium:
        """Return the equilibrium of all owners added, for the linear cost."""
        from fedbourse.game.profile import linear_equilibrium

        return linear_equilibrium(self.participants(), reward=reward)

    def participants(self) -> Participants:
        """Return who takes part, decided strictly: an owner at the threshold stays out."""
        if self.owners < 2:
            raise InvalidGame(too_few(self.owners))
        kept = self._collect()
        self._refuse_zero(kept)
        if (asked := self.in_question()) is not None:
            return self._cut(asked)
        found = self._mixed().threshold() if self._crowds else threshold(kept.values)
        inside = kept.values <= found.dearest
        beyond = [crowd.least for crowd in self._crowds.values() if crowd.least > found.dearest]
        outsiders = [self._outsider, self._bound, least(chosen(kept.values, ~inside)), *beyond]
        return Participants(
            owners=self.owners,
            threshold=found,
            cheapest_outsider=math.inf if found.count == self.owners else min(outsiders),
            kept=too_many if len(beyond) < len(self._crowds) else partial(kept.only, inside),
            sources=dict(self._rows),
        )

    def in_question(self) -> Crowd | None:
        """Return the crowd of which some owners take part and some do not, if there is one.

        Only another reading of all owners can tell which.
        """
        return self._mixed().undecided() if self._crowds else None

    def split(self, counted: Split) -> None:
        """Replace the crowd in question by what another reading has found."""
        crowd = self._crowds.pop(counted.crowd.first)
        parts = counted.parts(self._mixed(crowd).joins)
        self._crowds |= {part.first: part for part in parts}
        above = math.nextafter(parts[-1].largest, math.inf) if parts else crowd.least
        self._outsider = min(self._outsider, above)

    def _cut(self, asked: Crowd) -> Participants:
        """Return who takes part, the crowd in question being cut by what was counted of it.

        The threshold lies in a finer cell then, of relative width 2^-40, whose owners all take part
        as if they had its least value: so the threshold is off by less than that, too.
        """
        if self._splits is None:
            raise InvalidGame(
                f"some of {asked.count} owners with values from {asked.least:.17g} to "
                f"{asked.largest:.17g} take part; another reading, which read_again promised, "
                "must tell which"
            )
        cut = copy.copy(self)
        cut._crowds = dict(self._crowds)
        cut.split(self._splits[asked.first])
        if (left := cut.in_question()) is None:
            return cut.participants()
        cut._crowds[left.first] = replace(left, offsets=0, largest=left.least)
        found = cut.participants()
        # Whoever lies above a bound was never counted.
        reach = min(left.largest, self._bound, below(self._outsider))
        return replace(found, threshold=replace(found.threshold, reach=reach))

    @property
    def crowded(self) -> bool:
        """Say whether some owners are held as crowds, not one by one."""
        return bool(self._crowds)

    def _number(self, source: str) -> int:
        number = self._numbers.setdefault(source, len(self._numbers))
        if number >= SOURCES_MAX:
            raise InvalidGame(f"there must be at most {SOURCES_MAX} sources; found one more")
        return number

    def _row(self, place: np.int64) -> tuple[int, str]:
        """Return an owner's row, and in words where rows are counted."""
        return int(row_of(place)), _where(list(self._rows)[source_of(place)])

    def _mixed(self, besides: Crowd | None = None) -> Mixed:
        crowds = list(self._crowds.values())
        least = [crowd.least for crowd in (*crowds, *([besides] if besides else []))]
        return Mixed(self._collect().values, crowds, cheapest_crowd=min(least, default=math.inf))

    def _collect(self) -> Kept:
        """Return all that is kept one by one, in the order of places."""
        if len(self._kept) > 1:
            kept = together(self._kept)
            steps = np.diff(kept.places)
            if (steps < 0).any():  # merged out of order
                queue = np.argsort(kept.places)
                names = None if kept.names is None else kept.names[queue]
                kept = Kept(kept.values[queue], kept.places[queue], names)
                steps = np.diff(kept.places)
            if (steps == 0).any():
                row, where = self._row(kept.places[np.argmin(steps)])
                raise InvalidGame(
                    f"position {row}{where} was added twice: give parts a first_position, or a "
                    "source each"
                )
            self._kept = [kept]
        return self._kept[0] if self._kept else together([])

    def _take(self, pieces: list[Kept]) -> None:
        """Keep more owners one by one, and drop whoever is out by now."""
        self._kept += [piece for piece in pieces if len(piece.values)]
        size = sum(len(kept.values) for kept in self._kept)
        if len(self._kept) > 1 and size > self._prune_above:
            self._prune()
            self._prune_above = 2 * max(len(self._collect().values), 2 * SAMPLE)

    def _join(self, crowds: dict[int, Crowd]) -> None:
        for first, crowd in crowds.items():
            mine = self._crowds.get(first)
            self._crowds[first] = crowd if mine is None else mine.merged(crowd)

    def _count(self, cell: int, members: FloatArray) -> None:
        """Count members of a crowd by finer cells, unless they can be read again."""
        if self._splits is None:
            return
        if cell not in self._splits:
            self._splits[cell] = Split(empty_crowd(cell))
        self._splits[cell].add(members)

    def _join_splits(self, other: Support) -> None:
        if self._splits is None or other._splits is None:
            self._splits = None
            return
        for cell, split in other._splits.items():
            if cell in self._splits:
                self._splits[cell].merge(split)
            else:
                self._splits[cell] = copy.deepcopy(split)

    def _without_crowds(self, piece: Kept) -> Kept:
        """Let owners join the crowds that they belong to, and return the others."""
        alone = np.ones(len(piece.values), np.bool_)
        for first, crowd in self._crowds.items():
            inside = crowd.contains(piece.values) & (piece.values <= self._bound)
            self._crowds[first] = crowd.joined_by(piece.values[inside])
            self._count(first, piece.values[inside])
            alone &= ~inside
        return piece if alone.all() else piece.only(alone)

    def _prune(self) -> None:
        """Lower the bound to the threshold of what is kept, and drop whoever lies above."""
        kept = self._collect()
        self._refuse_zero(kept)
        if self._crowds:
            mixed = self._mixed()
            self._bound = min(self._bound, mixed.bound())
            out = [crowd for crowd in mixed.crowds if crowd.least > self._bound]
            for crowd in out:
                del self._crowds[crowd.first]
                if self._splits is not None:
                    del self._splits[crowd.first]
                self._outsider = min(self._outsider, crowd.least)
            inside = kept.values <= self._bound
        else:
            found = threshold(kept.values)
            self._bound = min(self._bound, found.tau * (1 + SLACK))
            inside = kept.values <= found.dearest
        self._outsider = min(self._outsider, least(chosen(kept.values, ~inside)))
        self._bound = min(self._bound, below(self._outsider))
        kept = kept.only(inside)
        self._kept = [self._crowded(kept) if len(kept.values) > KEPT else kept]

    def _crowded(self, kept: Kept) -> Kept:
        """Turn the fullest cells into crowds until half of what may be kept is left."""
        cells, of_owner, counts = np.unique(
            cell_of(kept.values), return_inverse=True, return_counts=True
        )
        fullest = np.argsort(-counts, kind="stable")
        left = len(kept.values) - np.cumsum(counts[fullest])
        chosen_cells = fullest[: int(np.argmax(left <= KEPT // 2)) + 1]
        inside = np.isin(of_owner, chosen_cells)
        for cell in chosen_cells:
            crowd, members = empty_crowd(int(cells[cell])), kept.values[of_owner == cell]
            self._crowds[crowd.first] = crowd.joined_by(members)
            self._count(crowd.first, members)
        return kept.only(~inside)

    def _refuse_zero(self, kept: Kept) -> None:
        """Refuse a value of 0: nobody with one is ever dropped."""
        if least(kept.values) == 0:
            row, where = self._row(kept.places[int(np.argmin(kept.values))])
            raise InvalidGame(f"values[{row}]{where} must be a finite number above 0; found 0.0")


def _bound_by_sample(data: npt.NDArray[Any]) -> float:
    """Return a bound on the threshold from a few values spread over the data."""
    if len(data) <= 4 * SAMPLE:
        return math.inf
    sample = np.array(data[:: len(data) // SAMPLE], dtype=np.float64)
    if not (np.isfinite(sample).all() and sample.min() > 0):  # the walk will say where
        return math.inf
    return threshold(sample).tau * (1 + SLACK)


def too_many() -> NoReturn:
    """Refuse to list more owners than are kept one by one."""
    raise InvalidGame(
        f"more than {KEPT} owners may take part, too many to be listed: ask budgets_of(values), "
        "chunk by chunk"
    )


def _where(source: str) -> str:
    return f" of {source}" if source else ""
