"""Tokens from the command line: shown once, kept from others, and ended at once."""

import json
import stat

import pytest

from cli.markets import Shell, new_token, running_market
from fedbourse.cli import main


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    with running_market(tmp_path_factory.mktemp("token") / "market") as running:
        yield running


@pytest.fixture
def shell(capsys, market, monkeypatch):
    for name in ("FEDBOURSE_TOKEN", "FEDBOURSE_TOKEN_FILE", "FEDBOURSE_SERVER"):
        monkeypatch.delenv(name, raising=False)
    return Shell(capsys, market.url)


def test_a_token_works_until_it_is_revoked(shell, market, tmp_path) -> None:
    acme = new_token(shell, market, "buyer:one", tmp_path)
    assert shell("account", "balance", "buyer:one", token=acme)[0] == 0
    listed = shell.json("token", "list", token=market.operator)["tokens"]
    (made,) = [token for token in listed if token["party"] == "buyer:one"]
    assert made["scopes"] == ["buyer"]
    ended = shell.json("token", "revoke", made["id"], token=market.operator)
    assert ended["revoked_ms"] >= made["created_ms"]
    code, sentence = shell.refused("account", "balance", "buyer:one", token=acme)
    assert code == 8
    assert "revoked" in sentence


def test_the_last_operators_token_ends_only_when_told_so(capsys, shell, tmp_path) -> None:
    with running_market(tmp_path / "own") as market:
        own = Shell(capsys, market.url)
        (operator,) = own.json("token", "list", token=market.operator)["tokens"]
        first = operator["id"]
        code, sentence = own.refused("token", "revoke", first, token=market.operator)
        assert code == 11
        assert "is the last one of an operator" in sentence
        assert "--last" in sentence
        # One that is revoked, and one of another scope, are no other operators.
        second = new_token(own, market, "operator:second", tmp_path)
        new_token(own, market, "buyer:one", tmp_path)
        assert own.json("token", "revoke", first, token=second)["id"] == first
        last = own.json("token", "list", token=second)["tokens"][1]["id"]
        assert own.refused("token", "revoke", last, token=second)[0] == 11
        assert own.json("token", "revoke", last, "--last", token=second)["id"] == last
        assert own.refused("token", "list", token=second)[0] == 8


def test_a_token_file_is_new_and_for_its_user_alone(shell, market, tmp_path) -> None:
    file = new_token(shell, market, "buyer:two", tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("fbt_")
    before = len(shell.json("token", "list", token=market.operator)["tokens"])
    for out in (file, tmp_path, tmp_path / "absent" / "x"):
        arguments = ["--party", "buyer:two", "--scope", "buyer", "--out", out]
        assert shell.refused("token", "create", *arguments, token=market.operator)[0] == 5
    assert len(shell.json("token", "list", token=market.operator)["tokens"]) == before


def test_a_token_is_shown_where_no_file_is_named(shell, market) -> None:
    arguments = ["--party", "auditor:kay", "--scope", "auditor", "--days", "3"]
    made = shell.json("token", "create", *arguments, token=market.operator)
    assert made["token"].startswith("fbt_")
    assert made["expires_ms"] > 0
    code, out, _ = shell("token", "create", *arguments, token=market.operator)
    assert code == 0
    assert "fbt_" in out
    code, out, _ = shell("token", "list", token=market.operator)
    assert code == 0
    assert "auditor:kay" in out
    assert "fbt_" not in out


def test_an_enrolment_token_is_for_one_owner(shell, market, tmp_path) -> None:
    made = shell.json("token", "enrol", "--owner", "owner:ann", token=market.operator)
    assert made["token"].startswith("fbe_")
    file = tmp_path / "ann"
    arguments = ["--owner", "owner:ann", "--hours", "2", "--out", file]
    code, out, _ = shell("token", "enrol", *arguments, token=market.operator)
    assert code == 0
    assert "fbe_" not in out
    assert file.read_text().startswith("fbe_")


def test_the_environment_names_server_and_token(shell, market, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FEDBOURSE_SERVER", market.url)
    monkeypatch.setenv("FEDBOURSE_TOKEN_FILE", str(market.operator))
    assert main(["token", "list", "--json"]) == 0
    monkeypatch.setenv("FEDBOURSE_TOKEN", "fbt_" + "x" * 43)  # named more directly: it counts
    assert main(["token", "list"]) == 8
    assert main(["token", "list", "--token-file", str(market.operator)]) == 0
    monkeypatch.setenv("FEDBOURSE_TOKEN", market.operator.read_text())
    monkeypatch.delenv("FEDBOURSE_TOKEN_FILE")
    capsys.readouterr()
    assert main(["token", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["create", "--party", "acme", "--scope", "buyer"], (2, "a party is buyer:NAME")),
        (["create", "--party", "buyer:a", "--scope", "king"], (2, "--scope")),
        (["create", "--party", "buyer:a"], (2, "--scope")),
        (["create", "--party", "buyer:a", "--scope", "buyer", "--days", "0"], (2, "days")),
        (["create", "--party", "buyer:a", "--scope", "buyer", "--days", "1.5"], (2, "days")),
        (["enrol", "--owner", "buyer:a"], (2, "this is for owner:NAME; found 'buyer:a'")),
        (["enrol", "--owner", "owner:a", "--hours", "0"], (2, "hours")),
        (["revoke", "absent"], (10, "absent")),
        (["revoke", "../../tasks"], (10, "")),
    ],
)
def test_wrong_input_gets_one_sentence(shell, market, arguments, expected) -> None:
    code, sentence = shell.refused("token", *arguments, token=market.operator)
    assert code == expected[0], sentence
    assert expected[1] in sentence


def test_only_the_operator_makes_tokens(shell, market, tmp_path) -> None:
    buyer = new_token(shell, market, "buyer:three", tmp_path)
    arguments = ["create", "--party", "operator:me", "--scope", "operator"]
    assert shell.refused("token", *arguments, token=buyer)[0] == 9
    assert shell.refused("token", *arguments)[0] == 8
    assert shell.refused("token", "list", token=buyer)[0] == 9


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", b"x" * 5000])
def test_a_file_without_a_token_is_named(shell, tmp_path, content) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    code, sentence = shell.refused("token", "list", token=file)
    assert code == 2
    assert str(file) in sentence
    assert shell.refused("token", "list", token=tmp_path / "absent")[0] == 2


def test_a_market_that_is_down_is_named(capsys, monkeypatch) -> None:
    for server, code in [("http://127.0.0.1:1", 14), ("http://market.example", 2), ("x", 2)]:
        capsys.readouterr()
        assert main(["token", "list", "--server", server]) == code
        _, err = capsys.readouterr()
        assert len(err.strip().splitlines()) == 1
        assert server in err or "market.example" in err
