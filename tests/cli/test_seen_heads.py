"""Markets that change their past, over a real connection: heads that somebody kept find it out."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from cli.markets import Shell
from fedbourse.cli import main
from fedbourse.encoding.canonical import canonical
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.log import next_event
from fedbourse.protocol.keys import SigningKey
from fedbourse.protocol.rotation import Rotation, rotate
from fedbourse.storage import SqlStore
from fedbourse.testing.trading import BUYER, Trading
from fedbourse.web.app import create_app
from web.fixtures import UNHURRIED, Bank
from web.servers import served

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Site:
    """A market that is served: its database, what happens in it, and what it was asked."""

    database: Path
    trading: Trading
    shell: Shell
    asked: list[str] = field(default_factory=list)

    def compared(self, *arguments: object) -> tuple[dict[str, str], int]:
        """Compare with heads that were kept; return what is said of each log, and the exit code."""
        self.asked.clear()
        code, out, _ = self.shell("verify", *arguments, "--json")
        checks = json.loads(out)["checks"]
        assert (code == 15) == (False in [check["passed"] for check in checks])
        return {check["name"]: check["detail"] for check in checks}, code

    @contextmanager
    def edited(self):
        """Write to the database as somebody who owns the file can."""
        connection = sqlite3.connect(self.database)
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        connection.commit()
        connection.close()


@contextmanager
def site(database: Path, capsys, key: SigningKey):
    with SqlStore(f"sqlite:///{database}") as store:
        trading = Trading(store)
        trading.market = replace(trading.market, key=key)
        app = create_app(trading.market, store, Bank(), UNHURRIED)
        asked: list[str] = []

        async def counted(scope, receive, send):
            if scope["type"] == "http":
                asked.append(scope["path"])
            await app(scope, receive, send)

        with served(counted) as url:
            yield Site(database, trading, Shell(capsys, url), asked)


@dataclass
class Kept:
    """A market with three tasks, and the file of somebody who kept heads of the first two."""

    site: Site
    tasks: list[str]
    file: Path
    key: SigningKey

    def differs(self, word: str, log: str, *more: object) -> None:
        """The market differs from what was kept, in one log, found with few requests."""
        said, code = self.site.compared("log", "--seen", self.file, *more)
        assert code == 15
        assert said[log].startswith(word), said
        assert len(self.site.asked) <= 2 * len(said)


@pytest.fixture
def kept(tmp_path, capsys):
    key, database = SigningKey.generate(), tmp_path / "market.db"
    with site(database, capsys, key) as running:
        trading, file = running.trading, tmp_path / "heads.json"
        trading.fund(10**9)
        tasks = [trading.opened().id for _ in range(3)]
        for task in tasks[:2]:
            running.compared(task, "--save-seen", file)
        yield Kept(running, tasks, file, key)


def happen(trading: Trading, task: str) -> None:
    trading.do(buyer_commands.cancel, BUYER, task, reason="something happened")


def test_a_log_that_goes_on_extends_what_was_seen(kept, tmp_path) -> None:
    first, second, _ = kept.tasks
    names = {"market's log", f"log of {first}", f"log of {second}"}
    said, code = kept.site.compared("log", "--seen", kept.file)
    assert (code, said.keys()) == (0, names)
    assert len(kept.site.asked) == 3  # nothing is new: heads alone
    happen(kept.site.trading, first)
    kept.site.trading.opened()
    said, code = kept.site.compared("log", "--seen", kept.file)
    assert code == 0
    assert said["market's log"].startswith("extends what was seen: 3 links then, 4 now")
    assert said[f"log of {first}"].startswith("extends what was seen: 2 links then, 3 now")
    assert said[f"log of {second}"].startswith("extends what was seen: 2 links then, 2 now")
    assert len(kept.site.asked) == 5
    before = kept.file.read_text()
    said, _ = kept.site.compared(first, "--seen", kept.file, "--save-seen", tmp_path / "new.json")
    assert said.keys() == {"market's log", f"log of {first}"}
    assert kept.file.read_text() == before
    kept.site.compared("log", "--save-seen", kept.file)
    lengths = {each["head"]["of"]: each["head"]["length"] for each in heads(kept.file)}
    assert lengths == {"market": 4, first: 3, second: 2}


def heads(file: Path) -> list[dict]:
    return json.loads(file.read_text())["heads"]


def rewrite(kept, task: str, *, said: str) -> None:
    """Let the first event of a task say something else, and make all later ones follow."""
    trading = kept.site.trading
    events, after = trading.events(task), (-1, trading.task(task).card.digest)
    with kept.site.edited() as run:
        for event in events:
            body = {**event.body, "buyer": said} if event.sequence == 0 else event.body
            new = next_event(task, event.kind, body, at_ms=event.at_ms, after=after)
            after = new.sequence, new.hash
            values = asdict(new) | {"body": canonical(dict(new.body)).decode()}
            run.execute(
                "UPDATE events SET body = :body, previous = :previous, hash = :hash"
                " WHERE task = :task AND sequence = :sequence",
                values,
            )
        run.execute("UPDATE tasks SET last_hash = ? WHERE id = ?", (after[1], task))


def test_a_past_that_is_rewritten_is_found(kept) -> None:
    first, second, third = kept.tasks
    rewrite(kept, first, said="buyer:somebody")
    kept.differs("rewritten", f"log of {first}")
    happen(kept.site.trading, first)  # nor does it help to go on
    kept.differs("rewritten", f"log of {first}")
    said, code = kept.site.compared(second, "--seen", kept.file)
    assert (code, said[f"log of {second}"][:7]) == (0, "extends")
    rewrite(kept, third, said="buyer:somebody")  # nobody kept its head, but the market's
    kept.differs("rewritten", "market's log")


def test_a_log_whose_end_is_gone_is_found(kept, tmp_path) -> None:
    first = kept.tasks[0]
    old = tmp_path / "old.db"
    with sqlite3.connect(kept.site.database) as source, sqlite3.connect(old) as backup:
        source.backup(backup)
    happen(kept.site.trading, first)
    kept.site.trading.opened()
    kept.site.compared("log", "--save-seen", kept.file)
    with sqlite3.connect(old) as source, sqlite3.connect(kept.site.database) as restored:
        source.backup(restored)
    kept.differs("shortened", f"log of {first}")
    kept.differs("shortened", "market's log")
    kept.site.trading.wait(1)  # it goes on from there in another way
    kept.site.trading.opened()
    happen(kept.site.trading, first)
    kept.differs("rewritten", f"log of {first}")
    kept.differs("rewritten", "market's log")


def test_a_task_that_is_deleted_is_found(kept) -> None:
    first, _, third = kept.tasks
    for task in (first, third):
        with kept.site.edited() as run:
            for table in ("openings", "events"):
                run.execute(f"DELETE FROM {table} WHERE task = ?", (task,))
            run.execute("DELETE FROM tasks WHERE id = ?", (task,))
    kept.differs("vanished", f"log of {first}")
    kept.differs("shortened", "market's log")  # nobody kept a head of the third


def test_a_hole_among_the_tasks_is_found_by_whoever_reads_the_list(kept) -> None:
    with kept.site.edited() as run:
        run.execute("DELETE FROM openings WHERE number = 1")
    said, code = kept.site.compared("log")
    assert (code, said["market's log"]) == (15, "shortened: link 1 is not shown, but 2 instead")


def test_different_logs_for_different_callers_are_found(kept, tmp_path, capsys) -> None:
    first = kept.tasks[0]
    other = tmp_path / "other.db"
    with sqlite3.connect(kept.site.database) as source, sqlite3.connect(other) as copy:
        source.backup(copy)
    mine, theirs = tmp_path / "mine.json", tmp_path / "theirs.json"
    shutil.copy(kept.file, theirs)
    shutil.copy(kept.file, mine)
    with site(other, capsys, kept.key) as shown_to_others:
        shown_to_others.trading.time_ms += 5
        happen(shown_to_others.trading, first)
        assert shown_to_others.compared("log", "--save-seen", theirs)[1] == 0
    happen(kept.site.trading, first)
    assert kept.site.compared("log", "--save-seen", mine)[1] == 0
    kept.differs("rewritten", f"log of {first}", "--seen", theirs)
    said, code = kept.site.compared("log", "--seen", mine, "--seen", theirs)
    assert (code, said[f"log of {first}"][:6]) == (15, "forked")


def test_another_key_is_found(kept, tmp_path, capsys) -> None:
    before = kept.file.read_bytes()
    with site(kept.site.database, capsys, SigningKey.generate()) as pretender:
        for option in ("--seen", "--save-seen"):
            said, code = pretender.compared("log", option, kept.file)
            assert code == 15
            assert all(each.startswith("signed by another key") for each in said.values())
    assert kept.file.read_bytes() == before  # what differs is not stored


def rotated(kept: Kept) -> SigningKey:
    """Replace the key as an operator does, in the market's folder; return the new one."""
    folder = kept.site.database.parent
    if not (folder / "market.key").exists():
        kept.key.save(folder / "market.key")
    assert main(["rotate-key", "--folder", str(folder), "--json"]) == 0
    return SigningKey.load(folder / "market.key")


@pytest.mark.parametrize("times", [1, 3])
def test_heads_of_a_key_that_was_replaced_still_count(kept, capsys, times: int) -> None:
    first, second, _ = kept.tasks
    for _ in range(times):
        new = rotated(kept)
    with site(kept.site.database, capsys, new) as served_anew:
        happen(served_anew.trading, first)
        said, code = served_anew.compared("log", "--seen", kept.file)
        assert code == 0, said
        assert said[f"log of {first}"].startswith("extends what was seen: 2 links then, 3 now")
        assert len(served_anew.asked) == 3 + 1 + 1  # a new link; one look at who took whose place
        said, code = served_anew.compared(second, "--seen", kept.file, "--save-seen", kept.file)
        assert code == 0, said
        signers = {each["head"]["of"]: each["public_key"] for each in heads(kept.file)}
        assert signers == {"market": new.public, first: kept.key.public, second: new.public}
        # One file with heads of both keys; nor does a new key let anybody write a new past.
        assert served_anew.compared("log", "--seen", kept.file)[1] == 0
        anew = replace(kept, site=served_anew)
        rewrite(anew, second, said="buyer:somebody")
        said, code = served_anew.compared("log", "--seen", kept.file)
        assert (code, said[f"log of {second}"][:9]) == (15, "rewritten")


def test_a_key_that_was_replaced_signs_nothing_new(kept, capsys) -> None:
    new = rotated(kept)
    with site(kept.site.database, capsys, new) as served_anew:
        assert served_anew.compared(kept.tasks[0], "--save-seen", kept.file)[1] == 0
    said, code = kept.site.compared("log", "--seen", kept.file)  # whoever has the old key goes on
    assert code == 15
    assert all(each.startswith("signed by another key") for each in said.values())


def no_statement(old: SigningKey, new: SigningKey) -> None:
    return None


def unsigned(old: SigningKey, new: SigningKey) -> dict:
    return asdict(rotate(old, new, at_ms=1)) | {"old_signature": ""}


def not_signed_by_the_new(old: SigningKey, new: SigningKey) -> dict:
    return asdict(rotate(old, new, at_ms=1)) | {"new_signature": "A" * 86}


def signed_by_another(old: SigningKey, new: SigningKey) -> dict:
    other = rotate(SigningKey.generate(), new, at_ms=1)
    return asdict(rotate(old, new, at_ms=1)) | {"old_signature": other.old_signature}


def another_time(old: SigningKey, new: SigningKey) -> dict:
    return asdict(rotate(old, new, at_ms=1)) | {"at_ms": 2}


def of_another_market(old: SigningKey, new: SigningKey) -> dict:
    return asdict(rotate(SigningKey.generate(), new, at_ms=1))


def to_another_key(old: SigningKey, new: SigningKey) -> dict:
    return asdict(rotate(old, SigningKey.generate(), at_ms=1))


@pytest.mark.parametrize(
    "forged",
    [
        no_statement,
        unsigned,
        not_signed_by_the_new,
        signed_by_another,
        another_time,
        of_another_market,
        to_another_key,
    ],
)
def test_a_key_that_the_old_one_does_not_vouch_for_is_found(kept, capsys, forged) -> None:
    new, before = SigningKey.generate(), kept.file.read_bytes()
    statement = forged(kept.key, new)
    if statement is not None:
        with kept.site.trading.store.begin() as tx:
            tx.add_rotation(Rotation(**statement))
    with site(kept.site.database, capsys, new) as pretender:
        for option in ("--seen", "--save-seen"):
            said, code = pretender.compared("log", option, kept.file)
            assert code == 15
            assert all(each.startswith("signed by another key") for each in said.values()), said
    assert kept.file.read_bytes() == before


def test_a_file_that_was_changed_is_refused(kept, tmp_path) -> None:
    document = json.loads(kept.file.read_text())
    document["heads"][0]["head"]["length"] += 1
    for number, text in enumerate((json.dumps(document), "{}", "no JSON", '{"heads": 5}')):
        file = tmp_path / f"{number}.json"
        file.write_text(text)
        for option in ("--seen", "--save-seen"):
            code, sentence = kept.site.shell.refused("verify", "log", option, file)
            assert code == 2
            assert file.name in sentence
            assert file.read_text() == text
    assert kept.site.shell.refused("verify", "log", "--seen", tmp_path / "none.json")[0] == 2
