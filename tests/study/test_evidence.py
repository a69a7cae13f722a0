"""The study of evidence on simulated data: what each row claims, and that the study can fail."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedbourse.cli import main
from fedbourse.errors import InvalidInput
from fedbourse.learning.evidence import Evidence, EvidenceRule
from fedbourse.study.evidence.scenario import DEVIATIONS, Setting, Trials, scenario
from fedbourse.study.evidence.sweeps import SWEEPS, evidence_study
from fedbourse.study.trials import TrialTask

if TYPE_CHECKING:
    from pathlib import Path

    from fedbourse.study.evidence.outcomes import EvidenceRow

TASK = TrialTask("synthetic:d=10,n=12000", owners=30, samples=200, rounds=20)
SETTING = Setting(TASK, reward=1.0, reference_records=1000, alpha=0.05, beta=0.05, k0=0.5)
SEEDS = 2


def rows(
    *deviations: str, sweep: str = "attacks", setting: Setting = SETTING
) -> dict[str, EvidenceRow]:
    study = evidence_study(setting, seeds=SEEDS, sweeps=(sweep,), deviations=deviations)
    return {row.point or row.sends: row for row in study}


@pytest.fixture(scope="module")
def study() -> dict[str, EvidenceRow]:
    return rows()


def test_a_device_without_data_earns_nothing_and_harms_no_longer(study) -> None:
    row = study["no data"]
    assert row.dismissed == row.stands == 1
    assert row.half_of_budget == row.ever_shown == 0
    assert row.pay_share.value > 0.5 > row.earned_share.value == 0
    assert row.weight_without.value == pytest.approx(row.pay_share.value)
    assert row.weight_with.value < 0.5
    assert row.accuracy_with.value > row.accuracy_without.value


def test_an_honest_device_keeps_its_pay(study) -> None:
    row = study["honest"]
    assert row.shown == 1
    assert row.earned_share == row.pay_share
    assert row.accuracy_with == row.accuracy_without


def test_honest_owners_are_seldom_dismissed_by_a_true_reference(study) -> None:
    true = [row for name, row in study.items() if DEVIATIONS[name].reference == "true"]
    assert max(row.others_dismissed for row in true) <= SETTING.beta


def test_every_row_is_decided_or_left_open(study) -> None:
    assert list(study) == list(DEVIATIONS)
    for row in study.values():
        assert row.shown + row.dismissed + row.undecided == pytest.approx(1)
        assert 0 <= row.earned_share.value <= row.pay_share.value + 1e-12


def test_a_budget_split_over_names_is_the_same_budget(study) -> None:
    one, three, most = (study[f"no data{names}"] for names in ("", ", three names", ", most names"))
    assert three.pay_share.value == pytest.approx(one.pay_share.value)
    assert three.budget.value == pytest.approx(one.budget.value / 3)
    assert three.dismissed == one.dismissed == 1
    # Whoever holds most of the names makes evidence void, and is paid.
    assert most.stands == 0
    assert most.earned_share == most.pay_share


def test_the_knowledge_of_the_reference_is_enough(study) -> None:
    """What evidence cannot show: a puppet passes by a wrong reference, and no stranger does."""
    assert study["swapped reference, puppet"].shown == 1
    assert study["other classes"].shown == 0


def test_an_echo_is_noticed_as_one(study) -> None:
    assert study["guess, then echo"].echoes == 1
    assert study["honest"].echoes == 0


def test_a_score_that_is_seen_can_be_climbed() -> None:
    rises = rows("no data", "score feedback", sweep="ordinary-budgets")
    assert rises["score feedback"].score.value > rises["no data"].score.value + 1


def test_owners_of_one_class_need_the_population_of_mixtures() -> None:
    study = evidence_study(SETTING, seeds=SEEDS, sweeps=("honest-owners",))
    of = {(row.population, row.point): row for row in study}
    assert of["like-reference", "like the reference"].dismissed == 0
    assert of["like-reference", "one class each"].dismissed > SETTING.beta
    assert of["any-class-mixture", "one class each"].dismissed == 0
    assert all(row.others_dismissed is None for row in study)


def test_power_grows_with_the_budget() -> None:
    study = rows("honest", sweep="budget")
    variances = [row.variance.value for row in study.values()]
    assert variances == sorted(variances)
    assert study["4 x mean"].shown == 1 > study["0.0625 x mean"].shown
    few, many = study["0.0625 x mean"], study["4 x mean"]
    assert many.budget.value == pytest.approx(64 * few.budget.value)


@pytest.mark.parametrize("sweep", ["reference", "rounds", "k0"])
def test_each_sweep_varies_what_it_says(sweep: str) -> None:
    cases = [case for case in SWEEPS[sweep](SETTING) if case.sends == "honest"]
    read = {
        "reference": lambda setting: setting.reference_records,
        "rounds": lambda setting: setting.task.rounds,
        "k0": lambda setting: setting.k0,
    }
    for name, number in read.items():
        numbers = [number(case.setting) for case in cases]
        assert len(set(numbers)) == (len(cases) if name == sweep else 1)
    trials = Trials(0)
    for case in cases:
        scene = scenario(trials.of(case.setting), case.setting, DEVIATIONS["no data"])
        assert scene.rule == case.setting.rule
        assert {each.rounds for each in scene.terms} == {case.setting.task.rounds}
        buyer = len(trials.of(replace(SETTING, reference_records=10**6)).reference)
        assert len(scene.reference) == min(case.setting.reference_records, buyer)


def test_a_reference_larger_than_the_buyers_records_is_left_out() -> None:
    study = rows("honest", sweep="reference")
    assert list(study) == ["30 records", "100 records", "300 records", "1000 records"]


def test_shuffled_and_swapped_references_keep_their_records() -> None:
    one = Trials(0).of(SETTING)
    true, shuffled, swapped = (
        scenario(one, SETTING, replace(DEVIATIONS["honest"], reference=kind)).reference
        for kind in ("true", "shuffled", "swapped")
    )
    assert (shuffled.features == true.features).all()
    assert (np.sort(shuffled.labels) == np.sort(true.labels)).all()
    assert (shuffled.labels != true.labels).any()
    assert (swapped.labels == 1 - true.labels).all()


@pytest.mark.faults
def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: where updates are not looked at, an honest device shows nothing."""
    added = Evidence.added

    def blind(self: Evidence, update: Any, **options: Any) -> Evidence:
        return added(self, 0 * update, **options)

    monkeypatch.setattr(Evidence, "added", blind)
    assert rows("honest")["honest"].shown == 0


@pytest.mark.faults
def test_a_planted_fault_in_the_verdict_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: decided on z and not on l, a device without data is never dismissed."""

    def by_score(rule: EvidenceRule, evidence: Evidence) -> bool:
        return evidence.score <= rule.dismissal_bound

    monkeypatch.setattr(EvidenceRule, "_is_dismissed", by_score)
    assert rows("no data")["no data"].dismissed == 0


SMALL = "--data synthetic:d=5,n=4000 --owners 9 --samples 50 --rounds 5 --reward 2 --seeds 2"
COMMAND = ["study", "evidence", *SMALL.split(), "--attack", "no data"]


def test_the_command_prints_rows_for_people_and_programs(capsys) -> None:
    assert main(COMMAND) == 0
    assert "no data" in capsys.readouterr().out
    assert main([*COMMAND, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["sweep"], row["sends"]) for row in document["rows"]] == [("attacks", "no data")]


def test_the_command_writes_its_tables(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    assert main([*COMMAND, "--sweep", "all", "--out", str(folder)]) == 0
    with (folder / "evidence.csv").open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    assert {record["sweep"] for record in records} == set(SWEEPS) - {"honest-owners"}
    assert {record["sends"] for record in records} == {"no data"}
    page = (folder / "evidence.md").read_text(encoding="utf-8")
    assert page.count("| no data |") == len(records)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--attack", "magic"], "attack must be one of honest, no data"),
        (["--sweep", "sky"], "sweep must be one of attacks, ordinary-budgets"),
        (["--sweep", "honest-owners"], "no row of honest-owners sends no data"),
        (["--k0", "2"], "k0 must be"),
        (["--reference-records", "1"], "reference_records must be"),
    ],
)
def test_wrong_choices_are_refused(more: list[str], words: str, capsys) -> None:
    assert main([*COMMAND, *more]) == 2
    assert words in capsys.readouterr().err


def test_numbers_to_predict_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "numbers.npz"
    np.savez(path, X=rng.normal(size=(500, 3)), y=rng.normal(size=500))
    setting = replace(SETTING, task=TrialTask(str(path), owners=9, samples=10, rounds=2))
    with pytest.raises(InvalidInput, match="data must have classes"):
        evidence_study(setting, seeds=2)
