"""The studies that train for real, from the command line."""

import csv
import json

import pytest

from fedbourse.cli import main

TASK = ["--data", "synthetic:d=6,n=2000", "--owners", "15", "--samples", "40", "--rounds", "8"]


@pytest.fixture
def run(capsys):
    def call(*arguments: str):
        code = main(["study", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_accuracy_writes_figure_cells_and_errors(run, tmp_path) -> None:
    folder = tmp_path / "new" / "folder"
    arguments = ["accuracy", *TASK, "--seeds", "2", "--rewards", "0.3,3", "--out", str(folder)]
    code, out, _ = run(*arguments)
    assert code == 0
    assert "mean error" in out
    assert "8 trainings" in out
    names = {file.name for file in folder.iterdir()}
    assert names == {
        "accuracy.png",
        "accuracy.svg",
        "cells.csv",
        "errors.csv",
        "finished-seeds.jsonl",
    }
    with (folder / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert {row["aggregation"] for row in rows} == {"equal", "precision"}
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    assert len(json.loads(out)["points"]) == 4
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == first


def test_calibrate_prints_a_model_that_solve_takes(run, capsys) -> None:
    code, out, _ = run("calibrate", *TASK, "--seeds", "2")
    assert code == 0
    used = out.split("use it: fedbourse ")[1].split()
    assert used[-4:] == ["--uniform", "1:5", "--owners", "15"]
    assert main(used) == 0
    assert "  accuracy  " in capsys.readouterr().out
    code, out, _ = run("calibrate", *TASK, "--seeds", "2", "--aggregation", "equal", "--json")
    document = json.loads(out)
    assert document["fit"]["accuracy"]["model"] == "averaged"
    assert document["largest_error"] == max(abs(c["error"]) for c in document["checks"])


def test_weights_compares_both_weightings_on_three_federations(run) -> None:
    code, out, _ = run("aggregation", *TASK, "--seeds", "2", "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert len({(r["partition"], r["factor"], r["aggregation"]) for r in rows}) == 12
    code, out, _ = run("aggregation", *TASK, "--seeds", "2")
    assert "dirichlet:0.1" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["accuracy", "--rewards", "1,x"], "rewards must be numbers separated by commas"),
        (["accuracy", "--rewards", "0"], "rewards must be a finite number above 0; found 0"),
        (["accuracy", "--seeds", "1"], "seeds must be a finite number of at least 2; found 1"),
        (["calibrate", "--owners", "1"], "owners must be"),
        (["calibrate", "--data", "nothing"], "data must be one of"),
        (["calibrate", "--step-size", "0"], "step_size must be"),
        (["aggregation", "--rounds", "0.5"], "rounds must be"),
        (["aggregation", "--data", "synthetic:n=50", "--samples", "900"], "records"),
    ],
)
def test_wrong_input_gets_one_sentence(run, arguments, sentence, tmp_path) -> None:
    if arguments[0] == "accuracy":
        arguments = [*arguments, "--out", str(tmp_path)]
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.strip().splitlines()[-1].startswith("fedbourse: ")
    assert sentence in err
    assert "Traceback" not in err
