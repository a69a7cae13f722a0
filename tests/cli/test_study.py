"""fedbourse study paper and deviations: files, verdicts, progress and interruption."""

import csv
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedbourse import ACCURACY_MODELS, __version__
from fedbourse.cli import main
from fedbourse.figures import look_of


def test_the_study_leaves_figures_and_numbers_behind(capsys, tmp_path) -> None:
    out = tmp_path / "a" / "b"
    assert main(["study", "paper", "--out", str(out), "--draws", "5", "--seed", "3", "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["seed"] == 3
    assert len(document["verdicts"]) == 11 * 4
    assert {v["verdict"] for v in document["verdicts"]} == {"holds", "does not hold"}
    files = {Path(f).name for f in document["files"]}
    assert files == {path.name for path in out.iterdir()}
    panels = [
        f"{metric}_by_{sweep}"
        for metric in ("participants", "server_utility", "user_utility")
        for sweep in ("owners", "value_max")
    ]
    for stem in [*panels, "overview"]:
        assert (out / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in (out / f"{stem}.svg").read_text()
    with (out / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 19 * 4
    assert {(row["version"], row["seed"], row["draws"]) for row in rows} == {
        (__version__, "3", "5")
    }
    with (out / "draws.csv").open() as file:
        assert sum(1 for _ in file) == 1 + 19 * 4 * 5


def test_verdicts_are_printed_for_people_and_the_same_seed_writes_the_same_bytes(
    capsys, tmp_path
) -> None:
    for name, seed in (("one", []), ("two", ["--seed", "0"])):
        out = ["--out", str(tmp_path / name)]
        assert main(["study", "paper", *out, "--draws", "20", *seed]) == 0
        captured = capsys.readouterr()
        assert "does not hold" in captured.out
        assert "20 draws a setting, seed 0" in captured.out
        assert "settings" in captured.err  # the progress bar
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--draws", "1"], 2, "draws must be a finite number of at least 2; found 1"),
        (["--seed", "-1"], 2, "seed must be"),
        (["--draws", "x"], 2, "x"),
        (["--out", "/dev/null/x"], 5, "cannot be written to: Not a directory"),
        (["--out", "/proc/none"], 5, "cannot be written to"),
    ],
)
def test_bad_input_gets_one_clear_sentence(capsys, arguments, code, words) -> None:
    draws = [] if "--draws" in arguments else ["--draws", "2"]
    assert main(["study", "paper", *arguments, *draws]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err.splitlines()[-1]
    assert last.startswith("fedbourse: ")
    assert words in last


def test_a_model_that_a_package_adds_is_drawn_apart_from_ours(monkeypatch) -> None:
    for name in ("added", "another"):
        choice = replace(ACCURACY_MODELS.choices[0], name=name)
        monkeypatch.setitem(ACCURACY_MODELS._choices, name, choice)
    looks = [look_of(name) for name in ACCURACY_MODELS]
    assert len(set(looks)) == len(looks)


def test_figures_need_their_extra(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["study", "paper", "--out", str(tmp_path), "--draws", "2"]) == 4
    assert "pip install 'fedbourse[study]'" in capsys.readouterr().err


def test_deviations_leave_a_table_and_a_figure(capsys, tmp_path) -> None:
    only = "acting-cheaper,early-settlement,smallest-budget"
    arguments = ["study", "deviations", "--only", only, "--plays", "2", "--out", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {Path(file).name for file in document["files"]} == {
        "deviations.csv", "deviations.md", "deviations.png", "deviations.svg"
    }  # fmt: skip
    cheaper, early, minimum = document["rows"]
    assert cheaper["intended"] == pytest.approx(10 / 9, abs=1e-5)
    assert early["gain_before"] > 0.2  # of two plays; tests/study finds more
    assert early["gain_after"] == 0.0
    assert early["refusal"] == "settle is for the market; the caller is buyer"
    assert minimum["before"] is None
    with (tmp_path / "deviations.csv").open() as file:
        assert [row["key"] for row in csv.DictReader(file)] == only.split(",")
    assert "</svg>" in (tmp_path / "deviations.svg").read_text()
    assert "no gain" in (tmp_path / "deviations.md").read_text()


def test_deviations_are_printed_for_people_and_the_same_again(
    capsys, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("one", "two"):
        out = ["--out", str(tmp_path / name)]
        assert main(["study", "deviations", "--only", "ring", "--plays", "2", *out]) == 0
        captured = capsys.readouterr()
        assert "gain left" in captured.out
        assert "4 files in" in captured.out
        assert "deviations" in captured.err  # the progress bar
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--only", "ring,cheating"], 2, "found 'cheating', and there are acting-cheaper, several"),
        (["--plays", "0"], 2, "plays must be"),
        (["--seed", "-1"], 2, "seed must be"),
        (["--out", "/dev/null/x"], 5, "cannot be written to: Not a directory"),
    ],
)
def test_bad_input_to_deviations_gets_one_sentence(capsys, arguments, code, words) -> None:
    assert main(["study", "deviations", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err.splitlines()[-1]


def test_ctrl_c_is_one_sentence(tmp_path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedbourse", "study", "paper", "--draws", "200000",
         "--out", str(out)],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not out.exists():  # it is made before anything is computed
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1)  # it is at work by now
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed == ""
    assert err.splitlines()[-1] == "fedbourse: interrupted"
    assert "Traceback" not in err


def test_unknown_values_leave_two_tables(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    small = ["--owners", "9", "--tasks", "3", "--repeats", "2", "--out", str(tmp_path)]
    assert main(["study", "unknown-values", *small]) == 0
    captured = capsys.readouterr()
    assert "who sold, alone" in captured.out
    assert "9 owners, 3 tasks, 2 repeats" in captured.out
    assert "owners who hold back" in captured.err  # the progress bar
    with (tmp_path / "regret.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 3 * 3
    assert {(row["version"], row["owners"], row["seed"]) for row in rows} == {
        (__version__, "9", "0")
    }
    with (tmp_path / "ratchet.csv").open() as file:
        assert {row["group"] for row in csv.DictReader(file)} == {"1", "3", "9"}


@pytest.mark.parametrize(
    ("option", "words"),
    [("--tasks", "tasks must be"), ("--repeats", "repeats must be"), ("--owners", "owners must")],
)
def test_bad_input_to_unknown_values_gets_one_sentence(capsys, option, words) -> None:
    assert main(["study", "unknown-values", option, "1"]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
