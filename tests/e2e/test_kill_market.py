"""The real server, ended at every durable step: nothing acknowledged is lost, and all goes on.

Every write of two trades, and everything that the market does by itself, is struck before its
COMMIT reaches the database, and again after it: a client that repeats itself gets the one response
that was kept. ``market_process`` says how, ``invariants`` what must hold after each start, and
``trade`` what happens.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fedbourse.testing.e2e import market_process
from fedbourse.testing.e2e.faults import FAULTS
from fedbourse.testing.e2e.forks import Forks, start_forks
from fedbourse.testing.e2e.invariants import InvariantBroken
from fedbourse.testing.e2e.market_process import DONE, LOG
from fedbourse.testing.e2e.supervised import Supervised
from fedbourse.testing.e2e.trade import Trade

WRITES = {
    "token", "revoke", "enrolment", "enrol", "deposit", "create", "open", "interest", "announce",
    "plan", "sign", "decline", "train", "update", "cancel", "erase", "withdraw",
    "confirm", "return",
}  # fmt: skip
BY_ITSELF = {
    "scheduler-announced", "scheduler-ticked", "scheduler-last-tick", "scheduler-restarted",
    "scheduler-signed", "scheduler-training", "scheduler-round", "scheduler-payout",
    "scheduler-purge",
}  # fmt: skip
START = {"start-create-fedbourse_version", "start-operator", "start-update-payouts"}
WITHOUT_A_NAME = {"scheduler-purge", *START}
"""Steps that are known by their end only, so that they have no middle."""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with start_forks(market_process) as running:
        yield running


@contextmanager
def trading(forks: Forks, folder: Path, **life) -> Iterator[Trade]:
    market = Supervised(forks, folder / "market", **life)
    trade = Trade(market)
    try:
        yield trade
    finally:
        trade.close()
        market.kill()


@pytest.fixture(scope="module")
def undisturbed(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What everybody holds after the trades when nothing is struck."""
    with trading(forks, tmp_path_factory.mktemp("undisturbed")) as trade:
        balances = trade.run()
        assert not [check for check in trade.verified() if check.passed is False]
        assert {line["place"] for line in trade.market.strikes()} == {DONE}
    return balances


def check_that_every_step_was_struck(market: Supervised, kinds: set[str]) -> int:
    """Compare what was struck with what was to be, and return how many strikes that were."""
    struck: dict[str, set[str]] = {}
    for line in market.strikes():
        struck.setdefault(line["step"], set()).add(line["place"])
    seen: set[str] = set()
    for step, places in struck.items():
        kind = step.partition("/")[0]
        if kind == "scheduler-purge" and market.database_starts:
            places.add("lost")  # a purge that failed has time: it is tried again after minutes
        wanted = set(market.life.places_again if kind in seen else market.life.places)
        assert places - {DONE} == wanted - ({"middle"} if kind in WITHOUT_A_NAME else set()), step
        seen.add(kind)
    assert seen == kinds
    return sum(len(places - {DONE}) for places in struck.values())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_at_every_step_a_market_keeps_all_its_promises(
    kind: str, forks: Forks, folder: Path, undisturbed, request
) -> None:
    with ExitStack() as open_for_now:
        database = None
        if kind == "postgresql":
            server = request.getfixturevalue("postgresql")
            database = open_for_now.enter_context(server.database())
        trade = open_for_now.enter_context(
            trading(
                forks,
                folder,
                database=database,
                places=("before", "middle", "after"),
                # What is written again is struck again where a start is cheap.
                places_again=("before", "after") if kind == "sqlite" else (),
            )
        )
        assert trade.run() == undisturbed
        assert not [check for check in trade.verified() if check.passed is False]
        market = trade.market
        strikes = check_that_every_step_was_struck(market, WRITES | BY_ITSELF | START)
        least = 120 if kind == "sqlite" else 70
        assert strikes == market.starts - 1 > least
        assert market.checks > least
        assert "Traceback" not in (market.folder / LOG).read_text()


def test_a_market_outlives_its_database_at_every_step(
    forks: Forks, folder: Path, undisturbed, private_postgresql
) -> None:
    private_postgresql.execute("CREATE DATABASE market")
    with trading(
        forks,
        folder,
        database=private_postgresql.url("market"),
        server=private_postgresql,
        places=("before", "middle", "lost"),
        places_again=("after",),
    ) as trade:
        assert trade.run() == undisturbed
        assert not [check for check in trade.verified() if check.passed is False]
        market = trade.market
        strikes = check_that_every_step_was_struck(market, WRITES | BY_ITSELF | START)
        assert strikes >= market.database_starts > 80
        assert market.starts <= 1 + 2 * len(START)  # but for its start it ran all the time


# What is enough to strike, and what the invariants say then.
CAUGHT = {
    "responds_before_the_commit": (("before",), (), "acknowledged, and lost"),
    "forgets_its_responses": (("after",), (), "the response is not kept"),
    "pays_in_a_second_transaction": (("after",), ("update",), "owners were paid .* have earned"),
    "marks_payouts_before_it_hands_them_over": (
        ("after",),
        ("scheduler-payout",),
        "marked as handed over, and was not",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_works_in_another_order_is_caught(
    fault: str, forks: Forks, folder: Path
) -> None:
    places, only, sentence = CAUGHT[fault]
    with (
        trading(forks, folder, fault=fault, places=places, places_again=places, only=only) as trade,
        pytest.raises(InvariantBroken, match=sentence),
    ):
        trade.run()
