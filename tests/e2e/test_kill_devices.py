"""Real devices and the real server, ended at every durable step of a trade: no side loses or gains.

Every transaction of every device is struck before its COMMIT and after it, from enrolment to the
end of the task; then every transaction of the server while live devices train. ``device_process``
says how devices are struck, ``network`` what must hold after each start.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fedbourse.testing.e2e.device_faults import FAULTS
from fedbourse.testing.e2e.forks import Forks
from fedbourse.testing.e2e.invariants import InvariantBroken
from fedbourse.testing.e2e.market_process import DONE
from fedbourse.testing.e2e.network import CARD, Network, device_accounts
from fedbourse.testing.e2e.supervised import Supervised

OWNERS = 2
STEPS = {"enrol", "create", "joined", "agree", "signed", "charge", "store", "receipt", "close",
         "ended"}  # fmt: skip


@contextmanager
def trading(
    forks: tuple[Forks, Forks], folder: Path, *, server: dict | None = None, **options
) -> Iterator[Network]:
    market = Supervised(forks[0], folder / "market", **(server or {}))
    network = Network(market, forks[1], owners=OWNERS, **options)
    try:
        yield network
    finally:
        network.close()
        market.kill()


def test_devices_killed_at_every_step_sell_what_they_agreed_to(forks, folder: Path) -> None:
    with trading(forks, folder, places=("before", "after")) as network:
        task = network.publish()
        network.run(task)
        network.check()
        assert not network.verified()
        struck = network.strikes()
        for seat in range(OWNERS):
            steps = {step for of, step, _ in struck if of == seat}
            assert {step.partition("/")[0] for step in steps} == STEPS
            assert {(step, place) for of, step, place in struck if of == seat} == {
                (step, place) for step in steps for place in ("before", "after")
            }
            assert sum(step.startswith("charge/") for step in steps) == CARD["rounds"]
        kills = sum(device.starts - 1 for device in network.devices)
        assert kills == len(struck) >= 20 * OWNERS
        assert network.checks >= kills
        updates = network.market.records().tables["updates"]
        assert len(updates) == OWNERS * CARD["rounds"]


def test_devices_killed_at_every_step_of_a_restart_spend_one_budget(forks, folder: Path) -> None:
    """One owner declines, so that the others give up what they signed, and sign other terms."""
    life = {"places": ("before", "after"), "lifetime_cap": 0.7}
    with trading(forks, folder, decliners=1, **life) as network:
        task = network.publish()
        network.run(task)
        network.check()
        assert not network.verified()
        kinds = [each["kind"] for each in network.market.records().tables["events"]]
        assert kinds.count("restarted") == 1
        assert kinds.count("settled") == 2
        for seat, device in enumerate(network.devices[:OWNERS]):
            given_up, sold = device_accounts(device)[task]
            assert (given_up.charged, given_up.closed) == (0, True)
            assert (sold.charged, sold.closed) == (CARD["rounds"], True)
            # Both budgets together would not fit under the cap.
            assert given_up.terms.rho + sold.terms.rho > life["lifetime_cap"]
            steps = {step for of, step, _ in network.strikes() if of == seat}
            count = Counter(step.partition("/")[0] for step in steps)
            assert (count["agree"], count["signed"], count["close"]) == (2, 2, 2)
            assert all(
                (seat, step, place) in network.strikes()
                for step in steps
                for place in ("before", "after")
            )
        decliner = network.devices[OWNERS]
        assert not device_accounts(decliner)
        refunds = [
            transfer
            for transfer in network.market.records().tables["transfers"]
            if transfer["id"].endswith(("/refund", "/fund"))
        ]
        assert not refunds  # all of R is bought from who is left


def test_a_server_killed_at_every_step_of_training_finds_its_devices_again(
    forks, folder: Path
) -> None:
    kinds = ("interest", "plan", "sign", "update", "scheduler-round", "scheduler-training")
    places = ("before", "middle", "after")
    server = {"places": places, "places_again": ("before", "after"), "only": kinds}
    with trading(forks, folder, server=server, named=True) as network:
        task = network.publish()
        network.run(task)
        network.check()
        assert not network.verified()
        struck: dict[str, set[str]] = {}
        for line in network.market.strikes():
            struck.setdefault(line["step"], set()).add(line["place"])
        done = {step: hit - {DONE} for step, hit in struck.items() if hit - {DONE}}
        assert {step.partition("/")[0] for step in done} == set(kinds)
        updates = [step for step in done if step.startswith("update/")]
        assert len(updates) == OWNERS * CARD["rounds"]
        assert all(hit >= {"before", "after"} for hit in done.values())
        assert network.market.starts - 1 == sum(map(len, done.values())) >= 25
        assert all(device.starts == 1 for device in network.devices)  # they never had to end


CAUGHT = {
    "sends_before_it_charges": "different updates left",
    "sends_before_it_stores": "different updates left|was not stored",
    "draws_again_for_a_repeated_request": "different updates left|was not stored",
    "forgets_to_reserve": "without a reserved budget",
    "keeps_reserved_what_it_gave_up": "two budgets of one task are reserved",
}
RESTARTS = {"keeps_reserved_what_it_gave_up"}
"""What is seen only where the price is discovered again."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_device_that_works_in_another_order_is_caught(fault: str, forks, folder: Path) -> None:
    decliners = int(fault in RESTARTS)
    life = {"places": ("before", "after"), "fault": fault}
    with trading(forks, folder, decliners=decliners, **life) as network:
        task = network.publish()
        with pytest.raises(InvariantBroken, match=CAUGHT[fault]):
            network.run(task)


@pytest.mark.parametrize(
    ("fault", "place", "sentence"),
    [
        ("responds_before_the_commit", "before", "was given, and is lost"),
        ("pays_in_a_second_transaction", "after", "owners were paid .* have earned"),
    ],
)
def test_a_server_that_works_in_another_order_is_caught(
    fault: str, place: str, sentence: str, forks, folder: Path
) -> None:
    with trading(forks, folder, named=True) as network:
        task = network.publish()
        market = network.market
        network.until(lambda: network.task(task)["interested"] == OWNERS)
        market.kill()
        strikes = {"places": (place,), "places_again": (place,), "only": ("update",)}
        market.life = replace(market.life, fault=fault, **strikes)
        market.start()
        with pytest.raises(InvariantBroken, match=sentence):
            network.run(task)
