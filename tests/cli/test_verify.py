"""A task recomputed by whoever asks: all of it, one line of it, or the public log."""

import json

import pytest

from cli.markets import CARD, Shell, new_token, owners, paid_in, running_market, whole_trade
from fedbourse.protocol.connection import Connection


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    with running_market(tmp_path_factory.mktemp("verify") / "market") as running:
        yield running


@pytest.fixture
def shell(capsys, market):
    return Shell(capsys, market.url)


_TRADES: dict[str, str] = {}


@pytest.fixture
def trade(shell, market, tmp_path_factory):
    """One completed trade for all tests of this file."""
    if market.url not in _TRADES:
        folder = tmp_path_factory.mktemp("trade")
        card = folder / "card.json"
        card.write_text(json.dumps(CARD))
        buyer = new_token(shell, market, "buyer:acme", folder)
        paid_in(shell, market, buyer, party="buyer:acme", credits="10", reference="all")
        with owners(shell, market, "ann", "bob", "cat", "dan") as people:
            _TRADES[market.url] = whole_trade(shell, buyer, card, people)
    return _TRADES[market.url]


def checks(shell, task, token=None) -> dict[str, bool | None]:
    found = shell.json("verify", task, token=token)
    assert found["task"] == task
    return {check["name"]: check["passed"] for check in found["checks"]}


def test_an_auditor_recomputes_everything(shell, market, trade, tmp_path) -> None:
    for token in (new_token(shell, market, "auditor:kay", tmp_path), market.operator):
        found = checks(shell, trade, token)
        assert len(found) >= 10
        assert False not in found.values()
        assert None not in found.values()


def test_an_owner_recomputes_its_own_line_and_a_stranger_the_log(
    shell, market, trade, tmp_path
) -> None:
    own = checks(shell, trade, new_token(shell, market, "owner:ann", tmp_path))
    assert {own["own allocation"], own["own payment"], own["own earnings"]} == {True}
    stranger = checks(shell, trade)
    assert False not in [*own.values(), *stranger.values()]
    assert list(stranger.values()).count(None) >= 5
    assert sum(passed is True for passed in own.values()) > sum(
        passed is True for passed in stranger.values()
    )
    code, out, _ = shell("verify", trade)
    assert code == 0
    assert "it takes an auditor's token" in " ".join(out.split())
    assert "not checked" in out


@pytest.mark.parametrize("items", ["entries", "events", "owners"])
def test_what_differs_is_named_and_ends_with_15(shell, market, trade, monkeypatch, items) -> None:
    real = Connection.pages

    def forged(connection, path, what, *rest, **options):
        found = list(real(connection, path, what, *rest, **options))
        if what == items == "entries":
            found[-1]["amount"] += 1
        if what == items == "events":
            settled = next(event for event in found if event["kind"] == "settled")
            settled["body"]["allocations"] += 1
        if what == items == "owners":
            found[0]["allocation"]["payment_micro"] += 1
        return iter(found)

    monkeypatch.setattr(Connection, "pages", forged)
    code, out, err = shell("verify", trade, token=market.operator)
    assert code == 15
    assert "DIFFERS" in out
    assert "checks differ: " in err
    code, out, _ = shell("verify", trade, "--json", token=market.operator)
    assert code == 15
    assert False in [check["passed"] for check in json.loads(out)["checks"]]


def test_wrong_input_gets_one_sentence(shell, tmp_path, trade) -> None:
    (tmp_path / "wrong").write_text("fbt_" + "x" * 43)
    assert shell.refused("verify", trade, token=tmp_path / "wrong")[0] == 8
    assert shell.refused("verify", "0" * 24)[0] == 10
    assert shell.refused("verify", "task")[0] == 2


def test_the_books_are_recomputed_for_auditors_only(shell, market, trade, tmp_path) -> None:
    found = checks(shell, "books", market.operator)
    assert found == {"transfers": True, "balances": True, "conservation": True}
    buyer = new_token(shell, market, "buyer:bell", tmp_path)
    code, sentence = shell.refused("verify", "books", token=buyer)
    assert code == 9
    assert "auditor" in sentence


def test_the_head_of_a_verified_log_is_kept_and_compared(shell, market, trade, tmp_path) -> None:
    file = tmp_path / "heads.json"
    found = shell.json("verify", trade, "--save-seen", file, token=market.operator)["checks"]
    assert [check["passed"] for check in found[-2:]] == [True, True]
    assert len(found) > 10
    for target in ("log", trade):
        found = shell.json("verify", target, "--seen", file)["checks"]
        assert [check["name"] for check in found] == ["market's log", f"log of {trade}"]
        assert all(check["detail"].startswith("extends what was seen") for check in found)
    assert "--seen" in shell.refused("verify", "books", "--seen", file, token=market.operator)[1]
