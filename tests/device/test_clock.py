"""Under the clock a device says in or out, and nothing that tells what privacy is worth to it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from device.end_to_end import Distinguished, Start, check_alike, through_the_market
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.trading import Owner, card

RIVALS = tuple(Owner(f"owner:rival-{k}", value) for k, value in enumerate((1.1, 1.5, 2.0, 3.0)))
LOT = 1.0
PATIENT = Deadlines(tick_s=600, plans_s=36_000, terms_s=3600, review_s=0, round_s=3600)
PROPORTIONAL = card(rounds=2, deadlines=PATIENT)
CLOCK = replace(PROPORTIONAL, compensation="clock", min_budget=LOT, max_rho=LOT)


@pytest.fixture
def starts(tmp_path: Path, sqlite_template: Path) -> dict[float, Start]:
    """One device with one key, for owners of several values."""
    first = Start.make(tmp_path, sqlite_template)
    return {value: first.valued(value, tmp_path / f"{value:g}") for value in (0.2, 1.4, 2.7)}


def records() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((20, 3)), rng.integers(0, 2, 20).astype(float)


def said(start: Start, card):
    """All that a device says to the market in a whole trade: paths and bodies, byte by byte."""
    return through_the_market(start, card, lambda _: records(), rivals=RIVALS)


def test_nothing_that_a_seller_sends_tells_its_value(starts) -> None:
    low, high = (said(starts[value], CLOCK) for value in (0.2, 1.4))
    assert len(low.updates) == CLOCK.rounds  # it sells
    plans = [body for _, target, body in _requests(low) if target.endswith("/plan")]
    assert len(plans) > 3
    check_alike(low, high)


def test_who_leaves_tells_between_which_two_prices(starts) -> None:
    seller, outsider = (said(starts[value], CLOCK) for value in (1.4, 2.7))
    assert not outsider.updates
    with pytest.raises(Distinguished):
        check_alike(seller, outsider)


@pytest.mark.faults
def test_under_proportional_pay_the_same_comparison_tells_sellers_apart(starts) -> None:
    with pytest.raises(Distinguished, match="it says"):
        check_alike(*(said(starts[value], PROPORTIONAL) for value in (0.2, 1.4)))


def _requests(observed):
    return [each for each in observed.messages if isinstance(each, tuple)]
