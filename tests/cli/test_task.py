"""A buyer's tasks from the command line, against a market that runs for real."""

import json
import os
import signal
import subprocess

import numpy as np
import pytest

from cli.markets import (
    CARD,
    WAIT_S,
    Shell,
    command,
    new_token,
    owners,
    paid_in,
    running_market,
    whole_trade,
)
from fedbourse.cli import main
from fedbourse.tasks.card import TaskCard
from fedbourse.tasks.incentives import UNEARNED_INCENTIVES, UPFRONT_INCENTIVE


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    with running_market(tmp_path_factory.mktemp("task") / "market") as running:
        yield running


@pytest.fixture
def shell(capsys, market):
    return Shell(capsys, market.url)


@pytest.fixture
def card(tmp_path):
    file = tmp_path / "card.json"
    file.write_text(json.dumps(CARD))
    return file


@pytest.fixture
def acme(shell, market, tmp_path):
    """A buyer with money enough for the task of a test."""
    token = new_token(shell, market, "buyer:acme", tmp_path)
    reference = f"test-{tmp_path.name}"[:100].strip("-_").replace("_", "-")
    paid_in(shell, market, token, party="buyer:acme", credits="20", reference=reference)
    return token


def test_a_buyer_s_first_day(shell, market, acme, card) -> None:
    """serve, token, a payment, deposit, card, open, list, cancel, refund, verify, statement."""
    paid_in(shell, market, acme, party="buyer:acme", credits="20", reference="first-day")
    held = shell.json("account", "balance", token=acme)["balance_micro"]
    task = shell.json("task", "create", card, token=acme)
    name = task["task"]
    assert (task["state"], task["card"]) == ("draft", TaskCard.of(CARD).digest)
    assert shell.refused("task", "show", name)[0] == 10  # a draft is nobody else's to see
    assert shell.json("task", "open", name, token=acme)["state"] == "open"
    assert shell.json("account", "balance", f"escrow:{name}", token=acme)["balance_micro"] == 3e6
    listed = shell.json("task", "list", "--state", "open")["tasks"]
    assert name in [each["task"] for each in listed]
    with owners(shell, market, "day-ann", "day-bob") as people:
        for owner in people:
            owner.like(task)
    code, out, _ = shell("task", "announce", name, token=acme)
    assert code == 0
    assert f"task {name} is announced until" in out
    ended = shell.json("task", "cancel", name, "--reason", "no time", token=acme)
    assert ended["state"] == "cancelled"
    assert shell.json("account", "balance", token=acme)["balance_micro"] == held
    code, out, _ = shell("verify", name, token=acme)
    assert code == 0
    assert "DIFFERS" not in out
    code, out, _ = shell("account", "statement", token=acme)
    assert "-3.000000" in out
    assert "+3.000000" in out


def test_a_whole_trade_ends_with_a_model(shell, market, acme, card, tmp_path) -> None:
    paid_in(shell, market, acme, party="buyer:acme", credits="10", reference="whole")
    with owners(shell, market, "ann", "bob", "cat", "dan") as people:
        name = whole_trade(shell, acme, card, people)
    report = shell.json("task", "report", name, token=acme)
    states = {"offered": 0, "signed": 2, "declined": 0, "dismissed": 0}
    assert report["participants"] == states
    assert (report["out"]["struck_out"], report["restarts"]) == (1, 1)
    assert report["settlement"]["converged"]
    money = {"held": 3_000_000, "released": 0, "refunded": 0, "fund": 0, "escrow": 0}
    assert report["money_micro"] == money | {"earned": 3_000_000}  # all of R is allocated
    code, out, _ = shell("task", "report", name, token=acme)
    assert code == 0
    out = " ".join(out.split())
    assert "2 signed, 0 declined" in out
    assert "1 declined or did not sign" in out
    assert "discovered again once, without those who did not sign" in out
    assert "3.000000 earned by owners, 0.000000 refunded, 0.000000 to the fund" in out
    shown = " ".join(shell("task", "show", name)[1].split())
    for words in (
        f"settled at tick {report['settlement']['tick']}, converged; no owner could gain more than",
        "by another budget while the others keep theirs",
        UNEARNED_INCENTIVES["fund"],
        "fund account fund, paid out to nobody yet",
        "reserved 3.000000 credits when it opened",
    ):
        assert words in shown
    file = tmp_path / "model.npy"
    said = shell.json("task", "model", name, "--out", file, token=acme)
    assert said["dimension"] == 2
    assert np.load(file).shape == (2,)
    code, out, _ = shell("task", "watch", name)
    assert code == 0
    kinds = [line.split()[3] for line in out.splitlines()]
    assert kinds[:3] == ["created", "opened", "announced"]
    assert [kind for kind in kinds if kind not in ("ticked", "last-tick", "round")][3:] == [
        "settled", "restarted", "settled", "signed", "training", "completed",
    ]  # fmt: skip
    assert "3.000000 credits are reserved" in out
    assert "R 3.000000 credits, as the card says; 0.000000 released; P " in out
    assert "1 did not sign and are out; the price is discovered again" in out
    assert "all have signed; training starts at" in out
    assert "2 owners train, started by the buyer" in out
    assert "0.000000 refunded, 0.000000 to the fund credits" in out
    assert all(line.split(maxsplit=4)[4] for line in out.splitlines()), "an event without words"


def test_a_card_of_equal_lots(tmp_path, capsys) -> None:
    file = tmp_path / "card.json"
    lots = ["--compensation", "clock", "--lot", "0.02"]
    assert main(["task", "card", *lots, "--out", str(file)]) == 0
    assert "everybody sells the same lot or nothing" in " ".join(capsys.readouterr().out.split())
    card = TaskCard.of(json.loads(file.read_text()))
    assert (card.compensation, card.min_budget, card.max_rho) == ("clock", 0.02, 0.02)
    assert main(["task", "card", "--compensation", "clock"]) == 2
    assert "--lot and --compensation clock go together" in capsys.readouterr().err


def test_upfront_pay_must_be_confirmed(shell, market, acme, tmp_path) -> None:
    paid_in(shell, market, acme, party="buyer:acme", credits="10", reference="upfront")
    file = tmp_path / "upfront.json"
    file.write_text(json.dumps(CARD | {"vesting": "upfront"}))
    code, out, _ = shell("task", "create", file, token=acme)
    assert code == 0
    assert UPFRONT_INCENTIVE in " ".join(out.split())
    code, said = shell.refused("task", "open", "latest", token=acme)
    assert code == 11
    assert UPFRONT_INCENTIVE in said
    assert "--confirm-upfront" in said
    opened = shell.json("task", "open", "latest", "--confirm-upfront", token=acme)
    assert opened["state"] == "open"
    shell.json("task", "cancel", opened["task"], token=acme)


def test_a_task_needs_its_money_when_it_opens(shell, market, card, tmp_path) -> None:
    poor = new_token(shell, market, "buyer:poor", tmp_path)
    shell.json("task", "create", card, token=poor)
    code, said = shell.refused("task", "open", "latest", token=poor)
    assert code == 2
    assert "opening a task reserves its whole reward, 3.000000 credits" in said


@pytest.mark.parametrize("rule", [*UNEARNED_INCENTIVES, "upfront"])
def test_an_example_card_has_the_rules_that_were_asked_for(rule, tmp_path, capsys) -> None:
    file = tmp_path / "card.json"
    rules = ["--vesting", rule] if rule == "upfront" else ["--unearned", rule]
    bounds = ["--cost", "linear", "--min-budget", "0.01", "--min-total-budget", "0.5"]
    assert main(["task", "card", *rules, *bounds, "--review-s", "0", "--out", str(file)]) == 0
    sentence = (UNEARNED_INCENTIVES | {"upfront": UPFRONT_INCENTIVE})[rule]
    assert sentence in " ".join(capsys.readouterr().out.split())
    card = TaskCard.of(json.loads(file.read_text()))
    assert rule in (card.vesting, card.unearned)
    assert (card.cost, card.min_budget, card.min_total_budget) == ("linear", 0.01, 0.5)
    assert card.deadlines.review_s == 0
    assert main(["task", "card", "--min-budget", "11"]) == 2
    assert "min_budget must be" in capsys.readouterr().err


def test_a_buyer_asks_what_rewards_would_buy(shell, market, acme, tmp_path) -> None:
    file = tmp_path / "assuming.json"
    file.write_text(json.dumps(CARD | {"assumptions": {"accuracy_value": 20.0}}))
    draft = shell.json("task", "create", file, token=acme)["task"]
    asked = ("task", "what-if", draft, "--rewards", "1:20:20", "--owners", "500")
    found = shell.json(*asked, token=acme)
    assert (found["basis"], found["owners"]) == ("assumed", 500)
    assert found["rewards"] == [float(n) for n in range(1, 21)]
    by_list = ("task", "what-if", draft, "--rewards", "2,20", "--owners", "500")
    two = shell.json(*by_list, token=market.operator)
    assert two["total_budgets"] == [found["total_budgets"][1], found["total_budgets"][19]]
    code, out, _ = shell(*asked, token=acme)
    assert code == 0
    assert "500 owners with values spread evenly over 1 to 5: as asked for" in " ".join(out.split())
    for model in found["models"]:
        assert f"best by {model['model']}" in out


def test_watching_shows_events_as_they_happen_and_ends_with_the_task(
    shell, market, acme, card
) -> None:
    name = shell.json("task", "create", card, token=acme)["task"]
    shell.json("task", "open", name, token=acme)
    watch = command("task", "watch", name, "--json", "--server", market.url)
    with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as process:
        seen = [json.loads(process.stdout.readline())["kind"] for _ in range(2)]
        shell.json("task", "cancel", name, token=acme)
        out, _ = process.communicate(timeout=WAIT_S)
    seen += [json.loads(line)["kind"] for line in out.splitlines()]
    assert seen == ["created", "opened", "cancelled"]
    assert process.returncode == 0
    later = shell("task", "watch", name, "--after", "1", "--json")[1]
    assert [json.loads(line)["kind"] for line in later.splitlines()] == ["cancelled"]


def test_watching_can_be_interrupted(shell, market, acme, card) -> None:
    name = shell.json("task", "create", card, token=acme)["task"]
    shell.json("task", "open", name, token=acme)
    watch = command("task", "watch", name, "--server", market.url)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(watch, **pipes) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert err == "fedbourse: interrupted\n"
    shell.json("task", "cancel", name, token=acme)


def test_watching_goes_on_where_it_broke_off_when_the_market_starts_again(
    tmp_path, capsys, card
) -> None:
    folder = tmp_path / "market"
    with running_market(folder) as first:
        shell = Shell(capsys, first.url)
        token = new_token(shell, first, "buyer:acme", tmp_path)
        paid_in(shell, first, token, party="buyer:acme", credits="3", reference="first")
        name = shell.json("task", "create", card, token=token)["task"]
        shell.json("task", "open", name, token=token)
        watch = command("task", "watch", name, "--json", "--server", first.url)
        with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as process:
            try:
                seen = [json.loads(process.stdout.readline())["sequence"] for _ in range(2)]
                assert first.stop() == (0, "")  # the stream does not hold it up
                with running_market(folder, port=first.url.rsplit(":", maxsplit=1)[1]):
                    shell.json("task", "cancel", name, token=token)
                    out, _ = process.communicate(timeout=WAIT_S)
            finally:
                process.kill()
    assert process.returncode == 0
    assert [*seen, *(json.loads(line)["sequence"] for line in out.splitlines())] == [0, 1, 2]


def test_an_example_card_can_be_published_as_it_is(shell, acme, tmp_path, capsys) -> None:
    file = tmp_path / "example.json"
    assert main(["task", "card", "--out", str(file)]) == 0
    assert "an example card is in" in capsys.readouterr().out
    assert main(["task", "card", "--out", str(file)]) == 5  # it may have been edited
    capsys.readouterr()
    assert main(["task", "card"]) == 0
    out, err = capsys.readouterr()
    assert out == file.read_text()
    assert UNEARNED_INCENTIVES["fund"] in err
    assert shell.json("task", "create", file, token=acme)["state"] == "draft"


def test_the_latest_task_need_not_be_named(shell, acme, card) -> None:
    name = shell.json("task", "create", card, token=acme)["task"]
    assert shell.json("task", "show", "latest", token=acme)["task"] == name
    code, out, _ = shell("task", "show", "latest", token=acme)
    assert code == 0
    assert "Tell two kinds of things apart." in out
    assert "interest_s 86400" in out


def test_a_card_can_be_made_to_fit_the_buyers_own_records(shell, acme, tmp_path, capsys) -> None:
    table, file = tmp_path / "mine.csv", tmp_path / "card.json"
    rows = [f"{i % 13},{i},{'late' if i % 13 > 6 else 'on time'}" for i in range(300)]
    table.write_text("\n".join(["gate,number,arrival", *rows]))
    assert main(["task", "card", "--data", f"{table}:arrival", "--out", str(file)]) == 0
    told, made = capsys.readouterr().out, json.loads(file.read_text())
    assert [column["name"] for column in made["layout"]["columns"]] == ["gate", "number"]
    assert made["layout"]["label"] == "arrival"
    assert made["layout"]["classes"] == ["late", "on time"]
    assert made["features"] == 3
    assert shell.json("task", "create", file, token=acme)["state"] == "draft"
    # The accuracies are those of these records (7 of 13 are on time), and never those of flights.
    assumed = made["assumptions"]
    assert assumed["chance"] == pytest.approx(7 / 13, abs=0.1)
    assert assumed["chance"] < assumed["ceiling"] <= 1
    assert f"{assumed['chance']:.1%} by guessing" in told
    given = ["--chance", "0.3", "--ceiling", "0.8"]
    assert main(["task", "card", "--data", f"{table}:arrival", *given]) == 0
    assumed = json.loads(capsys.readouterr().out)["assumptions"]
    assert (assumed["chance"], assumed["ceiling"]) == (0.3, 0.8)
    assert main(["task", "card", "--data", f"{table}:departure"]) == 2
    assert "label column 'departure'" in capsys.readouterr().err


def test_a_card_assumes_nothing_where_records_do_not_tell(tmp_path, capsys) -> None:
    table = tmp_path / "mine.csv"
    # The number tells nothing of the kind.
    rows = [f"{i % 7},{'ab'[i % 5 == 0]}" for i in range(700)]
    table.write_text("\n".join(["number,kind", *rows]))
    assert main(["task", "card", "--data", f"{table}:kind"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["assumptions"] is None
    assert "give --chance, the share of the most frequent class, and --ceiling" in err
    assert main(["task", "card", "--chance", "0.2"]) == 0
    assert json.loads(capsys.readouterr().out)["assumptions"]["chance"] == 0.2


@pytest.mark.parametrize("columns", [None, "80", "30"])
def test_lists_come_page_by_page_and_newest_first(shell, acme, card, columns, monkeypatch) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    made = [shell.json("task", "create", card, token=acme)["task"] for _ in range(3)]
    listed = shell.json("task", "list", "--limit", "3", token=acme)["tasks"]
    assert [task["task"] for task in listed] == made[::-1]
    code, out, _ = shell("task", "list", token=acme)
    assert code == 0
    assert made[0] in out
    assert made[0] not in shell("task", "list")[1]  # nobody else's to see


def test_words_of_strangers_cannot_command_a_terminal(shell, acme, tmp_path) -> None:
    file = tmp_path / "card.json"
    file.write_text(json.dumps(CARD | {"goal": "\x1b]0;owned\x07"}))
    code, _, said = shell("task", "create", file, token=acme)
    assert code == 2
    assert "\x1b" not in said
    assert "\x07" not in said
    file.write_text(json.dumps(CARD | {"goal": "\x9b31m [red]x[/red]"}))
    name = shell.json("task", "create", file, token=acme)["task"]
    for arguments in (["show", name], ["list"]):
        code, out, _ = shell("task", *arguments, token=acme)
        assert code == 0
        assert "\x9b" not in out
    assert "[red]x[/red]" in shell("task", "show", name, token=acme)[1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "UTF-8"),
        (b"[]", "a card must be an object"),
        (b"{}", "a card needs data, model"),
        (json.dumps(CARD | {"colour": 1}).encode(), "a card has no item 'colour'"),
        (json.dumps(CARD | {"rounds": 0}).encode(), "rounds must be"),
        (json.dumps(CARD | {"reward": "much"}).encode(), "reward must be"),
        (json.dumps(CARD | {"dimension": 3}).encode(), "dimension 2; the card says 3"),
        (json.dumps(CARD | {"deadlines": {"tea_s": 1}}).encode(), "deadlines has no item 'tea_s'"),
        (json.dumps(CARD).replace("0.5", "NaN").encode(), "finite"),
        (b" " * (2**20 + 1), "longer than"),
    ],
)
def test_a_card_that_is_none_is_named_with_its_item(shell, tmp_path, content, sentence) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    code, said = shell.refused("task", "create", file)
    assert code == 2
    assert str(file) in said
    assert sentence in said


def test_wrong_input_gets_one_sentence(shell, market, acme, card, tmp_path) -> None:
    draft = shell.json("task", "create", card, token=acme)["task"]
    other = new_token(shell, market, "buyer:rival", tmp_path)
    for arguments, token, code in [
        (["create", tmp_path / "absent.json"], acme, 2),
        (["create", card], None, 8),
        (["create", card], market.operator, 9),
        (["show", "what"], acme, 2),
        (["show", "../tokens"], acme, 2),
        (["show", "0" * 24], acme, 10),
        (["open", draft], other, 10),
        (["announce", draft], acme, 11),
        (["settle", draft], acme, 2),  # there is no such command
        (["train", draft], acme, 11),
        (["report", draft], other, 10),
        (["model", draft, "--out", tmp_path / "m.npy"], acme, 11),
        (["model", draft, "--out", tmp_path / "absent" / "m.npy"], acme, 5),
        (["watch", draft], None, 10),
        (["watch", draft, "--after", "1.5"], acme, 2),
        (["list", "--limit", "0"], acme, 2),
        (["what-if", draft, "--rewards", "1:x:3"], acme, 2),
        (["what-if", draft, "--rewards", "1:9"], acme, 2),
        (["what-if", draft, "--rewards", "0,1"], acme, 2),
        (["what-if", draft, "--rewards", "1:9:201"], acme, 2),
        (["what-if", draft, "--rewards", "1,2", "--owners", "1"], acme, 2),
        (["what-if", draft, "--rewards", "1,2"], other, 10),
        (["what-if", draft, "--rewards", "1,2"], None, 8),
        (["list", "--state", "asleep"], acme, 2),
    ]:
        assert shell.refused("task", *arguments, token=token)[0] == code, arguments
    assert not (tmp_path / "m.npy").exists()


def test_a_file_that_is_no_plain_file_is_written_into_and_links_are_followed(tmp_path) -> None:
    pipe, real, link = (tmp_path / name for name in ("pipe", "real.json", "link.json"))
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert main(["task", "card", "--out", str(pipe)]) == 0
        written = reader.communicate(timeout=60)[0]
    assert json.loads(written)["version"] == 2
    assert pipe.is_fifo()
    link.symlink_to(real)
    assert main(["task", "card", "--out", str(link)]) == 0
    assert link.is_symlink()
    assert real.read_bytes() == written
