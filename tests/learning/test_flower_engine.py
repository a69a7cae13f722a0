"""The flower engine and its ClientApp: what they let through, whatever the other side does."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedbourse.errors import InvalidInput, Refused, Unreachable
from fedbourse.learning.device_records import DeviceRecords
from fedbourse.learning.engines import LocalEngine
from fedbourse.learning.engines.flower import (
    REFUSAL,
    ROUND_REQUEST,
    UPDATE,
    WHO,
    FlowerEngine,
    Seat,
)
from fedbourse.learning.rounds import train
from fedbourse.privacy import SimulatedNoise
from learning.flower_nodes import (
    BUDGETS,
    RECIPE,
    InProcessGrid,
    Node,
    ask,
    context,
    federation,
    make_device,
    message,
    round_request,
)

if TYPE_CHECKING:
    from pathlib import Path

TERMS = [RECIPE.terms(rho) for rho in BUDGETS]
SEATS = [Seat(f"owner-{i}", terms) for i, terms in enumerate(TERMS)]


def grid_of(tmp_path: Path, *, study_seed: int | None = 5) -> InProcessGrid:
    for i in range(3):
        make_device(tmp_path / f"{i}", i, study_seed=study_seed)
    return InProcessGrid({100 + i: Node(tmp_path / f"{i}") for i in range(3)})


def engine_on(grid: InProcessGrid, seats: list[Seat] = SEATS, **options: Any) -> FlowerEngine:
    return FlowerEngine(grid, seats, clock=grid.clock, sleep=grid.sleep, **options)  # type: ignore[arg-type]


def test_it_trains_the_model_of_the_local_engine(tmp_path: Path) -> None:
    everybody = federation()
    local = LocalEngine(RECIPE.build(), everybody, TERMS, SimulatedNoise(TERMS, seed=5))
    runs = [
        train(
            engine,
            RECIPE.build(),
            everybody.records,
            step_size=0.5,
            rounds=4,
            aggregation=aggregation,
        )
        for engine, aggregation in (
            (local, "precision"),
            (engine_on(grid_of(tmp_path)), "precision"),
        )
    ]
    np.testing.assert_allclose(runs[1].parameters, runs[0].parameters, rtol=0, atol=1e-12)
    assert runs[1].delivered.tolist() == [4, 4, 4]


def test_a_repeated_round_gets_the_same_update_and_costs_once(tmp_path: Path) -> None:
    device = make_device(tmp_path / "d")
    first, again = (ask(tmp_path / "d", **round_request()) for _ in range(2))
    assert first["vector"] == again["vector"]
    assert [account.charged for account in device.accounts()] == [1]
    other = ask(tmp_path / "d", **round_request(round=1))
    assert other["vector"] != first["vector"]


def test_noise_is_fresh_on_every_device_and_never_from_a_seed(tmp_path: Path) -> None:
    for name in "ab":
        make_device(tmp_path / name)
    vectors = {ask(tmp_path / name, **round_request())["vector"] for name in "ab"}
    assert len(vectors) == 2


REFUSALS = {
    "changed-terms": {"terms": "0" * 64},
    "beyond-rounds": {"round": 4},
    "other-model": {"model": np.ones(6).tobytes()},
    "unknown-task": {"task": "train/another"},
    "no-request": {"round": "0"},
    "no-model": {"model": b"\0" * 40},
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_cheating_server_is_refused_before_data_is_touched(reason: str, tmp_path: Path) -> None:
    device = make_device(tmp_path / "d")
    assert "vector" in ask(tmp_path / "d", **round_request())
    (records,) = (tmp_path / "d").glob("flower/*/records.npz")
    records.write_bytes(b"whoever reads this fails")
    refusal = ask(tmp_path / "d", **round_request() | REFUSALS[reason])
    assert refusal["reason"] == reason
    assert [account.charged for account in device.accounts()] == [1]


def test_a_past_round_is_refused(tmp_path: Path) -> None:
    make_device(tmp_path / "d")
    for k in (0, 1):
        assert "vector" in ask(tmp_path / "d", **round_request(round=k))
    assert ask(tmp_path / "d", **round_request(round=0))["reason"] == "past-round"


def test_a_scale_clip_or_budget_of_the_server_is_not_looked_at(tmp_path: Path) -> None:
    for name in "ab":
        make_device(tmp_path / name, study_seed=5)
    honest = ask(tmp_path / "a", **round_request())
    options = {"sigma": 0.0, "scale": 0.0, "clip": 1e9, "rho": 1e9, "noise": "none", "seed": 1}
    assert ask(tmp_path / "b", **round_request(), **options)["vector"] == honest["vector"]


def test_two_agreements_cannot_sell_the_same_privacy(tmp_path: Path) -> None:
    device = make_device(tmp_path / "d")
    from dataclasses import replace

    records = DeviceRecords.of(federation().parts[0])
    with pytest.raises(Refused, match="lifetime cap") as refusal:
        device.agree(replace(RECIPE, name="second"), 0.1, lambda: records, owner="owner-0")
    assert refusal.value.reason == "over-cap"
    assert device.agree(RECIPE, BUDGETS[0], lambda: records, owner="owner-0") == TERMS[0]
    with pytest.raises(Refused, match="not those that were agreed"):
        device.agree(RECIPE, 0.25, lambda: records, owner="owner-0")
    with pytest.raises(InvalidInput, match="another owner"):
        device.agree(RECIPE, BUDGETS[0], lambda: records, owner="somebody")


def test_what_is_wrong_with_the_data_stays_on_the_device(tmp_path: Path) -> None:
    device = make_device(tmp_path / "d")
    (records,) = (tmp_path / "d").glob("flower/*/records.npz")
    np.savez(records, features=np.full((50, 6), 1.0), labels=np.full(50, 123456.0))
    refusal = ask(tmp_path / "d", **round_request())
    assert refusal["reason"] == "failed"
    assert "123456" not in str(refusal["sentence"])
    assert [account.charged for account in device.accounts()] == [0]


def test_a_node_without_a_device_refuses(tmp_path: Path) -> None:
    assert ask(None, **round_request())["reason"] == "no-device"
    assert ask(tmp_path / "nowhere", **round_request())["reason"] == "no-device"


def test_the_run_cannot_name_the_device(tmp_path: Path) -> None:
    make_device(tmp_path / "d")
    from fedbourse.flower.client_app import app

    asked = message(RecordDict({ROUND_REQUEST: ConfigRecord(round_request())}))
    hostile = context(None)
    hostile.run_config = {"fedbourse-device": str(tmp_path / "d")}
    reply = app(asked, hostile)
    assert reply.content[REFUSAL]["reason"] == "no-device"


def _sends(record: str, **items: Any) -> Any:
    def twist(asked: Message, reply: Message) -> Message:
        if asked.metadata.message_type != "train":
            return reply
        return Message(RecordDict({record: ConfigRecord(items)}), reply_to=asked)

    return twist


@pytest.mark.parametrize(
    "items",
    [
        {"vector": np.zeros(6).tobytes()},
        {"vector": np.full(6, np.nan).tobytes()},
        {"vector": b"short"},
        {"vector": 3},
        {"another": 1},
    ],
    ids=["zeros", "nan", "short", "number", "nothing"],
)
def test_a_bad_update_is_left_out_with_its_reason(items: dict[str, Any], tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    grid.nodes[101].twist = _sends(UPDATE, **items)
    updates = engine_on(grid).ask(0, np.zeros(6))
    assert updates.owners.tolist() == [0, 2]
    assert {i: refusal.reason for i, refusal in updates.refused.items()} == {1: "bad-update"}


def test_a_refusal_comes_back_with_its_reason(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    ask(tmp_path / "2", **round_request(2, model=np.ones(6).tobytes()))
    updates = engine_on(grid).ask(0, np.zeros(6))
    assert updates.owners.tolist() == [0, 1]
    assert updates.refused[2].reason == "other-model"


@pytest.mark.parametrize("there", [True, False], ids=["beside", "instead"])
def test_a_name_is_not_believed_where_a_key_is_known(there: bool, tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    grid.nodes[101].key = b"the key of owner-1"
    if not there:
        del grid.nodes[101]
    grid.nodes[555] = Node(tmp_path / "1", key=b"another key")  # says that it is owner-1
    seats = [SEATS[0], Seat("owner-1", TERMS[1], b"the key of owner-1"), SEATS[2]]
    updates = engine_on(grid, seats).ask(0, np.zeros(6))
    assert (555, "query") in grid.asked
    assert (555, "train") not in grid.asked
    assert updates.owners.tolist() == ([0, 1, 2] if there else [0, 2])


def test_nobody_is_asked_for_a_name_where_all_keys_are_known(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    seats = []
    for i, seat in enumerate(SEATS):
        grid.nodes[100 + i].key = key = f"key {i}".encode()
        seats.append(Seat(seat.owner, seat.terms, key))
    assert len(engine_on(grid, seats).ask(0, np.zeros(6)).owners) == 3
    assert {kind for _, kind in grid.asked} == {"train"}


def test_a_silent_node_is_a_dropout_and_is_waited_for_once(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    grid.nodes[100].twist = lambda asked, reply: (
        reply if asked.metadata.message_type == "query" else None
    )
    engine = engine_on(grid, round_s=30, join_s=5)
    assert engine.ask(0, np.zeros(6)).owners.tolist() == [1, 2]
    assert grid.now >= 30
    before = grid.now
    assert engine.ask(1, np.ones(6)).owners.tolist() == [1, 2]
    assert grid.now - before < 5
    grid.nodes[100].twist = lambda asked, reply: reply
    engine.ask(2, np.zeros(6))
    assert engine.ask(3, np.ones(6)).owners.tolist() == [0, 1, 2]


def test_an_owner_who_never_comes_is_waited_for_once(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    del grid.nodes[102]
    engine = engine_on(grid, round_s=60, join_s=20)
    assert engine.ask(0, np.zeros(6)).owners.tolist() == [0, 1]
    assert 20 <= grid.now < 60
    before = grid.now
    engine.ask(1, np.ones(6))
    assert grid.now - before < 5


def test_a_node_that_came_back_under_another_id_is_asked_again(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    engine = engine_on(grid)
    engine.ask(0, np.zeros(6))
    grid.nodes[300] = grid.nodes.pop(100)
    assert engine.ask(1, np.ones(6)).owners.tolist() == [0, 1, 2]


def test_a_round_without_updates_does_not_count(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    for node in grid.nodes.values():
        node.twist = _sends(REFUSAL, reason="closed", sentence="the task has ended")
    with pytest.raises(Unreachable, match=r"round 0 has 0 updates of 3 .*the task has ended"):
        engine_on(grid).ask(0, np.zeros(6))


@pytest.mark.parametrize(
    "content",
    [RecordDict(), RecordDict({WHO: ConfigRecord({"owner": 7})})],
    ids=["nothing", "a number"],
)
def test_a_strange_greeting_is_nobody(content: RecordDict, tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    grid.nodes[400] = Node(
        tmp_path / "0", twist=lambda asked, reply: Message(content, reply_to=asked)
    )
    assert len(engine_on(grid).ask(0, np.zeros(6)).owners) == 3
    assert (400, "train") not in grid.asked


@pytest.mark.parametrize(
    ("seats", "sentence"),
    [
        ([], "at least one owner"),
        ([SEATS[0], SEATS[0]], "once; found 'owner-0' twice"),
        ([Seat("a", TERMS[0], b"k"), Seat("b", TERMS[0], b"k")], "public key once"),
    ],
    ids=["empty", "names", "keys"],
)
def test_a_roster_that_makes_no_sense_is_refused(seats: list[Seat], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        engine_on(InProcessGrid({}), seats)


def test_without_flwr_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "from fedbourse.errors import MissingExtra\n"
        "import fedbourse.cli.main\n"
        "try:\n    import fedbourse.flower.client_app\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'fedbourse[flower]'" in done.stdout
