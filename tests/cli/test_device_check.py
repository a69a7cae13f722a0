"""``fedbourse device check`` tells an owner how its records fit, and nobody else."""

import json
from pathlib import Path

import pytest

from fedbourse.cli import main
from fedbourse.device import Agent, DeviceSettings
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.device.malicious_market import CARD, TASK, malicious_market

LAYOUT = {
    "columns": [{"name": "height", "low": 0, "high": 300}],
    "label": "kind",
    "classes": ["cat", "dog"],
}
TASK_CARD = TaskCard.of({**CARD.document, "layout": LAYOUT})
ROWS = ["170,dog", "30,cat"] * 15 + ["-1,dog", ",cat", "", "171,fox", "172,fox", "170", "x,dog"]


class Enrolled:
    """A device that is enrolled in a market, and the commands that its owner types."""

    def __init__(self, market, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.market, self.table, self._capsys = market, folder / "own.csv", capsys
        self._folder = folder / "device"
        self.table.write_text("\n".join(["height,kind", *ROWS]) + "\n")
        settings = DeviceSettings(value=1.0, lifetime_cap=5.0, data=str(self.table))
        with Agent.create(self._folder, settings) as agent:
            agent.enrol(market.url, "fbe_token")

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(["device", *arguments, "--folder", str(self._folder)])
        return code, *self._capsys.readouterr()


@pytest.fixture
def device(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with malicious_market(card=TASK_CARD) as market:
        yield Enrolled(market, tmp_path, capsys)


@pytest.mark.parametrize("task", ["latest", TASK])
def test_an_owner_sees_how_many_records_fit_and_why_others_do_not(device, task: str) -> None:
    code, out, _ = device("check", task, "--json")
    document = json.loads(out)
    misfits = document.pop("misfits")
    assert code == 0
    assert document == {"task": TASK, "records": 36, "fit": 30, "samples": 20, "used": 20}
    assert {(each["reason"], each["column"], each["count"]) for each in misfits} == {
        ("out of range", "height", 1),
        ("blank", "height", 1),
        ("unknown class", "kind", 2),
        ("wrong number of cells", None, 1),
        ("not a number", "height", 1),
    }
    assert misfits[0] == {
        "reason": "unknown class",
        "column": "kind",
        "count": 2,
        "rows": [35, 36],
        "shown": "'fox'",
    }


def test_it_is_said_in_words_and_that_it_stays_here(device) -> None:
    code, out, _ = device("check")
    assert code == 0
    assert "30 of 36 records fit" in out
    assert "unknown class" in out
    assert "35, 36" in out
    assert "20, chosen in secret, always the same; their sum is divided by 20" in out
    assert "you alone: nothing of this leaves your device" in out
    device.table.write_text("height,kind\n170,dog\n")
    assert "1, all that fit; their sum is divided by 20" in device("check")[1]
    device.table.write_text("height,kind\nx,dog\n")
    assert "none: updates would be noise alone" in device("check")[1]


def test_advice_says_it_too(device) -> None:
    code, out, _ = device("advise", "latest")
    assert code == 0
    assert "30 of 36 records fit; used: 20" in out
    assert "only you see this" in out
    assert json.loads(device("advise", "latest", "--json")[1])["data"]["fit"] == 30


def test_the_market_hears_nothing(device) -> None:
    device("check")
    device("advise", "latest")
    assert set(device.market.keys) == {"enrolments"}  # no write but that one, long before
    assert device.market.state == "open"


def test_a_recipe_is_checked_as_a_card_is(device, tmp_path: Path) -> None:
    recipe = {
        "name": "t",
        "data": "things",
        "model": "logistic",
        "features": 2,
        "classes": 2,
        "rounds": 3,
        "samples": 50,
        "clip": 1.0,
        "step_size": 1.0,
        "aggregation": "equal",
        "layout": LAYOUT,
    }
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(recipe))
    document = json.loads(device("check", str(file), "--json")[1])
    assert (document["task"], document["fit"], document["used"]) == (str(file), 30, 30)


def test_a_file_without_the_columns_gets_a_sentence(device) -> None:
    device.table.write_text("width,kind\n1,dog\n")
    code, out, err = device("check")
    assert (code, out) == (2, "")
    assert "own.csv must have one column 'height'; it has width, kind" in err
