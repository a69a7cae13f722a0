"""``fedbourse rotate-key`` on a market's folder, and the market that is served from it then."""

from __future__ import annotations

import json
import stat

import pytest

from cli.markets import running_market
from fedbourse.app import market_key as in_folder
from fedbourse.cli import main
from fedbourse.errors import Conflict, InvalidFile, Unauthenticated
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey
from fedbourse.storage import SqlStore


@pytest.fixture
def folder(tmp_path):
    """A market's folder that was never served: a key, a database and nothing else."""
    made = tmp_path / "market"
    made.mkdir(mode=0o700)
    with SqlStore(url(made)) as store:
        in_folder.market_key(made, store)
    return made


def url(folder) -> str:
    return f"sqlite:///{folder / 'market.db'}"


def key_in(folder) -> str:
    with SqlStore(url(folder)) as store:
        return in_folder.market_key(folder, store).public


def test_a_market_is_served_with_its_new_key_and_followed_from_the_old(tmp_path, capsys) -> None:
    folder = tmp_path / "market"
    with running_market(folder) as market:
        old, token = market.ready["public_key"], market.operator.read_text().strip()
        assert main(["rotate-key", "--folder", str(folder)]) == Conflict.exit_code
        assert "is being served" in capsys.readouterr().err
    assert main(["rotate-key", "--folder", str(folder), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["old"] == old
    with running_market(folder) as market:
        assert market.ready["public_key"] == made["new"]
        with Connection(market.url, market_key=old) as line:
            assert line.check_market()["rotations"] == [made]
            assert line.market_key == made["new"]
        with Connection(market.url, token=token) as line:  # tokens go on
            assert line.get("/v1/me")["party"] == "operator:main"
        stranger = SigningKey.generate().public
        with Connection(market.url, market_key=stranger) as line, pytest.raises(Unauthenticated):
            line.check_market()
    for path in folder.glob("market*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(list(folder.glob("market*.key"))) == 2


def test_who_is_killed_before_the_files_change_places_goes_on(folder, monkeypatch) -> None:
    old = key_in(folder)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(in_folder, "_replace_key", killed)
        with pytest.raises(KeyboardInterrupt):
            in_folder.rotate_market_key(folder, url(folder))
    assert SigningKey.load(folder / "market.key").public == old
    new = SigningKey.load(folder / "market.key.new").public
    assert key_in(folder) == new == SigningKey.load(folder / "market.key").public
    assert not (folder / "market.key.new").exists()


def test_who_is_killed_before_the_database_knows_has_changed_nothing(folder, monkeypatch) -> None:
    old = key_in(folder)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(in_folder, "rotate_key", killed)
        with pytest.raises(KeyboardInterrupt):
            in_folder.rotate_market_key(folder, url(folder))
    assert key_in(folder) == old
    made = in_folder.rotate_market_key(folder, url(folder))
    assert (made.old, made.new) == (old, key_in(folder))


def test_a_market_is_not_served_with_a_key_that_was_replaced(folder) -> None:
    old = SigningKey.load(folder / "market.key")
    made = in_folder.rotate_market_key(folder, url(folder))
    (folder / "market.key").unlink()
    old.save(folder / "market.key")
    with pytest.raises(InvalidFile, match=f"has signed with {made.new} since"):
        key_in(folder)


def test_a_folder_without_a_key_has_none_to_replace(tmp_path, capsys) -> None:
    assert main(["rotate-key", "--folder", str(tmp_path)]) == InvalidFile.exit_code
    assert "no key to replace" in capsys.readouterr().err
