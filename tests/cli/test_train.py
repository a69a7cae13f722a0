"""``fedbourse train``: one process, agreements, rosters, and sentences for what makes no sense."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbourse.cli import main
from fedbourse.device import DeviceFolder, DeviceSettings
from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.flower.device import FlowerDevice
from fedbourse.flower.job import Job, Member, key_bytes, read_roster
from fedbourse.flower.recipe import Recipe

TINY = ["train", "--data", "synthetic:d=5,n=1000", "--samples", "50", "--rounds", "3"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main([*TINY, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def model_of(file: Path) -> Any:
    with np.load(file) as stored:
        return stored["parameters"]


def test_one_document_on_stdout_and_a_line_a_round_on_stderr(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "m.npz"
    code, stdout, stderr = run(capsys, "--budgets", "0.5,1", "--json", "--out", str(out))
    document = json.loads(stdout)
    assert code == 0
    assert document["model_file"] == str(out)
    assert document["noise"] == "exact"
    assert [line["delivered"] for line in document["owners"]] == [3, 3]
    assert [line["spent_rho"] for line in document["owners"]] == pytest.approx([0.5, 1.0])
    assert [line.split(":")[0] for line in stderr.splitlines()] == [
        "round 1/3",
        "round 2/3",
        "round 3/3",
    ]
    assert model_of(out).shape == (5,)


def test_a_folder_keeps_spend_and_model_and_the_same_command_asks_nobody_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ["--budgets", "0.5", "--owners", "3", "--folder", str(tmp_path / "run"), "--json"]
    first = run(capsys, *options, "--out", str(tmp_path / "a.npz"))
    again = run(capsys, *options, "--out", str(tmp_path / "b.npz"))
    assert again[2] == ""
    np.testing.assert_array_equal(model_of(tmp_path / "a.npz"), model_of(tmp_path / "b.npz"))
    for document in (json.loads(first[1]), json.loads(again[1])):
        for line in document["owners"]:
            assert line["spent_epsilon_one_record"] == pytest.approx(4.73, rel=0.01)
            assert line["spent_epsilon_whole_owner"] > line["spent_epsilon_one_record"]
        assert [line["spent_rho"] for line in document["owners"]] == pytest.approx([0.5] * 3)
    assert json.loads(first[1])["accuracy"] == json.loads(again[1])["accuracy"]


def test_a_folder_holds_one_training(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--budgets", "0.5,1", "--folder", str(tmp_path / "run"), "--out"]
    assert run(capsys, *options, str(tmp_path / "m.npz"))[0] == 0
    code, _, stderr = run(capsys, *options, str(tmp_path / "m.npz"), "--noise", "simulated")
    assert code == 2
    assert "other noise" in stderr
    code, _, stderr = run(capsys, *options, str(tmp_path / "m.npz"), "--clip", "2")
    assert code in (2, 6)
    assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "give --budgets"),
        ("--budgets x", "--budgets must be numbers"),
        ("--budgets 0.5,nan", "budgets[1] must be a finite number above 0"),
        ("--budgets 0.5,0", "budgets[1] must be a finite number above 0"),
        ("--budgets 1,2 --owners 3", "3 owners need one budget, or 3; found 2"),
        ("--budgets 1 --owners 1e9", "owners must be at most 10000"),
        ("--budgets 1 --rounds 0", "rounds"),
        ("--budgets 1 --clip inf", "clip"),
        ("--budgets 1 --round-seconds -1", "round_seconds"),
        ("--budgets 1,1,1,1 --engine flower", "at most 3 SuperNodes are started here"),
        ("--budgets 1 --superlink a:1", "belong together"),
        ("--roster r --superlink a:1", "belongs to --engine flower"),
        ("--roster r --superlink a --engine flower", "must be HOST:PORT"),
        ("--roster nowhere --superlink a:1 --engine flower", "nowhere cannot be read"),
        ("--budgets 1 --out /nowhere/m.npz", "cannot be written"),
        ("--budgets 1 --owners 1000", "need"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_sentence(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, stdout, stderr = run(capsys, *arguments.split())
    assert code in (2, 5)
    assert stdout == ""
    assert sentence in stderr
    assert len(stderr.splitlines()) == 1


@pytest.fixture
def agreed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Recipe, Path, list[str]]:
    """A recipe for a table, and an owner's device with a table of its own."""
    rng = np.random.default_rng(1)
    for name, rows in (("buyer", 200), ("ann", 90)):
        numbers = rng.standard_normal((rows, 2))
        lines = [f"{a},{b},{int(a > b)}" for a, b in numbers.tolist()]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,dose,ill", *lines]) + "\n")
    recipe = tmp_path / "recipe.json"
    data = f"{tmp_path}/buyer.csv:ill"
    options = ["--data", data, "--rounds", "2", "--samples", "60"]
    assert main(["train", "recipe", *options, "--out", str(recipe)]) == 0
    DeviceFolder.create(tmp_path / "device", DeviceSettings(value=1.0, lifetime_cap=1.0))
    capsys.readouterr()
    agree = ["train", "agree", str(recipe), "--folder", str(tmp_path / "device"), "--owner", "ann"]
    return Recipe.read(recipe), tmp_path, [*agree, "--data", f"{tmp_path}/ann.csv:ill"]


def test_an_owner_agrees_on_its_own_machine(
    agreed: tuple[Recipe, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, path, agree = agreed
    assert main([*agree, "--budget", "0.75"]) == 0
    line = Member.of(json.loads(capsys.readouterr().out))
    assert line == Member("ann", 0.75, recipe.terms(0.75).digest)
    device = FlowerDevice(path / "device")
    assert [account.committed for account in device.accounts()] == [0.75]
    body = np.zeros(3).tobytes()
    answer = device.update(task=recipe.task, terms=line.terms, round=0, model=body)
    assert len(answer) == 24
    assert main([*agree, "--budget", "0.75"]) == 0  # nothing changes
    assert [account.charged for account in device.accounts()] == [1]


def test_data_that_another_device_guards_cannot_be_agreed_to_without_a_separate_cap(
    agreed: tuple[Recipe, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, path, agree = agreed
    assert main([*agree, "--budget", "0.5"]) == 0
    DeviceFolder.create(path / "other", DeviceSettings(value=1.0, lifetime_cap=1.0))
    again = [str(path / "other") if part == str(path / "device") else part for part in agree]
    capsys.readouterr()
    assert main([*again, "--budget", "0.5"]) == 11
    assert f"already guarded by the device folder {path}/device" in capsys.readouterr().err
    assert FlowerDevice(path / "other").accounts() == []
    assert main([*again, "--budget", "0.5", "--separate-cap"]) == 0
    assert main([*again, "--budget", "0.5"]) == 0  # it was said before


def test_an_owner_cannot_agree_beyond_its_cap_or_without_the_columns(
    agreed: tuple[Recipe, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, path, agree = agreed
    assert main([*agree, "--budget", "1.5"]) == 6
    assert "does not fit under the lifetime cap of 1" in capsys.readouterr().err
    (path / "ann.csv").write_text("age,weight,ill\n1,2,0\n")
    assert main([*agree, "--budget", "0.5"]) == 2
    assert "must have one column 'dose'; it has age, weight, ill" in capsys.readouterr().err
    assert FlowerDevice(path / "device").accounts() == []


@pytest.mark.parametrize("rows", ["", "1,2,0\n2,1,1\nx,1,1\n", "1,2,7\n" * 90])
def test_what_an_owner_tells_the_buyer_does_not_depend_on_its_records(
    rows: str, agreed: tuple[Recipe, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, path, agree = agreed
    (path / "ann.csv").write_text(f"age,dose,ill\n{rows}")
    assert main([*agree, "--budget", "0.75"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == asdict(Member("ann", 0.75, recipe.terms(0.75).digest))
    fit = 2 if rows.startswith("1,2,0") else 0
    assert f"{fit} of {rows.count(chr(10))} records fit" in printed.err
    assert "stays on this machine" in printed.err
    answer = FlowerDevice(path / "device").update(
        task=recipe.task, terms=recipe.terms(0.75).digest, round=0, model=np.zeros(3).tobytes()
    )
    assert len(answer) == 24


@pytest.mark.flower
def test_a_roster_makes_a_job_for_flwr_run(
    agreed: tuple[Recipe, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, path, agree = agreed
    assert main([*agree, "--budget", "0.75"]) == 0
    (path / "roster.jsonl").write_text(capsys.readouterr().out)
    data = f"{path}/buyer.csv:ill"
    options = ["--data", data, "--rounds", "2", "--samples", "60", "--engine", "flower"]
    options += ["--roster", str(path / "roster.jsonl"), "--job", str(path / "job.json")]
    assert main(["train", *options]) == 2
    assert "needs --folder" in capsys.readouterr().err
    assert main(["train", *options, "--folder", str(path / "run")]) == 0
    job = Job.read(str(path / "job.json"))
    assert job.recipe == recipe
    assert [(seat.owner, seat.terms.rho) for seat in job.seats] == [("ann", 0.75)]


def test_the_app_is_in_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "app"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "pyproject.toml").is_file()


@pytest.mark.flower
def test_a_key_is_read_as_flower_keeps_it() -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    text = key.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    ).decode()
    assert key_bytes(text) == public_key_to_bytes(key)
    for wrong in ("ssh-rsa nothing", "", "ssh-ed25519 " + 43 * "A"):
        with pytest.raises(InvalidInput, match="ssh-keygen -t ecdsa"):
            key_bytes(wrong)


@pytest.mark.parametrize(
    "text",
    ["{", "7", '{"owner": "a"}', '[{"owner": "a", "budget": 1, "terms": "x", "more": 1}]', "\0"],
)
def test_a_roster_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "roster.jsonl"
    file.write_text(text)
    with pytest.raises(InvalidFile, match="roster"):
        read_roster(file)


def test_a_job_with_other_terms_than_agreed_is_refused(
    agreed: tuple[Recipe, Path, list[str]],
) -> None:
    recipe, path, _ = agreed
    ours = Member("ann", 0.5, recipe.terms(0.5).digest)
    job = Job(recipe, (ours,), data="flights", seed=0, folder=str(path))
    assert Job.read(json.dumps(job.document)) == job
    theirs = Member("ann", 0.5, recipe.terms(0.25).digest)
    with pytest.raises(InvalidInput, match="ann agreed to other terms"):
        Job(recipe, (theirs,), data="flights", seed=0, folder=str(path))
    for text in ("", "{", "{}", '{"recipe": 1}', "/nowhere/job.json"):
        with pytest.raises(InvalidInput):
            Job.read(text)
