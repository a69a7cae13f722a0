"""A device's folder: made once, private, and never half."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from fedbourse.device import Agent, DeviceFolder, DeviceSettings, Limits
from fedbourse.errors import CannotWrite, FedbourseError, InvalidFile, InvalidInput, NotFound

SETTINGS = DeviceSettings(
    value=1.5,
    lifetime_cap=3.0,
    update_format="float32",
    max_unpaid_rounds=2,
    limits=Limits(min_price=2.0, refused_data=("health",), only_buyers=("buyer:acme",)),
)


def test_what_was_said_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("height,kind\n1,cat\n")
    settings = replace(SETTINGS, data=f"{tmp_path}/records.csv:kind")
    made = DeviceFolder.create(tmp_path / "device", settings)
    again = DeviceFolder(tmp_path / "device")
    assert again.settings == made.settings == settings
    assert again.key.public == made.key.public
    assert again.records_secret == made.records_secret


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    Agent.create(tmp_path / "device", SETTINGS).close()
    assert stat.S_IMODE((tmp_path / "device").stat().st_mode) == 0o700
    for file in (tmp_path / "device").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_two_devices_choose_other_records(tmp_path: Path) -> None:
    secrets = {DeviceFolder.create(tmp_path / str(i), SETTINGS).records_secret for i in range(3)}
    assert len(secrets) == 3


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    first = DeviceFolder.create(tmp_path, SETTINGS)
    with pytest.raises(CannotWrite, match="already"):
        DeviceFolder.create(tmp_path, replace(SETTINGS, value=9.0))
    assert DeviceFolder(tmp_path).settings == first.settings


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(CannotWrite, match="letters"):
        DeviceFolder.create(tmp_path, SETTINGS)


@pytest.mark.parametrize("left", [["device.key"], ["device.key", ".device.json.new"],
                                  [".device.json.new"]])  # fmt: skip
def test_a_device_that_was_killed_while_it_was_made_can_be_made_again(left, tmp_path: Path) -> None:
    made = DeviceFolder.create(tmp_path, SETTINGS)
    (tmp_path / "device.json").rename(tmp_path / ".device.json.new")
    for file in list(tmp_path.iterdir()):
        if file.name not in left:
            file.unlink()
    again = DeviceFolder.create(tmp_path, SETTINGS)
    assert ("device.key" in left) is (again.key.public == made.key.public)


DAMAGED = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "a list": lambda text: "[1]",
    "no version": lambda text: _changed(text, version=None),
    "value text": lambda text: _changed(text, value="1"),
    "value NaN": lambda text: text.replace("1.5", "NaN"),
    "cap 0": lambda text: _changed(text, lifetime_cap=0),
    "cap infinite": lambda text: text.replace("3.0", "Infinity"),
    "unknown format": lambda text: _changed(text, update_format="text"),
    "no rounds at risk": lambda text: _changed(text, max_unpaid_rounds=0),
    "an item more": lambda text: _changed(text, seed=7),
    "no limits": lambda text: _changed(text, limits=None),
    "limits of text": lambda text: _changed(text, limits="none"),
    "a limit below 0": lambda text: _changed(text, limits={"min_price": -1, "refused_data": [],
                                                           "only_buyers": []}),
    "words that are a text": lambda text: _changed(
        text, limits={"min_price": 0, "refused_data": [1], "only_buyers": []}),
    "no UTF-8": lambda text: b"\xff\xfe" + text.encode(),
    "nested deeply": lambda text: "[" * 100_000,
}  # fmt: skip


def _changed(text: str, **items) -> str:
    document = {**json.loads(text), **items}
    return json.dumps({name: value for name, value in document.items() if value is not None})


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_settings_get_a_sentence(name: str, tmp_path: Path) -> None:
    DeviceFolder.create(tmp_path, SETTINGS)
    file = tmp_path / "device.json"
    damaged = DAMAGED[name](file.read_text())
    file.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    with pytest.raises(InvalidFile, match=r"device\.json is damaged"):
        DeviceFolder(tmp_path)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="device init"):
        DeviceFolder(tmp_path / "nowhere")


def test_a_missing_or_open_key_is_named(tmp_path: Path) -> None:
    DeviceFolder.create(tmp_path, SETTINGS)
    (tmp_path / "device.key").chmod(0o644)
    with pytest.raises(InvalidFile, match="must be 600"):
        DeviceFolder(tmp_path)
    (tmp_path / "device.key").unlink()
    with pytest.raises(InvalidFile, match="cannot be read"):
        DeviceFolder(tmp_path)


def test_a_place_that_cannot_be_written_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite):
        DeviceFolder.create(tmp_path / "file" / "device", SETTINGS)


@pytest.mark.parametrize(
    "items",
    [{"value": 0}, {"value": float("nan")}, {"value": "1"}, {"value": True}, {"lifetime_cap": -1},
     {"lifetime_cap": float("inf")}, {"data": ""}, {"data": 7},
     {"update_format": "float16"}, {"max_unpaid_rounds": 0}, {"max_unpaid_rounds": 1.5},
     {"max_unpaid_rounds": None}],
    ids=str,
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(items) -> None:
    with pytest.raises(InvalidInput):
        replace(SETTINGS, **items)


def test_one_process_sells_from_a_folder_and_others_may_look(tmp_path: Path) -> None:
    with Agent.create(tmp_path, SETTINGS):
        child = os.fork()
        if child == 0:
            try:
                Agent(tmp_path)
            except FedbourseError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        with Agent(tmp_path, read_only=True) as looking:
            assert looking.left == 3.0


@pytest.mark.parametrize("version", [1, 2, 4, "3", None])
def test_a_folder_of_another_version_is_refused_in_one_sentence(version, tmp_path: Path) -> None:
    DeviceFolder.create(tmp_path, SETTINGS)
    file = tmp_path / "device.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": version}))
    with pytest.raises(InvalidFile, match=r"^\S+ was made by another version of fedbourse"):
        DeviceFolder(tmp_path)
