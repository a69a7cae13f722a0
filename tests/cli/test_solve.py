"""fedbourse solve: people's tables, programs' JSON, and one sentence for what is wrong."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from fedbourse import ACCURACY_MODELS, COSTS, InvalidInput, epsilon, equilibrium, noise_scale
from fedbourse.cli import main, solve_owners
from fedbourse.cli.solve import solve

VALUES = [1.0, 1.2, 1.4, 9.0]


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def written(kind: str) -> str:
    """Write the values as a file of that kind into the current folder; return how to name it."""
    if kind == "npy":
        np.save("values.npy", np.array(VALUES))
        return "values.npy"
    if kind == "parquet":
        pq.write_table(pa.table({"id": [1, 2, 3, 4], "value": VALUES}), "values.parquet")
        return "values.parquet"
    if kind == "arrow":
        pa.feather.write_feather(pa.table({"value": VALUES}), "values.arrow")
        return "values.arrow"
    if kind == "csv column":
        Path("values.csv").write_text(
            "id,nu\n" + "".join(f"{i},{v}\n" for i, v in enumerate(VALUES))
        )
        return "values.csv:nu"
    if kind == "csv without header":
        Path("bare.csv").write_text("".join(f"{v}\n" for v in VALUES))
        return "bare.csv"
    if kind == "colon in name":
        Path("a:b.txt").write_text("1 1.2 1.4 9")
        return "a:b.txt"
    Path("values.txt").write_text("# values\n1.0 1.2\n1.4 9.0\n")
    return "values.txt"


@pytest.mark.parametrize(
    "kind", ["txt", "npy", "parquet", "arrow", "csv column", "csv without header", "colon in name"]
)
def test_every_kind_of_file_gives_the_same_game(run, kind) -> None:
    code, out, err = run("solve", "--values", written(kind), "--reward", "2", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    known = equilibrium(VALUES, reward=2.0)
    assert [owner["budget"] for owner in document["owners"]] == known.budgets.tolist()
    assert document["participants"] == len(document["owners"]) == 3


def test_the_json_document_is_complete_and_in_full_precision(run) -> None:
    _, out, _ = run("solve", "--values", written("txt"), "--reward", "2", "--json")
    document = json.loads(out)
    known = equilibrium(VALUES, reward=2.0)
    for key in (
        "reward",
        "participants",
        "cutoff",
        "total_budget",
        "server_utility",
        "accuracy",
    ):
        assert key in document
    assert document["cutoff"] == known.cutoff
    assert document["regret"] == known.regret
    for i, owner in enumerate(document["owners"]):
        assert owner == {
            "index": int(known.participants[i]),
            "value": VALUES[known.participants[i]],
            "budget": known.budgets[i],
            "payment": known.payments[i],
            "utility": known.utilities[i],
            "noise_scale": noise_scale(
                float(known.budgets[i]), clip=1.0, samples=1000, iterations=500
            ),
            "epsilon": pytest.approx(epsilon(rho=float(known.budgets[i]), delta=1e-5)),
        }


def test_the_papers_game(run) -> None:
    code, out, err = run(
        "solve", "--uniform", "1:5", "--owners", "1000", "--seed", "0", "--rows", "3"
    )
    assert (code, err) == (0, "")
    assert "24 of 1000 owners" in out
    assert "... and 21 more" in out
    again = run("solve", "--uniform", "1:5", "--owners", "1000", "--seed", "0", "--rows", "3")
    assert again == (code, out, err)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"1\n1.2\n1.4\n9\n", "-"),
        (b"1 1.2 1.4 9", "-"),
        (b"\n1 # alice\n1.2\n\n1.4\n9\n", "-"),
        (b"value\n1\n1.2\n1.4\n9\n", "-"),
        (b"id,nu\n1,1\n2,1.2\n3,1.4\n4,9\n", "-:nu"),
        (b'"1"\n"1.2"\n"1.4"\n"9"\n', "-"),
        (b"1\r1.2\r1.4\r9\r", "-"),
        (b"1,1\n2,1.2\n3,1.4\n4,9\n", "-:f1"),
        (b"\xef\xbb\xbfvalue\r\n1\r\n1.2\r\n1.4\r\n9\r\n", "-"),
        (b"\n\nid, value\n1,1\n2,1.2\n3,1.4\n4,9\n", "-"),
    ],
)
def test_standard_input_loses_nothing(run, monkeypatch, data, name) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    code, out, err = run("solve", "--values", name, "--reward", "2", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["owners_asked"] == 4
    assert document["participants"] == 3


def test_plain_numbers_need_no_extra(run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n3\n")))
    assert run("solve", "--values", "-", "--reward", "2")[0] == 0


@pytest.mark.slow
def test_each_option_finds_its_own_column(run) -> None:
    Path("owners.csv").write_text(
        "id,value,samples,cap,entry_cost\n1,1,500,0.1,0\n2,1.1,900,0.2,0.001\n3,1.2,800,0.3,0\n"
    )
    files = {
        "--values": "value",
        "--samples": "samples",
        "--caps": "cap",
        "--entry-cost": "entry_cost",
    }
    short = [part for option in files for part in (option, "owners.csv")]
    full = [part for option, name in files.items() for part in (option, f"owners.csv:{name}")]
    assert run("solve", *short, "--json") == run("solve", *full, "--json")
    assert run("solve", *short, "--json")[0] == 0


def test_pay_for_information_claims_no_threshold_of_values(run) -> None:
    _, out, _ = run("solve", "--values", written("txt"), "--pay-for", "information")
    assert "those with a value below" not in out


def test_with_nobody_to_pay_nothing_is_paid(run) -> None:
    _, out, _ = run(
        "solve", "--values", written("txt"), "--entry-cost", "50", "--reward", "1", "--json"
    )
    assert json.loads(out)["server_utility"] == 10.0


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["linear", "quadratic", "exponential", "paper-exponential"])
@pytest.mark.parametrize("accuracy", ["paper", "population", "averaged", "precision"])
def test_every_cost_and_model(run, cost, accuracy) -> None:
    code, out, _ = run(
        "solve", "--values", written("txt"), "--cost", cost, "--accuracy", accuracy, "--json"
    )
    document = json.loads(out)
    assert code == 0
    assert document["reward"] > 0
    assert document["accuracy_model"] == accuracy


@pytest.mark.parametrize(("option", "registry"), [("cost", COSTS), ("accuracy", ACCURACY_MODELS)])
def test_whatever_is_in_a_registry_can_be_chosen(run, monkeypatch, option, registry) -> None:
    first = registry.choices[0]
    monkeypatch.setitem(registry._choices, "added", replace(first, name="added"))
    arguments = ("solve", "--values", written("txt"), "--reward", "1", "--json", f"--{option}")
    assert [run(*arguments, name)[0] for name in ("added", "missing")] == [
        0,
        InvalidInput.exit_code,
    ]
    _, _, problem = run(*arguments, "missing")
    assert re.search(f"{option} must be one of .*, added; found 'missing'", problem)


@pytest.mark.slow
def test_other_options_reach_the_game(run) -> None:
    Path("m.txt").write_text("1000 2000 500 800")
    code, out, _ = run(
        "solve", "--values", written("txt"), "--entry-cost", "0.001", "--caps", "0.05",
        "--samples", "m.txt", "--pay-for", "information", "--ceiling", "0.9", "--chance", "0.1",
        "--accuracy-value", "50", "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert code == 0
    assert document["accuracy"] < 0.9
    assert all(owner["budget"] <= 0.05 * (1 + 1e-12) for owner in document["owners"])


def test_where_no_reward_pays_the_reason_is_printed(run) -> None:
    code, out, _ = run("solve", "--values", written("txt"), "--accuracy-value", "0.001")
    assert code == 0
    assert "no reward pays" in out
    assert "0 of 4 owners" in out


BAD = {
    "no values": ([], "give the owners' values by one of --values and --uniform"),
    "both": (["--values", "a.txt", "--uniform", "1:2"], "one of --values and --uniform"),
    "owners with a file": (["--values", "values.txt", "--owners", "3"], "--owners goes with"),
    "uniform without owners": (["--uniform", "1:5"], "--uniform needs --owners"),
    "uniform of one number": (["--uniform", "5", "--owners", "9"], "LOW:HIGH, .* found '5'"),
    "uniform upside down": (["--uniform", "5:1", "--owners", "9"], "high must be .* found 1"),
    "uniform from nan": (["--uniform", "nan:1", "--owners", "9"], "low must be .* found nan"),
    "one owner": (["--uniform", "1:5", "--owners", "1"], "owners must be .* at least 2; found 1"),
    "owners a word": (["--uniform", "1:5", "--owners", "many"], 'Invalid value .*"many"'),
    "no such file": (["--values", "gone.csv"], "gone.csv cannot be read: No such file"),
    "no such folder": (["--values", "nope"], "nope does not exist; give a file that ends in one"),
    "no such folder's column": (["--values", "nope:nu"], "nope does not exist"),
    "a folder": (["--values", "folder.csv"], "folder.csv must hold .parquet, .* found none"),
    "a glob of nothing": (["--values", "x*.csv"], "x.*csv must match .* it matches none"),
    "a folder's column": (["--values", "folder:nu"], "must have one column 'nu'; it has value"),
    "names of no column": (["--values", "two.csv:a", "--names", "c"], "must have one column 'c'"),
    "names in text": (["--values", "values.txt", "--names", "c"], "has no column 'c' of names"),
    "names of drawn values": (["--uniform", "1:5", "--names", "c"], "--names goes with --values"),
    "caps of chunks": (["--values", "folder", "--caps", "3"], "--caps needs all values in memory"),
    "entry cost of chunks": (["--values", "folder", "--entry-cost", "1"], "--entry-cost 1 needs"),
    "records of chunks": (["--values", "folder", "--samples", "m.txt"], "--samples m.txt needs"),
    "information in chunks": (["--values", "folder", "--pay-for", "information"], "--pay-for inf"),
    "a cost at 0": (["--values", "folder", "--cost", "paper-exponential"], "--cost paper-exp"),
    "a search in chunks": (["--values", "folder", "--cost", "exponential"], "--reward best with"),
    "an ending": (["--values", "values.xlsx"], "ends in one of .csv, .parquet, .npy, .txt"),
    "an empty file": (["--values", "empty.csv"], "empty.csv is empty"),
    "a word in text": (["--values", "word.txt"], "word.txt, line 2: 'abc' is not a number"),
    "a word in a table": (["--values", "word.csv"], "column value, row 1: 'abc' is not a number"),
    "an empty cell": (["--values", "hole.csv:value"], "column value, row 1: the cell is empty"),
    "not utf-8": (["--values", "latin.txt"], "latin.txt is not UTF-8 text: byte 2"),
    "truncated npy": (["--values", "cut.npy"], "cut.npy is not a valid .npy file"),
    "truncated parquet": (["--values", "cut.parquet"], "cut.parquet is not a valid .parquet file"),
    "pickled npy": (["--values", "pickle.npy"], "pickle.npy is not a valid .npy file of numbers"),
    "ragged csv": (["--values", "ragged.csv:a"], "ragged.csv is not a valid .csv file"),
    "which column": (["--values", "two.csv"], "has the columns a, b; name one"),
    "no such column": (["--values", "two.csv:c"], "must have one column 'c'; it has a, b"),
    "column of text": (["--values", "values.txt:c"], "has no named columns"),
    "a damaged table": (["--values", "damaged.parquet"], "damaged.parquet is not a valid"),
    "a foreign header": (["--values", "foreign.csv:a"], "foreign.csv"),
    "half an archive": (["--values", "archive.npy"], "archive.npy is not a valid .npy file"),
    "a hole in a column": (["--values", "gap.csv"], "row 1: the cell is empty"),
    "half an owner": (["--uniform", "1:5", "--owners", "2.5"], "owners must be a whole number"),
    "too many owners": (["--uniform", "1:5", "--owners", "1e21"], "at most 1e10; found 1e.21"),
    "half a dimension": (["--values", "values.txt", "--dimension", "1.5"], "whole number"),
    "no noise": (["--values", "values.txt", "--step-size", "1e-200"], "between 1e-290 and 1e290"),
    "only a header": (["--values", "head.csv"], "head.csv has no rows"),
    "nan in a table": (["--values", "nan.csv"], r"values\[1\] must be .* found nan"),
    "a decimal comma": (["--values", "comma.txt"], "line 1: '1,5' is not a number"),
    "binary input": (["--values", "noise.csv"], "noise.csv"),
    "twice the same column": (["--values", "twice.csv:a"], "must have one column 'a'"),
    "nan": (["--values", "nan.txt"], r"values\[1\] must be a finite number above 0; found nan"),
    "zero": (["--values", "zero.txt"], r"values\[2\] must be a finite number above 0; found 0.0"),
    "single": (["--values", "single.txt"], "at least two owners; found 1"),
    "reward a word": (["--values", "values.txt", "--reward", "lots"], "or best; found 'lots'"),
    "reward 0": (["--values", "values.txt", "--reward", "0"], "reward must be .* above 0; found 0"),
    "reward nan": (["--values", "values.txt", "--reward", "nan"], "reward must be .* found nan"),
    "accuracy": (["--values", "values.txt", "--accuracy-value", "-1"], "above 0; found -1"),
    "cost": (["--values", "values.txt", "--cost", "cubic"], "cubic"),
    "samples": (["--values", "values.txt", "--samples", "few"], "samples must be a number or FILE"),
    "records of others": (["--values", "values.txt", "--samples", "zero.txt"], "samples"),
    "unknown option": (["--values", "values.txt", "--colour"], "--colour"),
    "ceiling": (["--values", "values.txt", "--ceiling", "0.2"], "ceiling must be"),
    "rows": (["--values", "values.txt", "--rows", "-1"], "rows must be"),
    "seed": (["--uniform", "1:5", "--owners", "9", "--seed", "-1"], "seed must be .* found -1"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_gets_one_clear_sentence(run, case) -> None:
    written("txt")
    written("npy")
    written("parquet")
    Path("folder.csv").mkdir()
    Path("folder").mkdir()
    Path("folder/a.csv").write_text("value\n1\n2\n")
    Path("empty.csv").write_text("")
    Path("word.txt").write_text("1 2\n3 abc\n")
    Path("word.csv").write_text("value\n1\nabc\n")
    Path("hole.csv").write_text("value,b\n1,1\n,2\n3,3\n")
    Path("latin.txt").write_bytes(b"1 \xe9 2")
    Path("cut.npy").write_bytes(Path("values.npy").read_bytes()[:-9])
    Path("cut.parquet").write_bytes(Path("values.parquet").read_bytes()[:-9])
    np.save("pickle.npy", np.array([object()]), allow_pickle=True)
    Path("ragged.csv").write_text("a,b\n1,2\n3\n")
    Path("two.csv").write_text("a,b\n1,2\n3,4\n")
    whole = Path("values.parquet").read_bytes()
    Path("damaged.parquet").write_bytes(whole[:4] + b"x" * 60 + whole[64:])
    Path("foreign.csv").write_bytes(b"caf\xe9,a\n1,2\n3,4\n")
    np.savez("archive.npz", np.ones(100))
    Path("archive.npy").write_bytes(Path("archive.npz").read_bytes()[:-40])
    Path("gap.csv").write_text("value\n1\n\n3\n")
    Path("head.csv").write_text("value\n")
    Path("nan.csv").write_text("value\n1\nnan\n3\n")
    Path("comma.txt").write_text("1,5 2\n")
    Path("noise.csv").write_bytes(bytes(range(1, 256)) * 4)
    Path("twice.csv").write_text("a,a\n1,2\n3,4\n")
    Path("nan.txt").write_text("1 nan 2")
    Path("zero.txt").write_text("1 2 0")
    Path("single.txt").write_text("1")
    arguments, words = BAD[case]
    code, out, err = run("solve", *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("fedbourse: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(err)


@pytest.fixture
def folder(run) -> str:
    Path("owners").mkdir()
    for i, part in enumerate(([1.0, 9.0], [1.2, 1.4])):
        ids = [f"owner {i}{j}" for j in range(2)]
        pq.write_table(pa.table({"id": ids, "value": part}), f"owners/{i}.parquet")
    return "owners"


STREAMED = [1.0, 9.0, 1.2, 1.4]


@pytest.mark.parametrize("reward", ["2", "best"])
@pytest.mark.parametrize("cost", ["linear", "quadratic"])
def test_a_folder_gives_the_same_game_with_file_and_row(run, folder, reward, cost) -> None:
    np.save("values.npy", STREAMED)
    options = ["--reward", reward, "--cost", cost, "--accuracy", "precision", "--json"]
    code, out, err = run("solve", "--values", folder, *options)
    assert (code, err) == (0, "")
    found, known = json.loads(out), json.loads(run("solve", "--values", "values.npy", *options)[1])
    assert found.keys() == known.keys()
    for key in ("reward", "total_budget", "server_utility", "accuracy", "participants"):
        assert found[key] == pytest.approx(known[key], rel=1e-9)
    assert found["unlisted"] == ""
    for row, owner in zip(found["owners"], known["owners"], strict=True):
        where = row.pop("file"), row.pop("row")
        assert where == (f"{owner['index'] // 2}.parquet", owner["index"] % 2)
        assert row == pytest.approx(owner, rel=1e-9)


def test_a_reward_given_for_the_exponential_cost_of_a_folder(run, folder) -> None:
    options = ["--reward", "2", "--cost", "exponential", "--json"]
    found = json.loads(run("solve", "--values", "own*/*.parquet:value", *options)[1])
    assert [owner["value"] for owner in found["owners"]] == [1.0, 1.2, 1.4]
    assert found["owners_asked"] == 4
    assert found["regret"] < 1e-12


def test_the_table_shows_file_and_row_or_names(run, folder) -> None:
    out = run("solve", "--values", folder, "--reward", "2")[1]
    assert [line.split()[0] for line in out.splitlines()[1:4]] == [
        "0.parquet:0", "1.parquet:0", "1.parquet:1",
    ]  # fmt: skip
    for values in (folder, "owners/1.parquet"):
        out = run("solve", "--values", values, "--names", "id", "--reward", "2", "--rows", "1")[1]
        assert "owner " in out.splitlines()[1]
        assert "more (--rows" in out
    out = run("solve", "--values", folder, "--names", "id", "--reward", "2", "--json")[1]
    assert [owner["name"] for owner in json.loads(out)["owners"]] == [
        "owner 00", "owner 10", "owner 11",
    ]  # fmt: skip


def test_where_no_reward_pays_in_a_folder(run, folder) -> None:
    code, out, _ = run("solve", "--values", folder, "--accuracy-value", "0.001")
    assert code == 0
    assert "no reward pays" in out
    assert "0 of 4 owners" in out


def test_too_many_to_list(run, folder, monkeypatch) -> None:
    monkeypatch.setattr(solve_owners, "LISTED", 2)
    out = run("solve", "--values", folder, "--reward", "2")[1]
    assert "those who take part are not listed, as they are more than 2" in out
    assert "3 of 4 owners" in out
    document = json.loads(run("solve", "--values", folder, "--reward", "2", "--json")[1])
    assert document["owners"] == []
    assert document["participants"] == 3
    assert "more than 2" in document["unlisted"]


def test_a_large_file_is_streamed(run, folder, monkeypatch) -> None:
    monkeypatch.setattr("fedbourse.files.values.STREAMED_ABOVE", 10)
    out = run("solve", "--values", "owners/1.parquet", "--reward", "2", "--json")[1]
    assert [(owner["file"], owner["row"]) for owner in json.loads(out)["owners"]] == [
        ("1.parquet", 0), ("1.parquet", 1),
    ]  # fmt: skip


def test_a_terminal_sees_how_far_the_reading_is(run, folder, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    code, _, err = run("solve", "--values", folder, "--reward", "2", "--json")
    assert code == 0
    assert "reading 1: 4 rows" in err


def test_a_terminal_sees_how_far_a_long_search_is(run, monkeypatch) -> None:
    arguments = ("solve", "--uniform", "1:5", "--owners", "4", "--caps", "0.3")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr("fedbourse.cli.output._PATIENCE_S", 1e9)
    assert "searched" not in run(*arguments)[2]
    monkeypatch.setattr("fedbourse.cli.output._PATIENCE_S", 0.0)
    assert "per cent of the rewards searched" in run(*arguments)[2]


def test_the_default_accuracy_model_is_the_recommended_one(run) -> None:
    shared = ("solve", "--uniform", "1:5", "--owners", "9", "--json")
    default = json.loads(run(*shared)[1])
    assert default["accuracy_model"] == "precision"
    assert default == json.loads(run(*shared, "--accuracy", "precision")[1])


def test_a_game_without_equilibrium_has_an_exit_code_of_its_own(run) -> None:
    Path("pair.txt").write_text("0.1 1")
    code, _, err = run("solve", "--values", "pair.txt", "--reward", "1", "--entry-cost", "0.09")
    assert code == 3
    assert "no equilibrium" in err


def test_a_missing_extra_is_named(run, monkeypatch) -> None:
    name = written("csv column")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = run("solve", "--values", name)
    assert code == 4
    assert "pip install 'fedbourse[files]'" in err


def command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("fedbourse")), *arguments]


@pytest.mark.slow
def test_a_full_disk_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("solve", "--uniform", "1:5", "--owners", "9", "--json"),
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 5
    assert done.stderr == "fedbourse: the output: No space left on device\n"


@pytest.mark.slow
def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    solve = " ".join(command("solve", "--uniform", "1:1.0001", "--owners", "20000", "--json"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {solve} | head -c 10"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == '{"reward":'
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["solve", "--help"], ["study", "paper", "--help"]]
)
def test_help_shows_how(arguments) -> None:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=True)
    assert "Usage: fedbourse" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_no_line_of_the_help_turns_into_a_bullet() -> None:
    done = subprocess.run(command("solve", "--help"), capture_output=True, text=True, check=True)
    assert "•" not in done.stdout
    assert not [line for line in solve.__doc__.splitlines() if line.strip().startswith("- ")]
