"""The study of evidence on simulated data: what each attack earns, and that the study can fail."""

from __future__ import annotations

import json

import pytest

from fedbourse.cli import main
from fedbourse.learning.evidence import Evidence, EvidenceRule
from fedbourse.study.evidence import ATTACKS, EvidenceRow, evidence_study
from fedbourse.study.trials import TrialTask

TASK = TrialTask("synthetic:d=10,n=40000", owners=30, samples=200, rounds=30)
RULE = EvidenceRule(alpha=0.05, beta=0.05, k0=0.5, rounds=TASK.rounds)
OPTIONS = {"reward": 1.0, "reference_records": 2000, "seeds": 3}
SMALL_REWARD = OPTIONS | {"reward": 0.2}


def rows(*attacks: str, options=OPTIONS) -> dict[str, EvidenceRow]:
    study = evidence_study(TASK, RULE, attacks=attacks or tuple(ATTACKS), **options)
    return {row.attack: row for row in study}


@pytest.fixture(scope="module")
def study() -> dict[str, EvidenceRow]:
    return rows()


def test_a_device_without_data_earns_nothing_and_harms_no_longer(study) -> None:
    row = study["no data"]
    assert row.dismissed == row.stands == 1
    assert row.half_of_budget == 0
    assert row.pay_share.value > 0.5 > row.earned_share.value == 0
    assert row.accuracy_with.value > row.accuracy_without.value


def test_what_it_cannot_show_is_there_too() -> None:
    """At a small reward ten amplified records show data in some seeds at least.

    In some, too, the others sell too little to show that the reference fits: then the dismissal of
    a device without data does not count, and it is paid.
    """
    study = rows("ten records, amplified", "no data", options=SMALL_REWARD)
    assert study["ten records, amplified"].dismissed < 1
    assert study["no data"].dismissed == 1
    assert study["no data"].stands < 1
    assert study["no data"].earned_share.value > 0


def test_an_honest_device_keeps_its_pay(study) -> None:
    row = study["honest"]
    assert row.shown == 1
    assert row.earned_share == row.pay_share
    assert row.accuracy_with == row.accuracy_without


def test_honest_owners_are_seldom_dismissed(study) -> None:
    assert max(row.others_dismissed for row in study.values()) <= RULE.beta


def test_every_attack_is_decided_or_left_open(study) -> None:
    assert list(study) == list(ATTACKS)
    for row in study.values():
        assert row.shown + row.dismissed + row.undecided == pytest.approx(1)


def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: where updates are not looked at, an honest device shows nothing."""
    added = Evidence.added

    def blind(self, update, **options):
        return added(self, 0 * update, **options)

    monkeypatch.setattr(Evidence, "added", blind)
    assert rows("honest")["honest"].shown == 0


def test_the_command_prints_rows_for_people_and_programs(capsys) -> None:
    data = "--data synthetic:d=5,n=4000 --owners 9 --samples 50 --rounds 5 --reward 2"
    command = ["study", "evidence", *data.split(), "--seeds", "2", "--attack", "no data"]
    assert main(command) == 0
    assert "no data" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["attack"] for row in document["rows"]] == ["no data"]
    assert main([*command, "--attack", "magic"]) != 0
    assert "attack must be one of honest, no data" in capsys.readouterr().err
