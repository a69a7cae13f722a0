"""Who holds which records: a pool dealt out to owners, no record to two of them.

The schemes are those of federated studies: alike (``iid``), skewed by label (``dirichlet:ALPHA``),
of different sizes (``unequal:SPREAD``), and natural (``groups``: one owner per aircraft, say).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from fedbourse.errors import InvalidData
from fedbourse.game.columns import BoolArray, FloatArray, IntArray
from fedbourse.learning.records import Pool, Records
from fedbourse.units import number, whole_number

SCHEMES = ("iid", "dirichlet:ALPHA", "unequal:SPREAD", "groups")


@dataclass(frozen=True, eq=False)
class Federation:
    """All owners' records, one owner after another: owner i has rows offsets[i] to offsets[i+1]."""

    records: Records
    offsets: IntArray
    samples: IntArray | None = None
    """Each owner's m, where that is not the number of its rows."""
    fits: BoolArray | None = None
    """Which rows of a device hold a record; the others contribute nothing. None where owners are
    simulated: they hold as many as was agreed."""

    def __post_init__(self) -> None:
        offsets = np.asarray(self.offsets)
        if (
            offsets.ndim != 1
            or offsets.dtype.kind not in "iu"
            or len(offsets) < 2
            or offsets[0] != 0
            or offsets[-1] != len(self.records)
            or (np.diff(offsets.astype(np.int64)) < 1).any()
        ):
            raise InvalidData(
                f"offsets must rise from 0 to {len(self.records)}, the number of records; "
                f"found {np.array2string(offsets, threshold=6)}"
            )
        object.__setattr__(self, "offsets", offsets.astype(np.int64))
        assert self.samples is None or len(self.samples) == self.owners
        assert self.fits is None or len(self.fits) == len(self.records)

    @property
    def owners(self) -> int:
        """The number of owners."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """The number of rows of each owner."""
        return np.diff(self.offsets)

    @property
    def divisors(self) -> IntArray:
        """Each owner's m, which the sum of its clipped gradients is divided by."""
        return self.sizes if self.samples is None else self.samples

    @property
    def on_device(self) -> bool:
        """Whether rows are a device's, among which records come and go."""
        return self.fits is not None

    @cached_property
    def parts(self) -> tuple[Records, ...]:
        """Each owner's rows, without copying them."""
        whole = self.records
        cuts = [slice(*pair) for pair in pairwise(self.offsets.tolist())]
        return tuple(Records(whole.features[c], whole.labels[c], whole.classes) for c in cuts)

    @cached_property
    def parts_fit(self) -> tuple[BoolArray | None, ...]:
        """Which of each owner's rows hold a record; None where all do."""
        if self.fits is None:
            return (None,) * self.owners
        return tuple(np.split(self.fits, self.offsets[1:-1]))


def partition(
    pool: Pool,
    *,
    owners: int,
    samples: int,
    scheme: str = "iid",
    seed: int,
    groups: IntArray | None = None,
    name: str = "the data",
) -> Federation:
    """Deal ``samples`` records of the pool to each owner; ``name`` is the pool's, for errors.

    ``groups`` holds the group of each record, below 0 for none; only the scheme groups uses it.
    """
    owners = whole_number("owners", owners, at_least=1)
    samples = whole_number("samples", samples, at_least=1)
    rng = np.random.default_rng(whole_number("seed", seed, at_least=0))
    kind, parameter = _parse(scheme)
    if kind == "groups":
        rows = _natural(
            groups, records=len(pool), owners=owners, samples=samples, rng=rng, name=name
        )
    elif owners * samples > len(pool):
        raise InvalidData(_too_few(name, len(pool), owners, samples))
    elif kind == "dirichlet":
        rows = _skewed(pool, owners=owners, samples=samples, alpha=parameter, rng=rng, name=name)
    else:
        # A whole shuffle, though fewer are needed: more owners then leave the first ones theirs.
        rows = rng.permutation(len(pool))[: owners * samples]
    sizes = np.full(owners, samples)
    if kind == "unequal":
        sizes = _sizes(owners, samples, parameter, rng)
    return Federation(pool.take(rows), np.concatenate(([0], np.cumsum(sizes))))


def _parse(scheme: str) -> tuple[str, float]:
    kind, colon, text = scheme.partition(":")
    wants = {"iid": "", "groups": "", "dirichlet": "ALPHA", "unequal": "SPREAD"}.get(kind)
    if wants is None or (colon and not wants):
        raise InvalidData(f"a scheme must be one of {', '.join(SCHEMES)}; found {scheme!r:.60}")
    if not wants:
        return kind, 0.0
    try:
        value = float(text)
    except ValueError:
        raise InvalidData(
            f"the scheme {kind} is written {kind}:{wants}, with a number; found {scheme!r:.60}"
        ) from None
    if kind == "dirichlet":
        # Beyond these the draws are one class, or all alike, to the last bit.
        return kind, number("ALPHA", value, at_least=1e-6, at_most=1e9, error=InvalidData)
    return kind, number("SPREAD", value, at_least=0, at_most=100, error=InvalidData)


def _skewed(
    pool: Pool, *, owners: int, samples: int, alpha: float, rng: np.random.Generator, name: str
) -> IntArray:
    """Draw each owner's mix of classes; where a class has run out, the others fill its place."""
    if not pool.classes:
        raise InvalidData(f"dirichlet skews classes, and the labels of {name} are numbers; use iid")
    shuffled = rng.permutation(len(pool))
    labels = pool.labels[shuffled].astype(np.int64)
    by_class = shuffled[np.argsort(labels, kind="stable")]
    left = np.bincount(labels, minlength=pool.classes)
    start = np.cumsum(left) - left
    parts = []
    for _ in range(owners):
        mix = rng.dirichlet(np.full(pool.classes, alpha))
        counts = np.minimum(rng.multinomial(samples, mix), left)
        counts += rng.multivariate_hypergeometric(left - counts, samples - int(counts.sum()))
        parts += [by_class[a : a + k] for a, k in zip(start, counts, strict=True)]
        start, left = start + counts, left - counts
    return np.concatenate(parts)


def _sizes(owners: int, samples: int, spread: float, rng: np.random.Generator) -> IntArray:
    """Return log-normal sizes of at least 1 that sum to owners * samples exactly."""
    logs = spread * rng.standard_normal(owners)
    weights: FloatArray = np.exp(logs - logs.max())
    exact = owners * (samples - 1) * (weights / weights.sum())
    sizes: IntArray = 1 + np.floor(exact).astype(np.int64)
    missing = owners * samples - int(sizes.sum())
    sizes[np.argsort(np.floor(exact) - exact, kind="stable")[:missing]] += 1
    return sizes


def _natural(
    groups: IntArray | None,
    *,
    records: int,
    owners: int,
    samples: int,
    rng: np.random.Generator,
    name: str,
) -> IntArray:
    """Choose groups with enough records at random, and a random subset of each one's records."""
    if groups is None:
        raise InvalidData(f"{name} has no natural groups, as flights:aircraft has; use iid")
    groups = np.asarray(groups)
    if groups.shape != (records,) or groups.dtype.kind not in "iu":
        raise InvalidData(
            f"groups must hold one whole number for each of {records} records; "
            f"found an array of {groups.dtype} of shape {groups.shape}"
        )
    shuffled = rng.permutation(records)
    shuffled = shuffled[groups[shuffled] >= 0]
    ordered = shuffled[np.argsort(groups[shuffled], kind="stable")]
    _, start, sizes = np.unique(groups[ordered], return_index=True, return_counts=True)
    eligible = np.flatnonzero(sizes >= samples)
    if len(eligible) < owners:
        remedies = [f"{len(eligible)} owners"] if len(eligible) else []
        if owners <= len(sizes):
            remedies.append(f"{np.sort(sizes)[-owners]} records each")
        raise InvalidData(
            f"{len(eligible)} of the {len(sizes)} groups of {name} have at least {samples} "
            f"records, too few for {owners} owners{_remedy(remedies)}"
        )
    chosen = rng.permutation(eligible)[:owners]
    rows: IntArray = ordered[(start[chosen][:, None] + np.arange(samples)).ravel()]
    return rows


def _too_few(name: str, records: int, owners: int, samples: int) -> str:
    remedies = [f"{records // samples} owners"] if samples <= records else []
    remedies += [f"{records // owners} records each"] if owners <= records else []
    return (
        f"{owners} owners of {samples} records need {owners * samples}; "
        f"{name} has {records}{_remedy(remedies)}"
    )


def _remedy(remedies: list[str]) -> str:
    return f" - ask for at most {' or at most '.join(remedies)}" if remedies else ""
