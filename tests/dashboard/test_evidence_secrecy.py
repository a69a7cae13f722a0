"""Nobody learns anything of the buyer's reference records, or of a score, before a task has ended.

Two markets live the same life, but the buyers' reference records differ. Whatever would tell of a
score differs as well, so everybody who looks at every page and route must find the same numbers.
"""

from __future__ import annotations

import pytest

from dashboard.test_subtracting import Watched, markets
from fedbourse.market import evidence_report
from fedbourse.market.records import State
from fedbourse.market.service import show
from fedbourse.tasks.evidence import reference_file
from market.evidence_trade import REFERENCE, VALUES, changes, records, trained

OTHER = reference_file(records(400, seed=7), salt=bytes(32))
BUYER, AUDITOR, OWNER = "the buyer", "an auditor", "an owner"


def person(market: Watched, who: str):
    town = market.town
    if who == OWNER:
        return town.holder(market.owners[1].name, "owner")
    return town.buyer if who == BUYER else town.people["auditor"]


def compared(pair, who: str) -> set[str]:
    """Return the addresses at which somebody finds other numbers in the one market."""
    views = []
    for market in pair:
        market.look_as(person(market, who))
        views.append(market.observe())
    one, other = views
    assert sum(code == 200 for code, _ in one.values()) > 15
    return {path for path in one if one[path] != other[path]}


@pytest.fixture
def pair(request):
    """Two markets in the middle of training, with updates of the open round."""
    values = (0.2, *VALUES)
    with markets(request, values, values) as made:
        for market, reference in zip(made, (REFERENCE, OTHER), strict=True):
            task = market.trading.in_training(market.owners, **changes(reference))
            task = trained(market.trading, task, market.owners, without_data=[0], until=4)
            market.trading.update(market.owners[1], task)
            market.task = task
            assert task.state is State.TRAINING
            states = [each.state for each in market.trading.allocations(task.id)]
            assert states.count("dismissed") == 1
        with made[0].trading.store.read() as one, made[1].trading.store.read() as other:
            sums = [tx.device_evidence(m.task.id) for tx, m in zip((one, other), made, strict=True)]
        assert [each.document for each in sums[0]] != [each.document for each in sums[1]]
        yield made


def test_nobody_finds_a_score_while_devices_train(pair) -> None:
    for who in (BUYER, AUDITOR, OWNER):
        assert not compared(pair, who), who


@pytest.mark.faults
def test_a_market_that_shows_scores_too_early_is_caught(pair, monkeypatch) -> None:
    monkeypatch.setattr(
        evidence_report, "ended_task", lambda tx, caller, id: show(tx.task(id), caller)
    )
    assert "/v1/tasks/TASK/evidence" in compared(pair, AUDITOR)
    assert "/v1/tasks/TASK/evidence" in compared(pair, OWNER)
