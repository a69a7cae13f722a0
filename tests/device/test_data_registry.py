"""One person, one lifetime cap: data that a folder guards is refused to every other folder."""

import fcntl
import json
import os
import shutil
import stat
import sys
import threading
from pathlib import Path

import pytest

from fedbourse.device import Agent, DeviceFolder, DeviceSettings
from fedbourse.device.data_registry import DataFile, DataRegistry, state_folder
from fedbourse.errors import CannotWrite, Conflict, InvalidFile

ROWS = "height,kind\n1,cat\n2,dog\n"


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A file that the folder ``first`` guards."""
    file = tmp_path / "records.csv"
    file.write_text(ROWS)
    make(tmp_path / "first", file)
    return file


def make(folder: Path, data: object, *, separate_cap: bool = False) -> DeviceFolder:
    settings = DeviceSettings(value=1.0, lifetime_cap=2.0, data=str(data))
    return DeviceFolder.create(folder, settings, separate_cap=separate_cap)


def symlink(file: Path) -> Path:
    link = file.with_name("symlink.csv")
    link.symlink_to(file.name)
    return link


def hard_link(file: Path) -> Path:
    link = file.with_name("link.csv")
    os.link(file, link)
    return link


def grown_hard_link(file: Path) -> Path:
    link = hard_link(file)
    _grow(file)
    return link


def copy(file: Path) -> Path:
    return Path(shutil.copy(file, file.with_name("copy.csv")))


def copy_of_what_has_grown(file: Path) -> Path:
    _grow(file)
    return copy(file)


def copy_of_what_is_gone(file: Path) -> Path:
    taken = copy(file)
    file.unlink()
    return taken


def renamed(file: Path) -> Path:
    return file.rename(file.with_name("renamed.csv"))


def renamed_and_grown(file: Path) -> Path:
    moved = renamed(file)
    _grow(moved)
    return moved


def replaced(file: Path) -> Path:
    other = file.with_name("other.csv")
    other.write_text("height,kind\n5,cow\n")
    return other.replace(file)


def grown(file: Path) -> Path:
    _grow(file)
    return file


def relative(file: Path) -> str:
    return os.path.relpath(file)


def labelled(file: Path) -> str:
    return f"{file}:kind"


def _grow(file: Path) -> None:
    with file.open("a") as out:
        out.write("3,cow\n")


SAME = (symlink, hard_link, grown_hard_link, copy, copy_of_what_has_grown, copy_of_what_is_gone,
        renamed, renamed_and_grown, replaced, grown, relative, labelled)  # fmt: skip


@pytest.mark.parametrize("same", SAME, ids=lambda same: same.__name__)
def test_the_same_data_is_refused_to_a_second_folder(same, records: Path, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match=f"already guarded by the device folder {tmp_path}/first"):
        make(tmp_path / "second", same(records))
    assert not (tmp_path / "second").exists()


def test_other_data_is_not_refused(records: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(ROWS.replace("cat", "cow"))  # as long as the first file
    make(tmp_path / "second", other)
    assert len(DataRegistry().guards()) == 2


def test_an_inode_that_is_used_again_is_no_sign_while_the_file_is_there(
    records: Path, tmp_path: Path
) -> None:
    place = records.stat()
    _grow(records)
    other = tmp_path / "other.csv"
    other.write_text("height,kind\n7,emu\n")
    other.replace(records)  # the place of the first content may be given to the next file
    file = DataFile(str(tmp_path / "new.csv"), place.st_dev, place.st_ino, 5, "0" * 64)
    DataRegistry().check(file, key=None)
    records.unlink()
    with pytest.raises(Conflict, match="under another name"):
        DataRegistry().check(file, key=None)


def test_a_separate_cap_must_be_meant_each_time(records: Path, tmp_path: Path) -> None:
    make(tmp_path / "second", records, separate_cap=True)
    assert [guard.folder for guard in DataRegistry().guards()] == [
        f"{tmp_path}/first", f"{tmp_path}/second"]  # fmt: skip
    with pytest.raises(Conflict, match="use that folder, or say --separate-cap"):
        make(tmp_path / "third", records)


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_folder_that_is_gone_does_not_free_its_data(place, records, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "first")
    with pytest.raises(Conflict, match=r"first .* moved or deleted, and its record of spend"):
        make(tmp_path / place, records)
    make(tmp_path / place, records, separate_cap=True)


def test_a_folder_that_is_still_there_is_named_first(records: Path, tmp_path: Path) -> None:
    make(tmp_path / "second", records, separate_cap=True)
    shutil.rmtree(tmp_path / "first")
    with pytest.raises(Conflict, match=r"second \(it is the same file\)"):
        make(tmp_path / "third", records)


@pytest.mark.parametrize("left", [["device.key"], ["device.key", "spend.db", ".device.json.new"]])
def test_a_folder_that_was_killed_while_it_was_made_is_not_refused(
    left, records: Path, tmp_path: Path
) -> None:
    (tmp_path / "first" / "device.json").rename(tmp_path / "first" / ".device.json.new")
    for file in list((tmp_path / "first").iterdir()):
        if file.name not in left:
            file.unlink()
    make(tmp_path / "first", records)
    assert len(DataRegistry().guards()) == 1


def test_agents_obey_the_same_rule(records: Path, tmp_path: Path) -> None:
    settings = DeviceSettings(value=1.0, lifetime_cap=2.0, data=str(records))
    with pytest.raises(Conflict):
        Agent.create(tmp_path / "second", settings)
    with Agent.create(tmp_path / "second", settings, separate_cap=True) as agent:
        assert agent.left == 2.0


def test_nothing_is_remembered_where_an_application_brings_the_data(
    tmp_path: Path, state_folder: Path
) -> None:
    settings = DeviceSettings(value=1.0, lifetime_cap=2.0)
    for name in ("one", "two"):
        Agent.create(tmp_path / name, settings, data=lambda card: ([[1.0]], [0.0])).close()
    assert not state_folder.exists()


def test_a_folder_may_guard_several_files_and_say_so_again(records, tmp_path: Path) -> None:
    folder, more = DeviceFolder(tmp_path / "first"), tmp_path / "more.csv"
    more.write_text("height,kind\n9,cat\n")
    for _ in range(2):
        folder.guard_data(f"{more}:kind")
        folder.guard_data(str(records))
    assert len(DataRegistry().guards()) == 2
    with pytest.raises(Conflict):
        make(tmp_path / "second", more)


def test_a_folder_with_a_separate_cap_may_go_on_to_use_its_data(records, tmp_path: Path) -> None:
    make(tmp_path / "second", records, separate_cap=True).guard_data(str(records))
    DeviceFolder(tmp_path / "first").guard_data(str(records))


@pytest.mark.parametrize("data", ["nothing.csv", "."])
def test_data_that_cannot_be_read_makes_no_folder(data, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidFile, match=f"^{data} (cannot be read|must be a plain file)"):
        make(tmp_path / "device", data)
    assert not (tmp_path / "device").exists()


def test_only_the_user_can_read_the_registry_whatever_the_umask(
    tmp_path: Path, state_folder: Path
) -> None:
    file = tmp_path / "records.csv"
    file.write_text(ROWS)
    before = os.umask(0)
    try:
        make(tmp_path / "first", file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(state_folder.stat().st_mode) == 0o700
    files = sorted(state_folder.iterdir())
    assert [each.name for each in files] == ["data-registry.json", "data-registry.lock"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


DAMAGED = {
    "cut": lambda text: text[:-30],
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "another version": lambda text: text.replace('"version": 1', '"version": 2'),
    "no guards": lambda text: '{"version": 1}',
    "a guard that is text": lambda text: '{"version": 1, "guards": ["first"]}',
    "an item less": lambda text: text.replace('"inode"', '"node"'),
    "an inode that is text": lambda text: text.replace('"inode": ', '"inode": "1", "more": '),
    "a size that is true": lambda text: text.replace(f'"size_bytes": {len(ROWS)}',
                                                     '"size_bytes": true'),
    "nested deeply": lambda text: "[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("separate_cap", [False, True])
def test_a_damaged_registry_gets_a_sentence_and_stays(
    name, separate_cap, records: Path, tmp_path: Path, state_folder: Path
) -> None:
    file = state_folder / "data-registry.json"
    damaged = DAMAGED[name](file.read_text())
    file.write_text(damaged)
    with pytest.raises(InvalidFile, match=r"is damaged: .* which data your devices guard"):
        make(tmp_path / "second", records, separate_cap=separate_cap)
    assert file.read_text() == damaged
    assert not (tmp_path / "second" / "device.json").exists()


@pytest.mark.parametrize("made", [True, False])
def test_a_state_folder_that_cannot_be_written_gets_a_sentence(
    made, tmp_path: Path, state_folder: Path
) -> None:
    (tmp_path / "records.csv").write_text(ROWS)
    if made:  # the registry's own file is in the way, whoever runs this
        (state_folder / "data-registry.lock").mkdir(parents=True)
    else:
        state_folder.write_text("")
    with pytest.raises((CannotWrite, InvalidFile), match=r"data-registry\.json cannot be"):
        make(tmp_path / "device", tmp_path / "records.csv")
    assert not (tmp_path / "device" / "device.json").exists()


def test_whoever_adds_second_is_refused_though_both_looked_first(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text(ROWS)
    file = DataFile.named(f"{tmp_path}/records.csv")
    for key in ("ann", "bob"):
        DataRegistry().check(file, key=key)
    DataRegistry().add(file, folder=tmp_path, key="ann", separate_cap=False)
    with pytest.raises(Conflict):
        DataRegistry().add(file, folder=tmp_path, key="bob", separate_cap=False)


def test_one_process_at_a_time_changes_the_registry(records: Path, tmp_path: Path) -> None:
    folder, more = DeviceFolder(tmp_path / "first"), tmp_path / "more.csv"
    more.write_text("height,kind\n9,cat\n")
    other = threading.Thread(target=folder.guard_data, args=(str(more),))
    with (state_folder() / "data-registry.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other.start()
        other.join(timeout=0.5)
        assert other.is_alive()
        assert len(DataRegistry().guards()) == 1
    other.join()
    assert len(DataRegistry().guards()) == 2


def test_a_link_is_called_one(records: Path, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match=f"it is a link to {records}"):
        make(tmp_path / "second", grown_hard_link(records))


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"FEDBOURSE_STATE": "/s"}, "/s"),
        ({"XDG_STATE_HOME": "/x"}, "/x/fedbourse"),
        ({"XDG_STATE_HOME": "not/absolute", "HOME": "/h"}, "/h/.local/state/fedbourse"),
        ({"HOME": "/h"}, "/h/.local/state/fedbourse"),
    ],
    ids=str,
)
def test_the_state_folder_is_the_users_own(variables, place, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("FEDBOURSE_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert state_folder() == Path(place)


def test_the_registry_is_readable_by_people(records: Path, state_folder: Path) -> None:
    document = json.loads((state_folder / "data-registry.json").read_text())
    (guard,) = document["guards"]
    assert guard["path"] == str(records)
    assert guard["folder"] == str(records.parent / "first")
