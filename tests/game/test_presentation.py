"""Every result is a frame, plain JSON, a figure, a short line and a table in a notebook."""

import json
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedbourse import (
    Chunk,
    InvalidGame,
    InvalidInput,
    MissingExtra,
    ParticipantSketch,
    Stream,
    Training,
    Uniform,
    best_reward,
    equilibrium,
    owners_in,
    what_if,
)
from fedbourse.game import presentation
from fedbourse.game.outofcore.participant_sketch import too_many
from fedbourse.study import (
    AggregationRow,
    AggregationStudy,
    EvidenceRow,
    EvidenceStudy,
    Mean,
    paper_study,
)

TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
VALUES = np.random.default_rng(2).uniform(1, 1.001, 5000)
MEAN = Mean(0.5, math.inf, 1)
ROW = AggregationRow("iid", 1.0, "equal", MEAN, MEAN, MEAN, 0.1)
EVIDENCE = EvidenceRow(
    **{field.name: MEAN if field.type == "Mean" else 0.5 for field in fields(EvidenceRow)}
    | {"sweep": "attacks", "point": "", "sends": "no data", "population": "like-reference"}
    | {"dismissal_round": None}
)

RESULTS = {
    "equilibrium": lambda: equilibrium([1.0, 1.2, 9.0], reward=10.0),
    "nobody": lambda: best_reward([1.0, 2.0], TRAINING, accuracy_value=1e-9).equilibrium,
    "convex": lambda: equilibrium([1.0, 1.2, 9.0], reward=10.0, cost="exponential"),
    "information": lambda: equilibrium(
        [1.0, 1.2], reward=1.0, samples=[3.0, 1.0], pay_for="information"
    ),
    "many": lambda: equilibrium(VALUES, reward=1.0),
    "named": lambda: equilibrium(
        Stream(lambda: [Chunk([1.0, 1.2, 9.0], names=["ann", "ben", "cid"])]), reward=1.0
    ),
    "offer": lambda: best_reward([1.0, 1.2, 9.0], TRAINING, accuracy_value=20),
    "no offer": lambda: best_reward([1.0, 2.0], TRAINING, accuracy_value=1e-9),
    "expected": lambda: best_reward(Uniform(1, 5), TRAINING, accuracy_value=20, owners=9, draws=7),
    "what if": lambda: what_if([1.0, 1.2], TRAINING, rewards=[2.0, 1.0], accuracy_value=20),
    "paper": lambda: paper_study(draws=2, accuracy=["paper", "precision"]),
    "aggregation": lambda: AggregationStudy((ROW, ROW)),
    "evidence": lambda: EvidenceStudy((EVIDENCE,)),
}


@pytest.fixture(scope="module")
def results():
    return {name: make() for name, make in RESULTS.items()}


@pytest.mark.parametrize("name", list(RESULTS))
def test_every_result_can_be_held(name, results) -> None:
    result = results[name]
    frame, other = result.to_frame("pandas"), result.to_frame("polars")
    assert isinstance(frame, pd.DataFrame)
    assert isinstance(other, pl.DataFrame)
    assert list(frame.columns) == other.columns
    document = result.to_dict()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["kind"] == type(result).__name__
    assert len(document["rows"]) == len(frame) == len(other)
    assert all(list(row) == list(frame.columns) for row in document["rows"])
    assert len(repr(result)) < 500
    assert repr(result).startswith(type(result).__name__ + "(")
    page = result._repr_html_()
    assert page.count("<tr>") <= 3 + presentation.SHOWN
    assert page.count("<table>") == page.count("</table>") > 0


@pytest.mark.parametrize("name", list(RESULTS))
def test_every_result_draws_itself(name, results) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    _, axes = plt.subplots()
    assert results[name].plot(axes) is axes
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    drawn = results[name].plot()
    drawn.get_figure().canvas.draw()
    plt.close("all")


def test_a_frame_has_each_owner_in_the_order_of_the_values() -> None:
    result = equilibrium([9.0, 1.2, 1.0], reward=10.0)
    inside, everybody = result.to_frame(), result.to_frame(owners="all")
    assert inside["index"].tolist() == [1, 2]
    assert inside["value"].tolist() == [1.2, 1.0]
    assert everybody["budget"].tolist() == result.dense().tolist()
    assert everybody["payment"].tolist() == [0.0, *result.payments]
    assert everybody["utility"].tolist() == [0.0, *result.utilities]
    offer = best_reward([9.0, 1.2, 1.0], TRAINING, accuracy_value=20)
    assert len(offer.to_frame(owners="all")) == 3


def test_values_stand_beside_their_owners_whatever_the_game() -> None:
    values = np.array([3.0, 1.0, 2.0, 1.5])
    for terms in ({"cost": "quadratic"}, {"caps": 0.2}, {"entry_cost": 0.001}, {}):
        frame = equilibrium(values, reward=1.0, **terms).to_frame()
        assert frame["value"].tolist() == values[frame["index"]].tolist()


def test_owners_of_files_and_names_are_called_by_them(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("who,value\nann,1\nben,1.5\n")
    frame = equilibrium(owners_in(tmp_path, column="value"), reward=1.0).to_frame()
    assert frame[["file", "row"]].values.tolist()[0] == ["a.csv", 0]
    named = equilibrium(owners_in(tmp_path, column="value", names="who"), reward=1.0)
    assert named.to_frame()["name"].tolist()[:2] == ["ann", "ben"]
    assert named.to_dict()["rows"][1]["name"] == "ben"


def test_a_short_text_lists_nobody_and_reads_nothing_again() -> None:
    readings = 0

    def read():
        nonlocal readings
        readings += 1
        yield np.linspace(1, 2, 1000)

    result = equilibrium(Stream(read), reward=1.0, cost="quadratic")
    before = readings
    assert "participants=1000" in repr(result)
    assert readings == before


def test_what_is_asked_wrongly_gets_a_sentence(monkeypatch) -> None:
    result = equilibrium([1.0, 2.0], reward=1.0)
    with pytest.raises(InvalidInput, match="library must be 'pandas' or 'polars'; found 'arrow'"):
        result.to_frame("arrow")
    with pytest.raises(InvalidInput, match="owners must be 'participants' or 'all'; found 'some'"):
        result.to_frame(owners="some")
    monkeypatch.setattr(presentation, "_draw", [])
    with pytest.raises(MissingExtra, match=r"fedbourse.figures"):
        result.plot()


@pytest.mark.parametrize(
    ("missing", "kind"), [(["pandas"], pl.DataFrame), (["polars"], pd.DataFrame)]
)
def test_a_frame_is_of_what_is_installed(missing, kind, monkeypatch) -> None:
    monkeypatch.setattr(
        presentation, "find_spec", lambda name: None if name in missing else object()
    )
    result = equilibrium([1.0, 2.0], reward=1.0)
    assert isinstance(result.to_frame(), kind)
    with pytest.raises(MissingExtra, match=f"needs {missing[0]}, which is not installed"):
        result.to_frame(missing[0])
    monkeypatch.setattr(presentation, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="needs pandas or Polars"):
        result.to_frame()


def test_too_many_to_be_listed_are_said_to_be(monkeypatch) -> None:
    sketch = ParticipantSketch()
    sketch.add([1.0, 1.1])
    result = sketch.result(1.0)
    monkeypatch.setitem(result.__dict__, "_solve", too_many)
    assert "participants=2" in repr(result)
    assert result._repr_html_().count("<table>") == 1
    for hold in (result.to_frame, result.to_dict, result.plot):
        with pytest.raises(InvalidGame, match="budgets_of"):
            hold()


class Own:
    def accuracy(self, precisions, owners):
        return 0.5 + 0.5 / (1 + 1 / precisions.sum()) if len(precisions) else 0.5


@pytest.mark.slow
def test_the_paper_study_takes_an_own_model() -> None:
    own = paper_study(draws=2, accuracy=["precision", Own()]).to_frame()
    ours = own[own.model == "precision"]["reward_mean"].to_numpy()
    assert own[own.model == "Own"]["reward_mean"].to_numpy() == pytest.approx(ours, rel=1e-5)


def test_a_study_without_models_gets_a_sentence() -> None:
    for models in ([], ["paper", "paper"]):
        with pytest.raises(InvalidInput, match="at least one model, each once"):
            paper_study(draws=2, accuracy=models)
