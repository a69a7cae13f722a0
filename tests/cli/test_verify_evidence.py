"""An auditor fetches the rounds of a task one after the other, however large they are together."""

from pathlib import Path

import pytest

from fedbourse.cli.verify_evidence import KeptRounds
from fedbourse.errors import ProtocolError


class Market:
    """A connection to a market that kept rounds."""

    def __init__(self, *, updates=None) -> None:
        self.asked: list[str] = []
        self._updates = updates

    def get(self, path, *, allowance):
        self.asked.append(path)
        return {"round": int(path.split("/")[-2]), "request": "r", "model": "m"}

    def pages(self, path, items, *, allowance):
        assert items == "updates"
        yield from self._updates or [
            {"owner": f"owner:{name}", "vector": f"{name * 1000}"} for name in "ab"
        ]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_only_two_rounds_are_kept_at_once() -> None:
    market, before = Market(), open_files()
    with KeptRounds(market, "/v1/tasks/1") as rounds:
        for number in range(20):
            updates = rounds[number]["updates"]
            assert sorted(updates) == ["owner:a", "owner:b"]
            assert (updates["owner:b"], updates["owner:a"]) == ("b" * 1000, "a" * 1000)
            if number:
                assert rounds[number - 1]["updates"]["owner:a"] == "a" * 1000
            assert open_files() - before <= 2
    assert open_files() == before
    assert len(market.asked) == 20  # each of them once


@pytest.mark.parametrize("update", [{}, {"owner": 3, "vector": "x"}, {"owner": "a", "vector": "é"}])
def test_updates_of_another_shape_are_refused(update) -> None:
    with (
        KeptRounds(Market(updates=[update]), "/v1/tasks/1") as rounds,
        pytest.raises(ProtocolError),
    ):
        rounds[0]
