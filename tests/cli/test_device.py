"""Every command of a device, as an owner types it, against a market that runs."""

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cli.markets import (
    CARD,
    WAIT_S,
    Shell,
    command,
    new_token,
    paid_in,
    running_market,
    until,
)
from epsilon_units import check_epsilon_units
from fedbourse.cli import main
from fedbourse.cli.device_advise import chart
from fedbourse.cli.device_deals import deal_facts
from fedbourse.cli.output import print_blocks
from fedbourse.learning.records import Records
from fedbourse.privacy.loss import PrivacyLoss
from fedbourse.privacy.zcdp import epsilon
from fedbourse.protocol.connection import Connection
from fedbourse.tasks.card import TaskCard
from fedbourse.tasks.evidence import reference_file, reference_hash
from fedbourse.tasks.held_pay import held_pay
from fedbourse.tasks.incentives import UPFRONT_INCENTIVE

TUTORIAL = "docs/tutorial/be-paid-for-your-data.md"
ROUNDS = 6
LAYOUT = {
    "columns": [{"name": "height", "shift": 170.0, "scale": 10.0}],
    "label": "kind",
    "classes": ["cat", "dog"],
}
DEADLINES = {
    "interest_s": 600,
    "tick_s": 30,
    "plans_s": 120,
    "terms_s": 60,
    "review_s": 0,
    "round_s": 60,
}
TASK_CARD = CARD | {"rounds": ROUNDS, "layout": LAYOUT, "deadlines": DEADLINES}


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    with running_market(tmp_path_factory.mktemp("device") / "market") as running:
        yield running


@pytest.fixture
def cli(capsys):
    """Run a command that needs no market's address; return its code and what it printed."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*map(str, arguments)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def refused(cli):
    """Return the code and the one sentence of a command that must fail."""

    def run(*arguments: object) -> tuple[int, str]:
        code, out, err = cli(*arguments)
        assert code != 0, out
        assert err.startswith("fedbourse: ")
        assert len(err.strip().splitlines()) == 1, err
        return code, err

    return run


@pytest.fixture
def shell(capsys, market):
    return Shell(capsys, market.url)


class World:
    """A buyer, and devices that are enrolled, in one folder."""

    def __init__(self, shell, market, folder, cli) -> None:
        self.shell, self.market, self.folder, self._cli = shell, market, folder, cli
        self._name = f"{folder.name}".replace("_", "-")[-20:].strip("-.")
        self.buyer_party = f"buyer:{self._name}"
        self.buyer = new_token(shell, market, self.buyer_party, folder)
        paid_in(
            shell,
            market,
            self.buyer,
            party=self.buyer_party,
            credits="50",
            reference=f"pay-{self._name}",
        )

    def device(self, name: str, *options: object, value: float = 1.0):
        """Make a device with records, and enrol it."""
        folder, table = self.folder / name, self.folder / f"{name}.csv"
        heights = 170 + 10 * np.random.default_rng(list(name.encode())).normal(size=150)
        rows = [f"{i},{h:.1f},{'dog' if h > 170 else 'cat'}" for i, h in enumerate(heights)]
        table.write_text("\n".join(["id,height,kind", *rows]) + "\n")
        made = ("init", "--value", value, "--lifetime-cap", 5, "--data", table, *options)
        assert self("device", *made, "--folder", folder)
        self.enrol(folder, name)
        return folder

    def enrol(self, folder, name: str) -> None:
        token = self.folder / f"{name}.enrolment"
        named = ("--owner", f"owner:{name}-{self._name}"[:60], "--out", token)
        self.shell.json("token", "enrol", *named, token=self.market.operator)
        self("device", "enrol", self.market.url, token, "--folder", folder)

    def __call__(self, *arguments: object):
        code, out, err = self._cli(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    def task(self, card: dict = TASK_CARD) -> str:
        file = self.folder / "card.json"
        file.write_text(json.dumps(card))
        task = self.shell.json("task", "create", file, token=self.buyer)["task"]
        self.shell.json("task", "open", task, token=self.buyer)
        return task

    def announce(self, task: str) -> None:
        self.shell.json("task", "announce", task, token=self.buyer)

    def completed(self, *folders, card: dict = TASK_CARD) -> str:
        """Carry out a whole task."""
        task = self.task(card)
        for folder in folders:
            self("device", "join", task, "--no-wait", "--folder", folder)
        self.announce(task)
        with started(*(("run", "--folder", folder) for folder in folders)) as running:
            for process in running:
                assert process.wait(timeout=WAIT_S) == 0, process.stderr.read()
        return task


@contextmanager
def started(*commands):
    """Start commands of devices, and end them with the block."""
    running = [
        subprocess.Popen(
            command("device", *each, "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for each in commands
    ]
    try:
        yield running
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.communicate()


def wait_for(process, kind: str, count: int = 1) -> None:
    """Read a device's progress until something has happened so often."""
    for line in process.stderr:
        count -= json.loads(line)["event"] == kind
        if not count:
            return
    raise AssertionError(f"it ended before {kind}")


@pytest.fixture
def world(shell, market, tmp_path, cli):
    return World(shell, market, tmp_path, cli)


# init


def test_a_folder_is_for_its_owner_alone_whatever_the_umask(cli, tmp_path) -> None:
    before = os.umask(0)
    try:
        folder = tmp_path / "device"
        code, out, _ = cli(
            "device", "init", "--value", 1.5, "--lifetime-cap", 2, "--folder", folder
        )
    finally:
        os.umask(before)
    assert code == 0
    loss = PrivacyLoss.of(2, samples=1000)
    assert f"2 rho, which is {loss} (in tasks of 1,000 records), at delta 1e-5" in out
    check_epsilon_units(out)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert {"device.json", "device.key", "spend.db"} <= {file.name for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_cap_can_be_an_epsilon(cli, tmp_path) -> None:
    named = ("--lifetime-epsilon", 3, "--folder", tmp_path / "device", "--json")
    code, out, _ = cli("device", "init", "--value", 1, *named)
    found = json.loads(out)
    assert code == 0
    assert 2.999 < epsilon(rho=found["lifetime_cap"], delta=1e-5) <= 3
    loss = PrivacyLoss.of(found["lifetime_cap"], samples=found["lifetime_samples"])
    assert found | loss.document("lifetime_") == found


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--value 1", "one of them; found none"),
        ("--value 1 --lifetime-cap 1 --lifetime-epsilon 1", "one of them; found both"),
        ("--value 0 --lifetime-cap 1", "value must be"),
        ("--value nan --lifetime-cap 1", "value must be"),
        ("--value 1 --lifetime-cap inf", "lifetime_cap must be"),
        ("--value 1 --lifetime-cap -1", "lifetime_cap must be"),
        ("--value 1 --lifetime-epsilon 1e99", "epsilon must lie between"),
        ("--value 1 --lifetime-epsilon 1 --delta 2", "delta must"),
        ("--value 1 --lifetime-cap 1 --max-unpaid-rounds 0", "max_unpaid_rounds must be"),
        ("--value 1 --lifetime-cap 1 --min-price -1", "min_price must be"),
        ("--value 1 --lifetime-cap 1 --accept-evidence like", "accept-evidence"),
        ("--value 1 --lifetime-cap 1 --max-held-rounds 0", "max_held_rounds must be"),
        ("--value 1 --lifetime-cap 1 --only-buyer ann", "this is for buyer:NAME"),
        ("--value 1 --lifetime-cap 1 --data nothing.csv", "nothing.csv cannot be read"),
        ("--value 1 --lifetime-cap 1 --data data.txt", "--data must be a .csv"),
        ("--value 1 --lifetime-cap 1 --noise fast", "--noise"),
        ("--lifetime-cap 1", "--value"),
    ],
)
def test_wrong_settings_make_no_folder(refused, tmp_path, options, sentence) -> None:
    folder = tmp_path / "device"
    code, said = refused("device", "init", *options.split(), "--folder", folder)
    assert (code, sentence in said) == (2, True), said
    assert not folder.exists()


def test_a_device_is_never_overwritten_and_strangers_files_are_left_alone(
    refused, cli, tmp_path
) -> None:
    init = ("device", "init", "--value", 1, "--lifetime-cap", 1, "--folder")
    assert cli(*init, tmp_path / "one")[0] == 0
    key = (tmp_path / "one" / "device.key").read_bytes()
    assert refused(*init, tmp_path / "one")[0] == 5
    assert (tmp_path / "one" / "device.key").read_bytes() == key
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "letter.txt").write_text("mine")
    assert "letter.txt" in refused(*init, tmp_path / "two")[1]
    assert refused(*init, tmp_path / "two" / "letter.txt")[0] == 5


def test_a_second_folder_over_the_same_data_needs_a_separate_cap(
    refused, cli, tmp_path, state_folder
) -> None:
    table = tmp_path / "records.csv"
    table.write_text("height,kind\n1,cat\n")
    init = ("device", "init", "--value", 1, "--lifetime-cap", 1, "--data")
    code, out, _ = cli(*init, table, "--folder", tmp_path / "one")
    assert code == 0
    assert "remembered: another folder over the same data is refused" in out
    code, said = refused(*init, f"{table}:kind", "--folder", tmp_path / "two")
    assert (code, f"already guarded by the device folder {tmp_path}/one" in said) == (11, True)
    assert not (tmp_path / "two").exists()
    code, out, _ = cli(*init, table, "--separate-cap", "--folder", tmp_path / "two")
    assert code == 0
    assert "under a cap of its own" in out
    (state_folder / "data-registry.json").write_text("{")
    code, said = refused(*init, table, "--folder", tmp_path / "three")
    assert (code, "data-registry.json is damaged" in said) == (2, True)


def test_without_a_file_it_is_said_that_nothing_is_remembered(cli, tmp_path) -> None:
    init = ("device", "init", "--value", 1, "--lifetime-cap", 1, "--folder", tmp_path / "device")
    assert "nothing remembers which" in cli(*init)[1]


@pytest.mark.parametrize("name", ["tasks", "advise latest", "run", "ledger", "verify latest"])
def test_a_folder_that_is_none_is_said_to_be_none(refused, tmp_path, name) -> None:
    code, said = refused("device", *name.split(), "--folder", tmp_path / "nothing")
    assert code == 10
    assert "fedbourse device init makes one" in said


def test_a_damaged_folder_is_said_to_be_damaged(refused, cli, tmp_path) -> None:
    folder = tmp_path / "device"
    cli("device", "init", "--value", 1, "--lifetime-cap", 1, "--folder", folder)
    (folder / "spend.db").write_bytes(b"not a database, but long enough to be read as one" * 99)
    assert refused("device", "ledger", "--folder", folder)[0] == 2
    (folder / "device.json").write_text('{"version": 1')
    assert "is damaged" in refused("device", "ledger", "--folder", folder)[1]


# enrol


def test_tokens_come_from_files_and_work_once(world, refused, tmp_path) -> None:
    folder = world.device("ann")
    used = tmp_path / "ann.enrolment"
    enrol = ("device", "enrol", world.market.url)
    other = tmp_path / "other"
    world("device", "init", "--value", 1, "--lifetime-cap", 1, "--folder", other)
    assert refused(*enrol, used, "--folder", other)[0] in (8, 9, 10, 11)
    code, said = refused(*enrol, "fbe_secretsecret", "--folder", folder)
    assert code == 2
    assert "secretsecret" not in said
    secret = used.read_text().strip()
    (tmp_path / "wrong").write_text(secret[:-1] + ("A" if secret[-1] != "A" else "B"))
    code, said = refused(*enrol, tmp_path / "wrong", "--folder", other)
    assert (code, secret[4:] in said) == (8, False), said
    (tmp_path / "two").write_text("one two")
    assert "one token and nothing else" in refused(*enrol, tmp_path / "two", "--folder", folder)[1]
    assert refused(*enrol, tmp_path / "missing", "--folder", folder)[0] == 2


def test_a_market_that_does_not_answer_is_said_not_to(refused, cli, tmp_path) -> None:
    folder, token = tmp_path / "device", tmp_path / "token"
    cli("device", "init", "--value", 1, "--lifetime-cap", 1, "--folder", folder)
    token.write_text("fbe_something")
    named = ("http://127.0.0.1:9", token, "--folder", folder)
    assert refused("device", "enrol", *named)[0] == 14
    assert refused("device", "tasks", "--folder", folder)[0] == 10  # enrolled nowhere


# tasks and advise


def test_tasks_say_what_is_asked_and_whether_it_was_joined(world, cli) -> None:
    folder, task = world.device("ann"), world.task()
    (row,) = (r for r in world("device", "tasks", "--folder", folder)["tasks"] if r["task"] == task)
    assert (row["samples"], row["rounds"], row["deal"]) == (100, ROUNDS, None)
    world("device", "join", task, "--no-wait", "--folder", folder)
    (row,) = (r for r in world("device", "tasks", "--folder", folder)["tasks"] if r["task"] == task)
    assert row["deal"] == "joined"
    out = cli("device", "tasks", "--folder", folder, "--state", "all")[1]
    assert task in out


def test_the_best_reply_is_marked_and_no_other_budget_is_better(world, cli) -> None:
    folder, task = world.device("ann", value=1.3), world.task()
    found = world("device", "advise", task, "--folder", folder)
    best = found["best"]
    assert best in found["choices"]
    assert best["utility"] == max(choice["utility"] for choice in found["choices"])
    for choice in found["choices"]:
        assert choice["utility"] == pytest.approx(choice["pay"] - 1.3 * choice["budget"])
        assert choice["cap_share"] == choice["budget"] / 5
        loss = PrivacyLoss.of(choice["budget"], samples=100)
        assert choice | loss.document() == choice
    asked = world("device", "advise", task, "--budgets", "0.1,0.2", "--folder", folder)
    assert {0.1, 0.2, best["budget"]} == {choice["budget"] for choice in asked["choices"]}
    out = cli("device", "advise", "latest", "--folder", folder)[1]
    assert "best" in out
    assert found["basis"] in out
    assert str(PrivacyLoss.of(best["budget"], samples=100)) in out
    assert "not the ratio of two epsilons" in out
    check_epsilon_units(out)


@pytest.mark.parametrize("budgets", ["", "a", "0.1,,0.2", "nan", "-1", "inf"])
def test_wrong_budgets_are_refused(world, refused, budgets) -> None:
    folder, task = world.device("ann"), world.task()
    asked = ("--budgets", budgets) if not budgets.startswith("-") else (f"--budgets={budgets}",)
    assert refused("device", "advise", task, *asked, "--folder", folder)[0] == 2


def test_a_chart_uses_the_letters_that_the_terminal_has(world) -> None:
    from fedbourse.device import Agent

    folder, task = world.device("ann"), world.task()
    with Agent(folder, read_only=True) as agent:
        advice = agent.advise(task)
    for encoding, best in (("utf-8", "▲"), ("ascii", "^"), ("latin-1", "^"), ("none", "^")):
        lines = chart(advice, encoding=encoding)
        assert max(map(len, lines)) < 100
        assert best in lines[-2]
        if encoding == "ascii":
            "".join(lines).encode("ascii")


# join, run, ledger, verify


def test_from_joining_to_the_last_receipt(world, cli) -> None:
    ann, bob = world.device("ann"), world.device("bob", value=1.2)
    task = world.task()
    with started(*(("join", task, "--folder", each) for each in (ann, bob))) as joining:
        for process in joining:
            wait_for(process, "registered")
        world.announce(task)
        signed = [json.loads(process.communicate(timeout=WAIT_S)[0]) for process in joining]
    assert [deal["state"] for deal in signed] == ["signed", "signed"]
    assert sum(deal["payment_micro"] for deal in signed) == 3_000_000
    with started(("run", "--folder", bob)):
        done = world("device", "run", "--folder", ann)
    assert done["stopped"] is False
    (deal,) = done["deals"]
    assert (deal["state"], deal["outcome"]) == ("ended", "completed")
    assert deal["delivered"] == deal["receipts"] == ROUNDS
    assert deal["earned_micro"] == deal["payment_micro"] == signed[0]["payment_micro"]
    ledger = world("device", "ledger", task, "--folder", ann)
    assert (
        ledger["deals"][0]["updates"][-1]["receipt"]["receipt"]["earned_micro"]
        == (deal["earned_micro"])
    )
    assert ledger["left"] == pytest.approx(5 - deal["spent"])
    assert ledger["reserved"] == 0
    checks = world("device", "verify", "latest", "--folder", ann)["checks"]
    assert {check["passed"] for check in checks} == {True, None}
    assert [c for c in checks if c["name"].startswith("device's") and c["passed"] is not True] == []
    assert cli("device", "ledger", "--folder", ann)[0] == 0
    assert "not taking part" not in cli("device", "verify", task, "--folder", ann)[1]


def test_the_ledger_composes_tasks_each_with_its_own_number_of_records(world, cli, capsys) -> None:
    ann, bob = world.device("ann"), world.device("bob")
    for samples in (100, 40):
        world.completed(ann, bob, card=TASK_CARD | {"samples": samples})
    ledger = world("device", "ledger", "--folder", ann)
    assert [deal["samples"] for deal in ledger["deals"]] == [100, 40]
    loss = PrivacyLoss.composed((deal["spent"], deal["samples"]) for deal in ledger["deals"])
    for name, value in loss.document("spent_").items():
        assert ledger[name] == pytest.approx(value), name
    for deal in ledger["deals"]:
        sold = PrivacyLoss.of(deal["budget"], samples=deal["samples"])
        assert deal | sold.document() == deal
        print_blocks(deal_facts(deal))  # what run and join print at their end
        screen = capsys.readouterr().out
        assert f"which is {sold}" in screen
        check_epsilon_units(screen)
    assert ledger["lifetime_samples"] == 100
    code, out, _ = cli("device", "ledger", "--folder", ann)
    assert code == 0
    assert f"{ledger['spent'] / 5:.1%} of the cap's rho; {loss}" in out
    assert "not the ratio of two epsilons" in out
    check_epsilon_units(out)


def test_an_old_copy_of_the_folder_is_found_out(world, refused, cli, tmp_path) -> None:
    ann, bob = world.device("ann"), world.device("bob")
    task = world.task()
    for folder in (ann, bob):
        world("device", "join", task, "--no-wait", "--folder", folder)
    world.announce(task)
    with started(("run", "--folder", ann), ("run", "--folder", bob)) as running:
        wait_for(running[0], "signed")
        running[0].kill()
        running[0].communicate()
        shutil.copytree(ann, tmp_path / "old")
        with started(("run", "--folder", ann)) as (again,):
            assert again.wait(timeout=WAIT_S) == 0
    assert cli("device", "verify", task, "--folder", ann)[0] == 0
    code, out, err = cli("device", "verify", task, "--folder", tmp_path / "old")
    assert code == 15
    assert "old copy" in " ".join(out.split())
    assert "device's updates" in err


def test_what_the_owner_refuses_is_refused_and_remembered(world, refused) -> None:
    task = world.task()
    wary = world.device("wary", "--refuse-data", "KINDS")
    code, said = refused("device", "join", task, "--folder", wary)
    assert (code, "'KINDS'" in said) == (6, True)
    (refusal,) = world("device", "ledger", "--folder", wary)["refusals"]
    assert (refusal["task"], refusal["reason"]) == (task, "data")
    loyal = world.device("loyal", "--only-buyer", "buyer:nobody")
    assert refused("device", "join", task, "--folder", loyal)[0] == 6
    assert refused("device", "join", task, "--budget", 9, "--folder", world.device("ann"))[0] == 6


def test_upfront_pay_is_joined_only_by_who_accepts_it(world, refused, cli) -> None:
    card = world.folder / "upfront.json"
    card.write_text(json.dumps(TASK_CARD | {"vesting": "upfront"}))
    task = world.shell.json("task", "create", card, token=world.buyer)["task"]
    world.shell.json("task", "open", task, "--confirm-upfront", token=world.buyer)
    wary, daring = world.device("wary"), world.device("daring", "--accept-upfront")
    code, said = refused("device", "join", task, "--folder", wary)
    assert code == 6
    assert "accept_upfront" in said
    _, out, err = cli("device", "join", task, "--no-wait", "--folder", daring)
    assert UPFRONT_INCENTIVE in " ".join(err.split())
    out = " ".join(cli("device", "advise", task, "--folder", daring)[1].split())
    assert f"rules of pay {UPFRONT_INCENTIVE}" in out


def test_evidence_is_joined_only_by_who_accepts_it_and_the_ledger_shows_held_pay(
    world, refused, cli
) -> None:
    heights = np.random.default_rng(5).normal(size=80)
    records = Records(np.column_stack([heights, np.ones(80)]), (heights > 0).astype(float), 2)
    reference = reference_file(records)
    evidence = {"reference": reference_hash(reference), "records": 80, "hold_rounds": 4}
    card = world.folder / "evidence.json"
    card.write_text(json.dumps(TASK_CARD | {"evidence": evidence}))
    file = card.with_suffix(".reference")
    file.write_bytes(reference)
    file.chmod(0o600)
    task = world.shell.json("task", "create", card, token=world.buyer)["task"]
    world.shell.json("task", "open", task, token=world.buyer)
    code, said = refused("device", "join", task, "--folder", world.device("wary"))
    assert code == 6
    assert "accept_evidence is none, and must be any for this card (edit device.json)" in said
    accepting = ("--accept-evidence", "any", "--max-held-rounds")
    short = world.device("short", *accepting, 3)
    assert "max_held_rounds is 3" in refused("device", "join", task, "--folder", short)[1]
    held = held_pay(TaskCard.of(json.loads(card.read_text())))
    ann, bob = (world.device(name, *accepting, 4) for name in ("ann", "bob"))
    advice = world("device", "advise", task, "--folder", ann)
    assert advice["evidence"]["sentence"] == held.sentence
    assert advice["best"]["too_small"] is False
    said = " ".join(cli("device", "advise", task, "--folder", ann)[1].split())
    assert held.sentence in said
    assert f"evidence {held.judging(advice['best']['budget'])}" in said
    err = cli("device", "join", task, "--no-wait", "--folder", ann)[2]
    assert held.sentence in " ".join(err.split())
    world("device", "join", task, "--no-wait", "--folder", bob)
    world.announce(task)
    with started(("run", "--folder", bob)):
        (deal,) = world("device", "run", "--folder", ann)["deals"]
    assert (deal["evidence"]["sentence"], deal["evidence"]["too_small"]) == (held.sentence, False)
    ledger = world("device", "ledger", task, "--folder", ann)
    for money in (ledger, ledger["deals"][0]):
        assert money["held_micro"] == 0  # the task has ended
        assert money["released_micro"] == money["earned_micro"]
        assert money["earned_micro"] + money["forfeited_micro"] == deal["payment_micro"]
    receipts = [each["receipt"]["receipt"] for each in ledger["deals"][0]["updates"]]
    before = [0] * 4 + [receipts[3]["earned_micro"]] * 2
    assert [each["held_micro"] for each in receipts] == [
        each["earned_micro"] - released for each, released in zip(receipts, before, strict=True)
    ]
    assert all(word in cli("device", "ledger", "--folder", ann)[1] for word in ("held", "released"))


def test_the_settings_that_the_tutorial_names_are_in_the_folder(cli, tmp_path) -> None:
    folder, page = tmp_path / "device", Path(__file__).parents[2] / TUTORIAL
    options = ("--accept-evidence", "any-class-mixture", "--max-held-rounds", 3)
    made = ("device", "init", "--value", 1, "--lifetime-cap", 1, "--folder", folder, *options)
    assert cli(*made)[0] == 0
    limits = json.loads((folder / "device.json").read_text())["limits"]
    assert (limits["accept_evidence"], limits["max_held_rounds"]) == ("any-class-mixture", 3)
    for name in ("accept_evidence", "max_held_rounds", options[0], options[2]):
        assert f"`{name}`" in page.read_text()


@pytest.mark.parametrize(
    "options",
    ["--budget much", "--budget nan", "--budget 0", "--max-epsilon 0", "--max-epsilon nan"],
)
def test_wrong_bidding_options_are_refused(world, refused, options) -> None:
    folder, task = world.device("ann"), world.task()
    assert refused("device", "join", task, *options.split(), "--folder", folder)[0] == 2
    assert world("device", "ledger", "--folder", folder)["deals"] == []


def test_no_more_than_the_largest_epsilon_is_sold(world) -> None:
    ann, bob = world.device("ann"), world.device("bob")
    task = world.task()
    world("device", "join", task, "--max-epsilon", 1, "--no-wait", "--folder", ann)
    world("device", "join", task, "--no-wait", "--report-value", "--folder", bob)
    world.announce(task)
    with started(("run", "--folder", ann), ("run", "--folder", bob)) as running:
        for process in running:
            process.communicate(timeout=WAIT_S)
    (deal,) = world("device", "ledger", "--folder", ann)["deals"]
    assert 0 < deal["epsilon_one_record"] <= 1
    assert not deal["value_reported"]
    assert world("device", "ledger", "--folder", bob)["deals"][0]["value_reported"]


def test_an_owner_leaves_and_its_device_stops_by_itself(world, refused, cli) -> None:
    ann, bob, cleo = (world.device(name) for name in ("ann", "bob", "cleo"))
    task = world.task()
    for folder in (ann, bob, cleo):
        world("device", "join", task, "--no-wait", "--folder", folder)
    for _ in range(2):
        deal = world("device", "leave", task, "--folder", ann)
        assert (deal["state"], deal["spent"]) == ("declined", 0)
        assert "left the task" in deal["outcome"]
    code, said = refused("device", "join", task, "--folder", ann)
    assert code == 11
    assert "you have left this task" in said
    code, out, _ = cli("device", "leave", task, "--folder", ann)
    assert code == 0
    assert "the owner left the task: nothing was sold" in " ".join(out.split())
    assert world.shell.json("task", "show", task, token=world.buyer)["interested"] == 2
    assert world("device", "run", "--folder", ann)["deals"] == []
    world.announce(task)
    with started(("run", "--folder", bob), ("run", "--folder", cleo)) as running:
        for process in running:
            assert process.wait(timeout=WAIT_S) == 0, process.stderr.read()
    assert refused("device", "leave", task, "--folder", bob)[0] == 11  # it has ended
    assert refused("device", "leave", "f" * 24, "--folder", bob)[0] == 10
    (left,) = world("device", "ledger", "--folder", ann)["deals"]
    assert left["state"] == "declined"
    assert left["earned_micro"] == 0


def test_a_token_leaves_for_a_device_that_runs(world) -> None:
    ann, bob, cleo = (world.device(name) for name in ("ann", "bob", "cleo"))
    task = world.task()
    for folder in (ann, bob, cleo):
        world("device", "join", task, "--no-wait", "--folder", folder)
    owner = world("device", "ledger", "--folder", ann)["deals"][0]["owner"]
    token = new_token(world.shell, world.market, owner, world.folder)
    with started(("run", "--folder", ann)) as (running,):
        wait_for(running, "following")
        with Connection(world.market.url, token=token.read_text().strip()) as line:
            assert line.delete(f"/v1/tasks/{task}/interest")["owner"] == owner
        world.announce(task)
        assert running.wait(timeout=WAIT_S) == 0, running.stderr.read()
    (left,) = world("device", "ledger", "--folder", ann)["deals"]
    assert left["state"] == "declined"
    assert "left the task" in left["outcome"]


def test_a_task_that_is_not_open_or_not_there_cannot_be_joined(world, refused) -> None:
    ann, bob = world.device("ann"), world.device("bob")
    task = world.completed(ann, bob)
    late = world.device("late")
    assert refused("device", "join", task, "--folder", late)[0] == 11
    assert refused("device", "join", "f" * 24, "--folder", late)[0] == 10
    assert refused("device", "join", "../etc", "--folder", late)[0] == 2
    assert refused("device", "verify", task, "--folder", late)[0] == 10
    assert refused("device", "join", task, "--folder", ann)[0] == 11  # it has ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_run_stops_at_once_loses_nothing_and_goes_on(world, number) -> None:
    ann, bob = world.device("ann"), world.device("bob")
    task = world.task()
    for folder in (ann, bob):
        world("device", "join", task, "--no-wait", "--folder", folder)
    with started(("run", "--folder", ann)) as (waiting,):  # in a long poll: nothing happens
        wait_for(waiting, "following")
        time.sleep(0.5)
        begun = time.monotonic()
        waiting.send_signal(number)
        out, _ = waiting.communicate(timeout=WAIT_S)
        assert time.monotonic() - begun < 10
    assert waiting.returncode == 0
    assert json.loads(out)["stopped"] is True
    world.announce(task)
    with started(("run", "--folder", ann), ("run", "--folder", bob)) as (first, second):
        wait_for(first, "delivered", 2)
        first.send_signal(number)
        (before,) = json.loads(first.communicate(timeout=WAIT_S)[0])["deals"]
        with started(("run", "--folder", ann)) as (again,):
            (after,) = json.loads(again.communicate(timeout=WAIT_S)[0])["deals"]
        second.communicate(timeout=WAIT_S)
    assert 2 <= before["delivered"] <= ROUNDS
    assert after["delivered"] == after["receipts"] == ROUNDS
    assert after["earned_micro"] == after["payment_micro"]


def test_stopping_says_that_nothing_is_lost(world) -> None:
    folder, task = world.device("ann"), world.task()
    world("device", "join", task, "--no-wait", "--folder", folder)
    run = command("device", "run", "--join-open", "--folder", folder)
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(run, **piped) as running:
        try:
            assert any("following" in line for line in running.stderr)
            running.send_signal(signal.SIGINT)
            out, _ = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()  # one that does not stop must not outlive the test
    assert running.returncode == 0
    assert "nothing is lost" in out


def test_others_look_on_while_run_is_running_and_only_one_sells(world, refused, cli) -> None:
    folder, task = world.device("ann"), world.task()
    world("device", "join", task, "--no-wait", "--folder", folder)
    with started(("run", "--folder", folder)) as (running,):
        wait_for(running, "following")
        assert world("device", "ledger", "--folder", folder)["deals"][0]["state"] == "joined"
        assert world("device", "tasks", "--folder", folder)["tasks"]
        assert world("device", "advise", task, "--folder", folder)["best"]
        assert cli("device", "verify", task, "--folder", folder)[0] == 0
        code, said = refused("device", "run", "--folder", folder)
        assert (code, "in use by another process" in said) == (6, True)


def test_run_waits_for_a_market_that_is_away(tmp_path, capsys, cli) -> None:
    with running_market(tmp_path / "market") as market:
        world = World(Shell(capsys, market.url), market, tmp_path, cli)
        folder, task = world.device("ann"), world.task()
        world("device", "join", task, "--no-wait", "--folder", folder)
        port = int(market.url.rsplit(":", 1)[1])
    with started(("run", "--folder", folder)) as (running,):
        wait_for(running, "unreachable")
        with running_market(tmp_path / "market", port=port):
            wait_for(running, "following")
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=WAIT_S) == 0


def test_an_open_task_is_joined_by_itself(world) -> None:
    ann, task = world.device("ann", "--only-buyer", world.buyer_party), world.task()
    with started(("run", "--join-open", "--folder", ann)) as (running,):
        until(
            lambda: any(
                deal["task"] == task for deal in world("device", "ledger", "--folder", ann)["deals"]
            )
        )
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=WAIT_S) == 0
