"""fedbourse audit: honest noise passes, each fault is named, exit codes are for scripts."""

import json
import re
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest

from fedbourse.cli import main
from fedbourse.cli.audit import FaultName
from fedbourse.privacy import noise_scale
from fedbourse.privacy.audit import FAULT_DESCRIPTIONS

QUICK = ["--rounds", "4", "--samples", "50", "--runs", "400"]
CAUGHT_BY = {
    "half-sigma": {"too-little-noise", "shape"},
    "low-sigma": {"too-little-noise"},
    "reused-noise": {"reuse-rounds", "reuse-updates", "repeats"},
    "reused-between-runs": {"reuse-runs", "reuse-updates", "repeats"},
    "double-sensitivity": {"sensitivity"},
}


@pytest.fixture
def audit(capsys):
    def run(*arguments: str):
        code = main(["audit", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def record(tmp_path):
    """Write noise of 60 runs of 4 rounds, and return the arguments that are true of it."""

    def write(share=1.0, shape=(60, 4, 10), name="noise.npy"):
        sigma = noise_scale(0.5, clip=1.0, samples=1000, iterations=shape[-2])
        noise = np.random.default_rng(1).normal(0.0, share * sigma, shape)
        file = tmp_path / name
        (np.save if name.endswith("npy") else np.savez)(file, noise)
        return ["residuals", str(file), "--rho", "0.5", "--samples", "1000"]

    return write


def test_the_device_passes_as_a_newcomer_runs_it(audit) -> None:
    code, out, err = audit("noise", "--alpha", "1e-6")  # exact noise has no seed to rely on
    assert code == 0
    assert out.count("passed") == 11
    assert "FAILED" not in out
    assert "No sign of wrong noise: all 10 tests passed" in out
    assert "claimed  epsilon 4.73 about one record, at delta 1e-05 (rho 0.5)" in out
    assert re.search(r"shown  epsilon [0-9.]+ about one record, at least", out)
    assert "would notice noise 10 % low with probability above 0.9999" in out
    assert err.strip() == ""


def test_simulated_noise_passes_and_its_seed_repeats_it(audit) -> None:
    same = [audit("noise", *QUICK, "--mechanism", "simulated", "--json") for _ in range(2)]
    assert same[0] == same[1]
    assert same[0][0] == 0
    other = audit("noise", *QUICK, "--mechanism", "simulated", "--seed", "1", "--json")
    assert json.loads(other[1])["findings"] != json.loads(same[0][1])["findings"]


def test_the_faults_offered_are_those_there_are() -> None:
    assert set(get_args(FaultName)) == set(FAULT_DESCRIPTIONS) == set(CAUGHT_BY)


@pytest.mark.parametrize("fault", FAULT_DESCRIPTIONS)
def test_a_planted_fault_ends_in_exit_code_7_and_the_test_that_noticed(audit, fault) -> None:
    code, out, err = audit("noise", *QUICK, "--fault", fault)
    assert code == 7
    last = err.strip().splitlines()[-1]
    assert last.startswith("fedbourse: the noise is not what it claims: ")
    named = set(last.partition("tests failed, ")[2].split(", "))
    assert CAUGHT_BY[fault] <= named
    shown = {line.split()[0] for line in out.splitlines() if "FAILED" in line}
    assert shown == named
    assert "No sign" not in out


def test_a_failed_audit_prints_its_json_too(audit) -> None:
    code, out, err = audit("noise", *QUICK, "--fault", "half-sigma", "--json")
    report = json.loads(out)
    assert code == 7
    assert not report["passed"]
    assert report["fault"] == "half-sigma"
    assert report["verdict"] in err
    findings = {finding["test"]: finding for finding in report["findings"]}
    assert not findings["too-little-noise"]["passed"]
    assert findings["too-little-noise"]["p_value"] < findings["too-little-noise"]["limit"] == 1e-5


def test_the_json_says_what_was_claimed_and_what_was_shown(audit) -> None:
    _, out, _ = audit("noise", *QUICK, "--mechanism", "simulated", "--rho", "0.2", "--json")
    report = json.loads(out)
    assert set(report) == {
        *("passed", "verdict", "runs", "alpha", "epsilon_claimed", "epsilon_lower_bound"),
        *("noise_scale", "rho", "rounds", "dimension", "samples", "clip", "delta"),
        *("mechanism", "fault", "seed", "version", "findings", "power"),
    }
    assert report["noise_scale"] == noise_scale(0.2, clip=1.0, samples=50, iterations=4)
    assert report["epsilon_lower_bound"] < report["epsilon_claimed"]
    assert len(report["findings"]) == 10
    assert {fault["fault"] for fault in report["power"]} == set(FAULT_DESCRIPTIONS)


def test_where_power_is_low_the_report_says_how_many_runs_it_takes(audit) -> None:
    few = ["noise", "--mechanism", "simulated", "--rho", "0.1", "--runs"]
    _, out, _ = audit(*few, "40", "--json")
    twice = next(f for f in json.loads(out)["power"] if f["fault"] == "double-sensitivity")
    needed = twice["runs_needed"]
    assert twice["probability"] < 0.99
    _, out, _ = audit(*few, "40")
    assert f"; 0.99 takes {needed} runs, {needed - 40} more" in out
    _, out, _ = audit(*few, str(needed), "--json")
    twice = next(f for f in json.loads(out)["power"] if f["fault"] == "double-sensitivity")
    assert twice["probability"] >= 0.99


@pytest.mark.parametrize("name", ["noise.npy", "noise.npz"])
@pytest.mark.parametrize("shape", [(60, 4, 10), (60, 10)])
def test_recorded_noise_passes(audit, record, name, shape) -> None:
    code, out, _ = audit(*record(shape=shape, name=name))
    assert code == 0
    assert "all 7 tests passed" in out
    assert "nothing about epsilon: that takes a canary" in out
    assert "counts twice" not in out


def test_recorded_noise_that_is_low_is_caught(audit, record) -> None:
    code, out, err = audit(*record(share=0.8), "--json")
    assert code == 7
    assert "too-little-noise" in err
    report = json.loads(out)
    assert (report["mechanism"], report["runs"], report["rounds"]) == ("recorded", 60, 4)
    assert report["epsilon_lower_bound"] is None


def test_what_no_number_of_runs_notices_is_said(audit, tmp_path) -> None:
    # One number a run, on so coarse a grid that repeats are no wonder.
    rho = 1e12
    sigma = noise_scale(rho, clip=1.0, samples=1000, iterations=1)
    np.save(tmp_path / "one.npy", np.random.default_rng(0).normal(0.0, sigma, (400, 1, 1)))
    arguments = ["residuals", str(tmp_path / "one.npy"), "--rho", str(rho), "--samples", "1000"]
    code, out, _ = audit(*arguments)
    assert code == 0
    line = next(line for line in out.splitlines() if "the same noise in every run" in line)
    assert line.endswith("; no number of runs gives 0.99")
    _, out, _ = audit(*arguments, "--json")
    assert json.loads(out)["power"][-1]["runs_needed"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rho", "0"], "rho must be a finite number above 0; found 0"),
        (["--rho", "nan"], "rho must be a finite number above 0; found nan"),
        (["--rho", "1e-30"], "rho / rounds must be at least"),
        (["--rounds", "2.5"], "rounds must be a whole number; found 2.5"),
        (["--rounds", "1e300"], "rounds x dimension must be"),
        (["--dimension", "0"], "dimension must be a finite number of at least 1; found 0"),
        (["--samples", "1e12"], "samples x dimension must be"),
        (["--clip", "-1"], "clip must be a finite number above 0; found -1"),
        (["--clip", "1e-200", "--mechanism", "simulated"], "clip must be a finite number of at"),
        (["--runs", "9"], "runs must be a finite number of at least 10; found 9"),
        (["--runs", "10", "--dimension", "1"], "runs x rounds x dimension must be at least 400"),
        (["--alpha", "1e-9"], "alpha must be a finite number of at least 1e-06; found 1e-09"),
        (["--alpha", "0.7"], "alpha must be a number below 0.5; found 0.7"),
        (["--seed", "-1"], "seed must be"),
        (["--mechanism", "laplace"], "--mechanism"),
        (["--fault", "tired"], "--fault"),
        (["--fault", "reused-noise", "--rounds", "1"], "reused-noise needs at least 2 rounds"),
    ],
)
def test_wrong_input_gets_one_sentence(audit, arguments, sentence) -> None:
    code, out, err = audit("noise", *arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("fedbourse: ")
    assert sentence in last


def test_wrong_files_get_one_sentence(audit, tmp_path) -> None:
    bad = {
        "absent.npy": (None, "absent.npy: No such file"),
        "text.npy": (b"1 2 3", "is not a valid .npy or .npz file of numbers"),
        "empty.npy": (b"", "is not a valid .npy or .npz file of numbers"),
    }
    arrays = {
        "flat.npy": (np.zeros(9), "must hold numbers of shape (runs, rounds, dimension)"),
        "words.npy": (np.array([["a", "b"]]), "found <U1 of shape (1, 2)"),
        "none.npy": (np.zeros((0, 4, 3)), "found float64 of shape (0, 4, 3)"),
        "nan.npy": (np.full((90, 4, 3), np.nan), "finite numbers; found NaN"),
        "few.npy": (np.zeros((4, 3)), "at least 400; found 12"),
    }
    for name, (data, _) in bad.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
    for name, (array, _) in arrays.items():
        np.save(tmp_path / name, array)
    np.savez(tmp_path / "two.npz", a=np.zeros((4, 3)), b=np.zeros((4, 3)))
    wanted = {name: sentence for name, (_, sentence) in (bad | arrays).items()}
    for name, sentence in (wanted | {"two.npz": "must hold one array; it holds 2"}).items():
        code, out, err = audit(
            "residuals", str(tmp_path / name), "--rho", "0.5", "--samples", "1000"
        )
        assert (code, out) == (2, "")
        assert sentence in err
        assert len(err.strip().splitlines()) == 1


def test_the_command_line_starts_without_the_audit() -> None:
    program = (
        "import sys, fedbourse.cli; "
        "print([m for m in sys.modules if m.startswith(('fedbourse.privacy.audit', 'opendp'))])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
