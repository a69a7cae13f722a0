"""Evidence from the command line: from the card to what was found, and recomputed by an auditor."""

import json
import sqlite3
import stat
from contextlib import chdir, closing

import numpy as np
import pytest

from cli.evidence_records import NAMES, VALUES, gradient_of, quicken, steps, write_csv
from cli.markets import Shell, new_token, owners, paid_in, replied, running_market, until
from fedbourse.app.configuration import DATABASE_FILE
from fedbourse.cli import main

ROUNDS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("evidence")


@pytest.fixture(scope="module")
def market(folder):
    with running_market(folder / "market") as running:
        yield running


@pytest.fixture
def shell(capsys, market):
    return Shell(capsys, market.url)


_TRADES: dict[str, tuple[str, object, list[str]]] = {}


@pytest.fixture
def trade(shell, market, folder):
    """One task with evidence, in which one of six devices sends noise alone."""
    if market.url not in _TRADES:
        acme = new_token(shell, market, "buyer:acme", folder)
        paid_in(shell, market, acme, party="buyer:acme", credits="20", reference="all")
        write_csv(folder / "mine.csv", 4000, seed=1)
        written, *others = steps(0)
        with chdir(folder), owners(shell, market, *NAMES) as people:
            assert main(written) == 0
            card = quicken(folder / "card.json", rounds=ROUNDS)
            said = [shell(*step, token=acme) for step in others]
            assert [code for code, _, _ in said] == [0] * len(others), said
            task = shell.json("task", "show", "latest", token=acme)
            name = trained(shell, acme, task, card, people)
        _TRADES[market.url] = name, acme, [out for _, out, _ in said]
    return _TRADES[market.url]


def trained(shell, acme, task, card, people):
    """Carry a task to its end; who is dismissed meanwhile is asked no more."""
    name = task["task"]
    for owner in people:
        owner.like(task)
    shell.json("task", "announce", name, token=acme)
    replied(shell, name, dict(zip(people, VALUES, strict=True)))
    for owner in people:
        owner.decide(task, accept=True)
    until(lambda: shell.json("task", "show", name)["state"] == "training")
    assert shell.refused("task", "evidence", name, token=acme)[0] == 11
    for number in range(ROUNDS):
        until(lambda number=number: shell.json("task", "show", name)["round"] == number)
        for place, owner in enumerate(people):
            if owner.participation(task)["allocation"]["state"] == "signed":
                honest = None if place == 0 else gradient_of(card, seed=10 + place)
                owner.send_update(task, number, card=card, gradient=honest)
    until(lambda: shell.json("task", "show", name)["state"] == "completed")
    return name


def test_the_steps_of_the_how_to_lead_to_a_model(shell, market, trade, tmp_path) -> None:
    _, acme, (created, outlook, opened) = trade
    assert "is open" in opened
    kay = new_token(shell, market, "auditor:kay", tmp_path)
    for step in steps(1):
        named = "--token-file" in step
        code, _, err = shell(*(step[:-2] if named else step), token=kay if named else acme)
        assert code == 0, err
    assert "with its reference records; fedbourse task open" in " ".join(created.split())
    assert "a device that sells less than" in " ".join(outlook.split())


def test_the_buyer_learns_how_many_and_an_auditor_which(shell, market, trade, tmp_path) -> None:
    name, acme, _ = trade
    own = shell.json("task", "evidence", name, token=acme)
    assert (own["devices"], own["dismissed"], own["findings"]) == (6, 1, [])
    code, out, _ = shell("task", "evidence", name, token=acme)
    assert code == 0
    words = " ".join(out.split())
    assert "1 of 6 devices do not follow the reference records" in words
    assert "Evidence says that updates differ, not why" in words
    kay = new_token(shell, market, "auditor:kay", tmp_path)
    found = shell.json("task", "evidence", name, token=kay)["findings"]
    assert [each["owner"] for each in found if each["verdict"] == "dismissed"] == ["owner:junk"]
    assert len(found) == 6
    ann = new_token(shell, market, "owner:ann", tmp_path)
    (line,) = shell.json("task", "evidence", name, token=ann)["findings"]
    assert line["owner"] == "owner:ann"
    assert shell.refused("task", "evidence", name)[0] == 8


def evidence_check(shell, name, token):
    code, out, _ = shell("verify", name, "--json", token=token)
    found = {check["name"]: check for check in json.loads(out)["checks"]}
    return code, found["evidence"], [n for n, check in found.items() if check["passed"] is False]


def test_an_auditor_recomputes_evidence_a_page_at_a_time(
    shell, market, trade, tmp_path, monkeypatch
) -> None:
    name, acme, _ = trade
    kay = new_token(shell, market, "auditor:kay", tmp_path)
    code, check, wrong = evidence_check(shell, name, kay)
    assert (code, check["passed"], wrong) == (0, True, [])
    assert f"{ROUNDS} rounds of updates beside 400 reference records" in check["detail"]
    # Those who may not see all updates are told so, and nothing differs.
    for token in (acme, new_token(shell, market, "owner:ann", tmp_path)):
        code, check, wrong = evidence_check(shell, name, token)
        assert (code, check["passed"], wrong) == (0, None, [])


@pytest.mark.faults
def test_a_reference_that_was_changed_after_the_task_makes_verify_fail(
    shell, market, trade, tmp_path
) -> None:
    name, _, _ = trade
    kay = new_token(shell, market, "auditor:kay", tmp_path)
    at, update = (name,), "UPDATE evidence_references SET content = ? WHERE task = ?"
    with closing(sqlite3.connect(market.folder / DATABASE_FILE)) as database:
        query = "SELECT content FROM evidence_references WHERE task = ?"
        (content,) = database.execute(query, at).fetchone()
        forged = content[:-8] + np.array([1 - float(content[-1] != 0)], dtype="<f8").tobytes()
        assert forged != content
        with database:
            database.execute(update, (forged, name))
        try:
            code, check, wrong = evidence_check(shell, name, kay)
        finally:
            with database:
                database.execute(update, (content, name))
    assert (code, wrong) == (15, ["evidence"])
    assert "the card commits to" in check["detail"]


def test_a_card_with_evidence_is_created_only_with_its_reference(shell, market, folder, tmp_path):
    acme = new_token(shell, market, "buyer:bell", tmp_path)
    for name, count, seed in (("mine", 1000, 1), ("reference", 400, 2)):
        write_csv(tmp_path / f"{name}.csv", count, seed=seed)
    spec, file = f"{tmp_path}/mine.csv:late", tmp_path / "other.json"
    evidence = ["--evidence", str(tmp_path / "reference.csv"), "--out", str(file)]
    assert main(["task", "card", "--data", spec, *evidence]) == 0
    assert main(["task", "card", "--data", spec, *evidence]) == 5  # it may be needed
    reference = tmp_path / "other.reference"
    assert stat.S_IMODE(reference.stat().st_mode) == 0o600
    moved = reference.rename(tmp_path / "elsewhere")
    code, sentence = shell.refused("task", "create", file, token=acme)
    assert code == 2
    assert "--reference" in sentence
    content = moved.read_bytes()
    moved.write_bytes(content[:-1] + b"x")
    _, sentence = shell.refused("task", "create", file, "--reference", moved, token=acme)
    assert "the card commits to" in sentence
    drafts = shell.json("task", "list", "--state", "draft", token=acme)["tasks"]
    assert drafts == []
    moved.write_bytes(content)
    made = shell.json("task", "create", file, "--reference", moved, token=acme)
    assert made["state"] == "draft"
    assert shell.json("task", "reference", made["task"], moved, token=acme) == made
