"""A device sends updates within its terms, and reads data only for requests that it serves."""

import hashlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.device import SpendStore
from fedbourse.errors import InvalidInput, Refused
from fedbourse.learning.device import Device
from fedbourse.learning.device_records import DeviceRecords
from fedbourse.learning.models import model_named
from fedbourse.learning.records import Records
from fedbourse.privacy import ExactNoise, Filter, MemoryStore, NoNoise, SimulatedNoise, Terms

TERMS = Terms(task="task", rho=0.5, rounds=3, dimension=2, samples=20)
MODEL = model_named("logistic", features=2, classes=2)
ZERO = bytes(16)


def own_records(rows: int = TERMS.samples) -> DeviceRecords:
    column = np.linspace(-1, 1, rows)
    features = np.column_stack([column, np.ones(rows)])
    return DeviceRecords.of(Records(features, (column > 0).astype(float), 2))


def forbidden() -> DeviceRecords:
    raise AssertionError("the data was touched")


def guarded(store=None, *, cap: float = 1.0, agreed: bool = True) -> Filter:
    guard = Filter(store or MemoryStore(), lifetime_cap=cap)
    if agreed:
        guard.agree(TERMS)
    return guard


def device(guard: Filter, records=own_records, **options) -> Device:
    return Device(TERMS, MODEL, records, guard, **options)


def ask(asked: Device, round: int = 0, model: bytes = ZERO, terms: str = TERMS.digest) -> bytes:
    return asked.update(terms=terms, round=round, parameters=model)


def charged(guard: Filter) -> int:
    return sum(account.charged for account in guard.accounts())


def doubles(*numbers: float) -> bytes:
    return np.array(numbers, dtype="<f8").tobytes()


REFUSED = {
    "other terms": ({"terms": "0" * 64}, "changed-terms"),
    "round T": ({"round": 3}, "beyond-rounds"),
    "round -1": ({"round": -1}, "beyond-rounds"),
    "a huge round": ({"round": 2**80}, "beyond-rounds"),
    "NaN": ({"model": doubles(np.nan, 0)}, "no-model"),
    "infinity": ({"model": doubles(0, -np.inf)}, "no-model"),
    "a short model": ({"model": doubles(0)}, "no-model"),
    "a long model": ({"model": bytes(160)}, "no-model"),
    "half a double": ({"model": bytes(15)}, "no-model"),
    "no bytes": ({"model": "0" * 16}, "no-model"),
    "nothing": ({"model": None}, "no-model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_costs_nothing_and_reads_nothing(name: str) -> None:
    asked, reason = REFUSED[name]
    guard = guarded()
    with pytest.raises(Refused) as refused:
        ask(device(guard, forbidden), **asked)
    assert refused.value.reason == reason
    assert charged(guard) == 0


@pytest.mark.parametrize("round", [1.0, True, None, "0"])
def test_a_round_that_is_no_number_is_refused(round) -> None:
    guard = guarded()
    with pytest.raises(InvalidInput, match="round must be whole"):
        ask(device(guard, forbidden), round=round)
    assert charged(guard) == 0


def test_a_task_that_nobody_agreed_to_is_refused() -> None:
    with pytest.raises(Refused, match="no terms were agreed"):
        ask(device(guarded(agreed=False), forbidden))


def test_a_closed_task_gets_nothing() -> None:
    guard = guarded()
    ask(device(guard))
    guard.close("task")
    for round in (0, 1):
        with pytest.raises(Refused, match="has ended"):
            ask(device(guard, forbidden), round=round)


def test_a_second_model_and_an_old_round_are_refused() -> None:
    guard = guarded()
    own = device(guard)
    ask(own, 1)
    for round, model in ((1, doubles(1, 1)), (0, ZERO)):
        with pytest.raises(Refused):
            ask(own, round, model)
    assert charged(guard) == 1


class _Bad(Exception):
    """What an application's own data source raises."""


def broken() -> DeviceRecords:
    raise _Bad


def test_data_that_cannot_be_had_costs_nothing() -> None:
    guard = guarded()
    with pytest.raises(_Bad):
        ask(device(guard, broken))
    assert charged(guard) == 0
    assert len(ask(device(guard))) == 16  # and the round can still be answered


def test_records_that_were_chosen_for_other_terms_are_refused() -> None:
    with pytest.raises(InvalidInput, match="divide by 20 records; the records were chosen for 19"):
        ask(device(guarded(), lambda: own_records(19)))


@pytest.mark.parametrize("rows", [0, 1, 7, 19, 20])
def test_m_is_only_the_divisor(rows: int) -> None:
    full = own_records().records
    some = full.features[:rows], full.labels[:rows]

    def few() -> DeviceRecords:
        return DeviceRecords.choose(*some, classes=2, samples=TERMS.samples, secret=b"s")

    update = np.frombuffer(ask(device(guarded(), few, noise=NoNoise([TERMS]))), "<f8")
    expected = (0.5 - some[1]) @ some[0] / TERMS.samples if rows else np.zeros(2)
    assert update == pytest.approx(expected, abs=1e-15)


def test_a_failing_draw_is_charged_once_and_drawn_for_again() -> None:
    class Failing(ExactNoise):
        fails = True

        def release(self, *args):
            if self.fails:
                raise _Bad
            return super().release(*args)

    guard, noise = guarded(), Failing([TERMS])
    with pytest.raises(_Bad):
        ask(device(guard, noise=noise))
    noise.fails = False
    ask(device(guard, noise=noise))
    assert charged(guard) == 1


def test_records_are_read_once() -> None:
    reads = []

    def counted() -> DeviceRecords:
        reads.append(1)
        return own_records()

    own = device(guarded(), counted)
    for round in range(3):
        ask(own, round)
    assert len(reads) == 1


def test_a_repeated_request_gets_the_same_bytes_and_no_second_charge() -> None:
    guard = guarded()
    own = device(guard)
    first = ask(own)
    assert ask(own) == ask(device(guard, forbidden)) == first
    assert charged(guard) == 1


def test_a_restart_in_between_changes_nothing(tmp_path: Path) -> None:
    updates = []
    for _ in range(3):
        store = SpendStore(tmp_path / "spend.db")
        guard = Filter(store, lifetime_cap=1.0)
        guard.agree(TERMS)
        updates.append(ask(device(guard)))
        store.close()
    assert len(set(updates)) == 1
    store = SpendStore(tmp_path / "spend.db")
    assert charged(Filter(store, lifetime_cap=1.0)) == 1
    store.close()


def test_updates_are_the_clipped_mean_with_the_noise_of_the_terms() -> None:
    model = doubles(0.3, -0.2)
    plain = np.frombuffer(ask(device(guarded(), noise=NoNoise([TERMS])), model=model), "<f8")
    records = own_records().records
    gradients = np.stack(
        [(1 / (1 + np.exp(-x @ [0.3, -0.2])) - y) * x
         for x, y in zip(records.features, records.labels, strict=True)]
    )  # fmt: skip
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    assert plain == pytest.approx((gradients / np.maximum(1, norms / TERMS.clip)).mean(axis=0))
    noise = SimulatedNoise([TERMS, TERMS], seed=3)
    for seat in (0, 1):
        noisy = np.frombuffer(
            ask(device(guarded(), noise=noise, seat=seat), model=model), dtype="<f8"
        )
        drawn = noise.release(np.tile(plain, (2, 1)), np.array([0, 1]), 0)[seat]
        assert noisy == pytest.approx(drawn, abs=1e-15)


def test_noise_that_costs_more_than_the_terms_allow_is_refused() -> None:
    loud = Terms(task="task", rho=5.0, rounds=3, dimension=2, samples=20)
    with pytest.raises(Refused, match="would cost"):
        ask(device(guarded(), forbidden, noise=ExactNoise([loud])))


def test_terms_of_another_dimension_are_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="dimension 2; the model has 3"):
        Device(TERMS, model_named("logistic", features=3, classes=2), forbidden, guarded())


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 1)), max_size=12))
def test_whatever_is_asked_no_more_than_the_budget_leaves(round_requests) -> None:
    guard = guarded()
    own = device(guard, noise=SimulatedNoise([TERMS], seed=0))
    left = {}
    for round, model in round_requests:
        try:
            update = ask(own, round, doubles(model, 0))
        except Refused:
            continue
        left.setdefault(round, set()).add(hashlib.sha256(update).hexdigest())
    assert all(len(updates) == 1 for updates in left.values())
    assert len(left) == charged(guard)
    assert len(left) * Fraction(TERMS.round_rho) <= Fraction(TERMS.rho)
