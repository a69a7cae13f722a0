"""No record goes to two owners, sizes are exact, and a seed is a promise."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.learning.partition import Federation, partition
from fedbourse.learning.records import Records

seeds = st.integers(0, 2**32)
schemes = st.one_of(
    st.just("iid"),
    st.sampled_from([1e-6, 0.01, 0.3, 1.0, 100.0, 1e9]).map(lambda a: f"dirichlet:{a!r}"),
    st.sampled_from([0.0, 0.5, 3.0, 100.0]).map(lambda s: f"unequal:{s!r}"),
)


def pool_of(labels: np.ndarray, classes: int) -> Records:
    """Return a pool whose first feature is the number of the row."""
    rows = np.arange(len(labels), dtype=float)
    return Records(np.stack([rows, np.ones_like(rows)], axis=1), labels, classes)


def rows_of(federation: Federation) -> np.ndarray:
    return federation.records.features[:, 0].astype(int)


@st.composite
def deals(draw: st.DrawFn) -> tuple[Records, int, int, str, int]:
    classes = draw(st.integers(2, 4))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=2, max_size=60))
    owners = draw(st.integers(1, len(labels)))
    samples = draw(st.integers(1, len(labels) // owners))
    pool = pool_of(np.array(labels, dtype=float), classes)
    return pool, owners, samples, draw(schemes), draw(seeds)


@given(deals())
def test_no_record_goes_to_two_owners(deal: tuple[Records, int, int, str, int]) -> None:
    pool, owners, samples, scheme, seed = deal
    dealt = partition(pool, owners=owners, samples=samples, scheme=scheme, seed=seed)
    rows = rows_of(dealt)
    assert len(set(rows.tolist())) == len(rows) == owners * samples
    assert (dealt.records.labels == pool.labels[rows]).all()


@given(deals())
def test_sizes_are_exact(deal: tuple[Records, int, int, str, int]) -> None:
    pool, owners, samples, scheme, seed = deal
    dealt = partition(pool, owners=owners, samples=samples, scheme=scheme, seed=seed)
    assert dealt.owners == owners
    assert dealt.sizes.sum() == owners * samples
    assert dealt.sizes.min() >= 1
    if not scheme.startswith("unequal") or scheme == "unequal:0.0":
        assert (dealt.sizes == samples).all()


@given(deals())
def test_a_seed_is_a_promise(deal: tuple[Records, int, int, str, int]) -> None:
    pool, owners, samples, scheme, seed = deal
    one, two = (
        partition(pool, owners=owners, samples=samples, scheme=scheme, seed=seed) for _ in "ab"
    )
    assert (rows_of(one) == rows_of(two)).all()
    assert (one.offsets == two.offsets).all()


def test_another_seed_deals_otherwise() -> None:
    pool = pool_of(np.arange(200.0) % 2, 2)
    for scheme in ("iid", "dirichlet:1", "unequal:1"):
        one, two = (partition(pool, owners=5, samples=9, scheme=scheme, seed=s) for s in (1, 2))
        assert (rows_of(one) != rows_of(two)).any(), scheme


def test_more_owners_leave_the_first_ones_their_records() -> None:
    pool = pool_of(np.arange(100.0) % 2, 2)
    few, many = (partition(pool, owners=n, samples=5, seed=3) for n in (4, 20))
    assert (rows_of(few) == rows_of(many)[:20]).all()


def test_a_smaller_alpha_skews_more() -> None:
    pool = pool_of(np.arange(20_000.0) % 4, 4)

    def skew(alpha: float) -> float:
        dealt = partition(pool, owners=40, samples=100, scheme=f"dirichlet:{alpha}", seed=0)
        tops = [np.bincount(part.labels.astype(int)).max() for part in dealt.parts]
        return float(np.mean(tops)) / 100

    # The largest share of four: all at 1 class; about 0.52 at alpha 1; 0.25 and noise when even.
    assert skew(1e-4) > 0.98
    assert 0.45 < skew(1.0) < 0.60
    assert skew(1e6) < 0.36


def test_log_sizes_spread_as_asked() -> None:
    pool = pool_of(np.arange(200_000.0) % 2, 2)
    sizes = partition(pool, owners=400, samples=500, scheme="unequal:0.5", seed=1).sizes
    assert np.log(sizes).std() == pytest.approx(0.5, abs=0.06)


@given(st.lists(st.integers(-1, 5), min_size=12, max_size=60), seeds)
def test_an_owner_is_one_group(numbers: list[int], seed: int) -> None:
    groups = np.array(numbers)
    sizes = np.bincount(groups[groups >= 0], minlength=6)
    samples = int(np.sort(sizes)[-2])
    if not samples:
        return
    pool = pool_of(np.zeros(len(groups)), 2)
    dealt = partition(pool, owners=2, samples=samples, scheme="groups", seed=seed, groups=groups)
    whose = groups[rows_of(dealt)].reshape(2, samples)
    assert (whose == whose[:, :1]).all()
    assert whose[0, 0] != whose[1, 0]
    assert whose.min() >= 0
    assert len(set(rows_of(dealt).tolist())) == 2 * samples


def test_groups_and_their_subsets_are_chosen_at_random() -> None:
    groups = np.repeat(np.arange(30), 10)
    pool = pool_of(np.zeros(300), 2)
    deals = [
        partition(pool, owners=2, samples=5, scheme="groups", seed=s, groups=groups)
        for s in range(40)
    ]
    assert len({int(g) for d in deals for g in groups[rows_of(d)]}) > 20
    assert len({int(r) % 10 for d in deals for r in rows_of(d)}) == 10


def test_parts_are_the_offsets_slices() -> None:
    pool = pool_of(np.arange(60.0) % 2, 2)
    dealt = partition(pool, owners=6, samples=10, scheme="unequal:1", seed=5)
    assert [len(part) for part in dealt.parts] == dealt.sizes.tolist()
    joined = np.concatenate([part.features for part in dealt.parts])
    assert (joined == dealt.records.features).all()
    assert np.shares_memory(dealt.parts[2].features, dealt.records.features)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"owners": 30}, "30 owners of 10 records need 300; the data has 100 - ask for at most 10"),
        ({"owners": 30}, "or at most 3 records each"),
        ({"owners": 11}, "11 owners of 10 records need 110; the data has 100"),
        ({"owners": 500, "samples": 101}, "need 50500; the data has 100"),
        ({"owners": 0}, "owners must be"),
        ({"samples": 2.5}, "samples must be a whole number"),
        ({"seed": -1}, "seed must be"),
        ({"scheme": "idd"}, "iid, dirichlet:ALPHA, unequal:SPREAD, groups; found 'idd'"),
        ({"scheme": "iid:3"}, "a scheme must be one of"),
        ({"scheme": "dirichlet"}, "written dirichlet:ALPHA, with a number"),
        ({"scheme": "dirichlet:x"}, "written dirichlet:ALPHA, with a number"),
        ({"scheme": "dirichlet:0"}, "ALPHA must be"),
        ({"scheme": "dirichlet:nan"}, "ALPHA must be"),
        ({"scheme": "unequal:-1"}, "SPREAD must be"),
        ({"scheme": "groups"}, "no natural groups"),
        ({"scheme": "groups", "groups": np.zeros(3, int)}, "for each of 100 records"),
        (
            {"scheme": "groups", "owners": 3, "samples": 9, "groups": np.arange(100) // 34},
            "",
        ),
        (
            {"scheme": "groups", "owners": 3, "samples": 33, "groups": np.arange(100) // 34},
            "2 of the 3 groups of the data have at least 33 records, too few for 3 owners"
            " - ask for at most 2 owners or at most 32 records each",
        ),
    ],
)
def test_wrong_deals_are_refused_with_a_remedy(changes: dict[str, object], words: str) -> None:
    asked = {"owners": 5, "samples": 10, "seed": 0, **changes}
    pool = pool_of(np.arange(100.0) % 2, 2)
    if not words:
        assert partition(pool, **asked).owners == 3  # type: ignore[arg-type]
        return
    with pytest.raises(InvalidInput, match=re.escape(words)):
        partition(pool, **asked)  # type: ignore[arg-type]


def test_dirichlet_needs_classes() -> None:
    with pytest.raises(InvalidData, match="labels of the data are numbers"):
        partition(pool_of(np.arange(9.0), 0), owners=2, samples=2, scheme="dirichlet:1", seed=0)


@pytest.mark.parametrize("offsets", [[0], [0, 4], [1, 6], [0, 3, 3, 6], [0, 4, 2, 6], [0.0, 6.0]])
def test_offsets_must_cut_the_records(offsets: list[float]) -> None:
    with pytest.raises(InvalidData, match="offsets must rise from 0 to 6"):
        Federation(pool_of(np.zeros(6), 2), np.array(offsets))
