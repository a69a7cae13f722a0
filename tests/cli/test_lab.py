"""fedbourse lab: files, tables, progress and one sentence for what is wrong."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedbourse import MECHANISMS, Outcome
from fedbourse.cli import main

SMALL = ["--owners", "5", "--draws", "3", "--deviation-draws", "1", "--reward", "1", "--lot", "0.1"]


def test_the_lab_leaves_tables_and_a_figure(capsys, tmp_path) -> None:
    out = tmp_path / "lab"
    file = tmp_path / "values.csv"
    file.write_text("value\n1\n2\n3.5\n")
    arguments = ["--values", str(file), "--sampling", "1,10", "--out", str(out), "--json"]
    few = ["--profiles", "uniform", "--mechanisms", "proportional,clock"]
    assert main(["lab", *SMALL, *few, *arguments]) == 0
    captured = capsys.readouterr()
    assert "rows" in captured.err or "done" in captured.err  # the progress bar
    document = json.loads(captured.out)
    assert len(document["rows"]) == 2 * 2 * 2
    assert {row["profile"] for row in document["rows"]} == {"uniform", "own"}
    assert {row["buyer"] for row in document["rows"]} == {"G=10, s=1, R=1", "G=10, s=10, R=1"}
    names = {Path(file).name for file in document["files"]}
    assert names == {"lab.csv", "lab.md", "lab.png", "lab.svg"} == {p.name for p in out.iterdir()}
    with (out / "lab.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert float(rows[0]["spend"]) == document["rows"][0]["spend"]
    assert "| proportional |" in (out / "lab.md").read_text()


def test_the_lab_prints_tables_and_the_same_seed_writes_the_same_bytes(capsys, tmp_path) -> None:
    for name in ("one", "two"):
        out = ["--out", str(tmp_path / name)]
        assert main(["lab", *SMALL, "--mechanisms", "second-price,all-in", *out]) == 0
        printed = capsys.readouterr().out
        assert "gain by lying" in printed
        assert "a search, not a proof" in printed
        assert "pareto, G=10, s=1, R=1" in printed
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


@pytest.mark.faults
def test_a_broken_promise_ends_in_one_sentence_after_the_files(
    capsys, monkeypatch, tmp_path
) -> None:
    def generous(values, purchase, rng):
        return Outcome(1 / values, 2 * purchase.reward / values)

    choice = replace(MECHANISMS.choices[1], value=replace(MECHANISMS["clock"], rule=generous))
    monkeypatch.setitem(MECHANISMS._choices, "clock", choice)
    arguments = ["lab", *SMALL, "--mechanisms", "clock", "--profiles", "uniform"]
    assert main([*arguments, "--out", str(tmp_path)]) == 17
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert last.startswith("fedbourse: clock on uniform for G=10, s=1, R=1: ")
    assert (tmp_path / "lab.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--mechanisms", "dutch"], 2, "mechanism must be one of proportional, clock"),
        (["--profiles", "normal"], 2, "profile must be one of uniform"),
        (["--sampling", "x"], 2, "sampling must be numbers separated by commas"),
        (["--gain", "-1"], 2, "gain must be"),
        (["--reward", "much"], 2, "reward must be a number, or best"),
        (["--lot", "0"], 2, "lot must be"),
        (["--values", "nowhere.csv"], 2, "nowhere.csv"),
        (["--owners", "1"], 2, "owners must be"),
        (["--out", "/dev/null/x"], 5, "cannot be written to"),
    ],
)
def test_bad_input_gets_one_clear_sentence(capsys, tmp_path, arguments, code, words) -> None:
    out = [] if "--out" in arguments else ["--out", str(tmp_path)]
    small = ["--owners", "5"] if "--owners" not in arguments else []
    assert main(["lab", "--draws", "2", "--deviation-draws", "0", *small, *out, *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err.splitlines()[-1]
