"""Money from the command line: exact, counted once, and nobody else's to see."""

import json

import pytest

from cli.markets import Shell, new_token, paid_in, running_market, until


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    with running_market(tmp_path_factory.mktemp("account") / "market") as running:
        yield running


@pytest.fixture
def shell(capsys, market):
    return Shell(capsys, market.url)


@pytest.fixture
def acme(shell, market, tmp_path):
    """A buyer of the test's own."""
    party = f"buyer:{tmp_path.name.replace('_', '-').lower()[-40:].strip('-')}"
    return party, new_token(shell, market, party, tmp_path)


def test_money_comes_in_once_and_goes_out_once(shell, market, acme) -> None:
    party, token = acme
    reference = f"bank-{party.replace(':', '-')}"
    came = paid_in(shell, market, token, party=party, credits="12.5", reference=reference)
    assert (came["amount_micro"], came["balance_micro"]) == (12_500_000, 12_500_000)
    assert came["claimed_before"] is False
    code, out, _ = shell("account", "deposit", reference, token=token)
    assert code == 0
    assert "12.500000 credits" in out
    assert "were claimed before, on 20" in out
    assert "nothing was added" in out
    went = shell.json("account", "withdraw", "2.000001", "--to", "IBAN -1 é", token=token)
    assert went["balance_micro"] == 10_499_999
    file = market.folder / "payments" / "payouts.jsonl"
    until(lambda: file.exists() and went["id"] in file.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    (line,) = [line for line in lines if line["id"] == went["id"]]
    assert (line["credits"], line["destination"], line["party"]) == ("2.000001", "IBAN -1 é", party)

    assert shell.json("account", "balance", token=token) == {
        "party": party,
        "balance_micro": 10_499_999,
        "leaving_micro": 2_000_001,
    }
    entries = shell.json("account", "statement", token=token)["entries"]
    assert [entry["amount"] for entry in entries] == [12_500_000, 2_000_001]
    code, out, _ = shell("account", "statement", party, token=market.operator)
    assert code == 0
    assert "+12.500000" in out
    assert "-2.000001" in out
    assert "10.499999" in out
    code, out, _ = shell("account", "balance", token=token)
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        f"{party} 10.499999 credits",
        "on its way out 2.000001 credits",
    ]

    def state() -> str:
        (payout,) = shell.json("account", "payouts", token=token)["payouts"]
        assert (payout["id"], payout["amount_micro"]) == (went["id"], 2_000_001)
        return payout["state"]

    until(lambda: state() == "sent")
    assert went["id"] in shell("account", "payouts", party, token=market.operator)[1]
    assert went["id"] in shell("payout", "list", token=market.operator)[1]
    assert shell.refused("payout", "confirm", went["id"], token=token)[0] == 9
    code, out, _ = shell("payout", "confirm", went["id"], token=market.operator)
    assert out.split() == [
        *f"pay-out {went['id']}: 2.000001 credits of {party} have arrived".split()
    ]
    assert state() == "confirmed"
    code, sentence = shell.refused("payout", "return", went["id"], token=market.operator)
    assert code == 11
    assert "is confirmed, which nothing may follow" in sentence
    assert shell.refused("payout", "confirm", "abc", token=market.operator)[0] == 2


def test_a_payout_that_is_given_up_comes_back(shell, market, acme) -> None:
    party, token = acme
    reference = f"back-{party.replace(':', '-')}"
    paid_in(shell, market, token, party=party, credits="3", reference=reference)
    went = shell.json("account", "withdraw", "2", "--to", "IBAN", token=token)["id"]
    until(lambda: shell.json("account", "payouts", token=token)["payouts"][0]["state"] == "sent")
    told = ("payout", "return", went, "--reason", "no such IBAN")
    assert "2.000000 credits are back with" in shell(*told, token=market.operator)[1]
    held = shell.json("account", "balance", token=token)
    assert (held["balance_micro"], held["leaving_micro"]) == (3_000_000, 0)
    assert "no such IBAN" in shell("account", "payouts", token=token)[1]


def test_the_operator_sets_the_least_withdrawal(shell, acme) -> None:
    code, sentence = shell.refused("account", "withdraw", "0.009", "--to", "x", token=acme[1])
    assert code == 2
    assert "a withdrawal must be of at least 0.010000 credits; found 0.009000" in sentence


def test_the_fund_is_everybodys_to_see_and_nobodys_to_take(shell, market, acme) -> None:
    _, token = acme
    assert shell.json("account", "balance", "fund", token=token) == {
        "party": "fund",
        "balance_micro": 0,
        "leaving_micro": 0,
    }
    assert shell.json("account", "statement", "fund", token=token)["entries"] == []
    named = ("--party", "fund", "--scope", "operator")
    assert shell.refused("token", "create", *named, token=market.operator)[0] == 2


def test_an_account_is_its_own_party_s_business(shell, market, acme, tmp_path) -> None:
    other = new_token(shell, market, "buyer:other", tmp_path)
    party, _ = acme
    for command in ("balance", "statement"):
        assert shell.refused("account", command, party, token=other)[0] == 9
        assert shell.refused("account", command, party)[0] == 8
        assert shell.refused("account", command)[0] == 8
        assert shell("account", command, party, token=market.operator)[0] == 0


def test_a_payment_is_credited_to_nobody_else(shell, market, acme) -> None:
    line = {"reference": "for-bob", "party": "buyer:bob", "credits": "1"}
    with (market.folder / "payments" / "received.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert shell.refused("account", "deposit", "for-bob", token=acme[1])[0] == 9
    assert (
        shell.json("account", "deposit", "for-bob", token=market.operator)["party"] == "buyer:bob"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["deposit", "never-came"], (10, "never-came")),
        (["deposit", "../../x"], (2, "reference")),
        (["withdraw", "1000000", "--to", "x"], (2, "")),
        *[
            (["withdraw", amount, "--to", "x"], (2, "CREDITS must be a decimal number"))
            for amount in ("1.0000001", "1e3", "ten", "", "1,5", "9" * 11, "NaN", "٣")
        ],
        (["withdraw", "0", "--to", "x"], (2, "amount_micro")),
        (["withdraw", "1", "--to", ""], (2, "destination")),
        (["withdraw", "1"], (2, "--to")),
        (["balance", "acme"], (2, "a party is buyer:NAME")),
        (["balance", "../tokens"], (2, "a party is")),
        (["statement", "escrow:../x"], (2, "a party is")),
    ],
)
def test_wrong_input_gets_one_sentence(shell, acme, arguments, expected) -> None:
    code, sentence = shell.refused("account", *arguments, token=acme[1])
    assert code == expected[0], sentence
    assert expected[1] in sentence
