"""What the sums over rounds tell of a device, and what they cannot."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedbourse.errors import NotAllowed
from fedbourse.learning.aggregation import aggregate
from fedbourse.market import monitoring, updates
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.records import DeviceStatistics
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading

SMALLER = "its updates are smaller than their noise"
LARGER = "its updates are larger than clip and noise allow"
AGAINST = "it pulls against the others"
AGAIN = "it sends the same numbers again"
ROUNDS = {2: 400, 1000: 40}


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(100_000_000)
    return made


class Devices:
    """Four devices whose clipped means share a direction; the last one may do something else."""

    def __init__(self, dimension, clip_to_noise, seed, false=None):
        self.rng = np.random.default_rng([dimension, seed])
        self.d, self.clip, self.false = dimension, clip_to_noise, false
        self.kept = None

    def flags(self, rounds, *, signal=1.0):
        """Return what is said of the first device and of the last one, in units of sigma."""
        sums = [DeviceStatistics("t", f"owner:{i}") for i in range(4)]
        for _ in range(rounds):
            way = self.rng.normal(size=self.d)
            mean = signal * self.clip * way / np.linalg.norm(way)
            vectors = [mean + self.rng.normal(size=self.d) for _ in range(4)]
            if self.false is not None:
                vectors[-1] = self.false(self, mean, vectors[-1] - mean)
            for i, vector in enumerate(vectors):
                others = sum(each for j, each in enumerate(vectors) if j != i)
                sums[i] = monitoring.added(sums[i], vector, others, vector.tobytes())
        bounds = monitoring.square_bounds(updates=rounds, dimension=self.d, clip_to_noise=self.clip)
        return monitoring.flags(sums[0], bounds), monitoring.flags(sums[-1], bounds)


def repeats(devices, mean, noise):
    if devices.kept is None:
        devices.kept = mean + noise
    return devices.kept


FALSE = {
    "twice the noise": (lambda devices, mean, noise: mean + 2 * noise, [LARGER]),
    "half the noise": (lambda devices, mean, noise: mean + noise / 2, [SMALLER]),
    "the opposite": (lambda devices, mean, noise: noise - mean, [AGAINST]),
}


@pytest.mark.slow
@pytest.mark.parametrize("dimension", ROUNDS)
@pytest.mark.parametrize("clip_to_noise", [0.01, 0.5, 5.0])
@pytest.mark.parametrize("signal", [0.0, 1.0])
def test_honest_devices_are_not_flagged(dimension, clip_to_noise, signal) -> None:
    for seed in range(10):
        found = Devices(dimension, clip_to_noise, seed).flags(ROUNDS[dimension], signal=signal)
        assert found == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("dimension", ROUNDS)
@pytest.mark.parametrize("what", FALSE)
def test_a_false_device_is_flagged_and_the_others_are_not(dimension, what) -> None:
    false, expected = FALSE[what]
    for seed in range(5):
        devices = Devices(dimension, 0.7 if dimension == 2 else 5.0, seed, false)
        assert devices.flags(ROUNDS[dimension]) == ([], expected)


@pytest.mark.parametrize("dimension", ROUNDS)
def test_who_sends_the_same_numbers_each_round_is_flagged(dimension) -> None:
    honest, false = Devices(dimension, 0.5, 1, repeats).flags(ROUNDS[dimension])
    assert honest == []
    assert AGAIN in false


@pytest.mark.parametrize(
    "unseen",
    [
        lambda devices, mean, noise: noise,  # pure noise of the right size
        lambda devices, mean, noise: devices.clip * np.eye(1, devices.d)[0] + noise,
    ],
    ids=["pure noise", "a fixed direction"],
)
@pytest.mark.parametrize("dimension", ROUNDS)
def test_what_cannot_be_told_from_honest_work(dimension, unseen) -> None:
    assert Devices(dimension, 0.7, 3, unseen).flags(ROUNDS[dimension]) == ([], [])


def test_where_the_noise_is_small_beside_the_clip_its_size_says_little() -> None:
    for false, _ in (FALSE["twice the noise"], FALSE["half the noise"]):
        assert Devices(2, 30.0, 0, false).flags(ROUNDS[2])[1] == []


def test_bounds_hold_for_many_answers_of_large_models() -> None:
    for numbers in (10**6, 10**6 + 1, 10**8, 10**11):
        low, high = monitoring.square_bounds(updates=numbers, dimension=1, clip_to_noise=0.0)
        # Cornish and Fisher's first terms, 4.7534... being the normal quantile.
        shift, bend = 4.753424308822899 * np.sqrt(2 * numbers), 2 / 3 * (4.753424308822899**2 - 1)
        assert low == pytest.approx(numbers - shift + bend, abs=1.0)
        assert high == pytest.approx(numbers + shift + bend, abs=1.0)


def played(trading, owners, task, budgets, rounds):
    """Let the first owner answer as the noise says, the second with zeros added to it twice."""
    for number in range(rounds):
        task = trading.task(task.id)
        for i, owner in enumerate(owners):
            scale = task.card.privacy_terms(task=task.id, budget=budgets[owner.name]).scale
            rng = np.random.default_rng([number if i != 1 else 0, i])
            vector = rng.normal(0, scale, task.card.dimension)
            kind = "<f4" if i == 2 else "<f8"
            trading.do(
                updates.accept_update,
                owner.caller,
                task.id,
                round=number,
                body=vector.astype(kind).tobytes(),
            )
        trading.advance()


@pytest.mark.parametrize("vesting", ["by-round", "upfront"])
def test_sums_are_kept_as_rounds_close_and_pay_is_never_withheld(trading, vesting) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners, vesting=vesting, rounds=6)
    budgets = {allocation.owner: allocation.budget for allocation in trading.allocations(task.id)}
    payments = {allocation.owner: allocation.payment for allocation in trading.allocations(task.id)}
    played(trading, owners, task, budgets, 6)
    found = trading.shown(monitoring.of_task, AUDITOR, task.id, after="", limit=9)
    assert [each["updates"] for each in found["devices"]] == [6, 6, 6]
    assert [each["repeats"] for each in found["devices"]] == [0, 5, 0]
    assert AGAIN in found["devices"][1]["flags"]
    assert found["note"] == monitoring.NOTE
    for owner in owners:
        assert trading.balance(owner.name) == payments[owner.name]
        own = trading.shown(monitoring.of_task, owner.caller, task.id, after="", limit=9)
        assert own["devices"] == [each for each in found["devices"] if each["owner"] == owner.name]
    with pytest.raises(NotAllowed):
        trading.shown(monitoring.of_task, BUYER, task.id, after="", limit=9)
    pages = [
        trading.shown(monitoring.of_task, OPERATOR, task.id, after=after, limit=2)
        for after in ("", owners[1].name)
    ]
    assert [page["next"] for page in pages] == [owners[1].name, None]
    assert [each for page in pages for each in page["devices"]] == found["devices"]
    trading.do(owner_commands.erase, owners[0].caller, task.id)
    erased = trading.shown(monitoring.of_task, AUDITOR, task.id, after="", limit=9)["devices"][0]
    assert (erased["updates"], erased["squares_low"], erased["squares_high"]) == (6, None, None)


@pytest.mark.parametrize("aggregation", ["equal", "precision"])
def test_the_step_is_along_the_weighted_mean_of_doubles_and_floats(trading, aggregation) -> None:
    owners = trading.owners(1.0, 1.1, 1.3)
    task = trading.in_training(owners, aggregation=aggregation)
    allocations = trading.allocations(task.id)
    scales = np.array(
        [
            task.card.privacy_terms(task=task.id, budget=allocation.budget).scale
            for allocation in allocations
        ]
    )
    rng = np.random.default_rng(7)
    vectors = rng.normal(size=(3, 3)) * scales[:, None]
    vectors[1] = vectors[1].astype("<f4")
    for owner, vector, kind in zip(owners, vectors, ("<f8", "<f4", "<f8"), strict=True):
        body = vector.astype(kind).tobytes()
        trading.do(updates.accept_update, owner.caller, task.id, round=0, body=body)
    with trading.store.read() as tx:
        before = np.frombuffer(tx.round(task.id, 0).model)
    trading.advance()
    with trading.store.read() as tx:
        after = np.frombuffer(tx.round(task.id, 1).model)
        sums = tx.device_statistics(task.id)
    mean = aggregate([vectors], scales, aggregation, dimension=3).mean
    assert after == pytest.approx(before - task.card.step_size * mean, rel=1e-12, abs=1e-15)
    for each, vector, scale in zip(sums, vectors, scales, strict=True):
        assert each.squares == pytest.approx(vector @ vector / scale**2)
        rest = [i for i in range(3) if vectors[i] is not vector and i != sums.index(each)]
        relative = scales**-2.0 if aggregation == "precision" else np.ones(3)
        others = relative[rest] @ vectors[rest]
        expected = vector @ others / (scale * np.linalg.norm(others))
        assert each.agreement == pytest.approx(expected)


def test_late_and_bad_answers_are_remembered_once_a_round(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    ann, bob = owners

    def refuse(owner, round, body):
        reasons = []
        with pytest.raises(Exception):  # noqa: B017, PT011 - which one is another test's
            trading.do(
                updates.accept_update,
                owner.caller,
                task.id,
                round=round,
                body=body,
                refused=reasons.append,
            )
        for reason in reasons:
            trading.do(updates.remember_refused, owner.caller, task.id, round=round, reason=reason)
        return reasons

    nan = np.array([np.nan, 0, 0]).tobytes()
    assert refuse(ann, 0, b"") == ["length"]
    assert refuse(ann, 0, nan) == ["not finite"]
    assert refuse(ann, 0, np.array([np.inf, 0, 0], "<f4").tobytes()) == ["not finite"]
    assert refuse(ann, 0, bytes(12)) == ["norm"]
    assert refuse(ann, 0, np.full(3, 1e300).tobytes()) == ["norm"]
    assert refuse(bob, 1, bytes(24)) == []  # not opened yet: neither late nor bad
    trading.update(ann, task)
    assert refuse(ann, 0, bytes(24)) == ["differs"]
    trading.update(bob, task)
    trading.advance()
    zed = replace(ann, name="owner:zed")
    assert refuse(bob, 0, bytes(24)) == ["differs"]
    assert refuse(zed, 0, bytes(24)) == ["late"]  # but it signed nothing
    trading.do(buyer_commands.cancel, BUYER, task.id)
    assert refuse(bob, 1, bytes(24)) == ["late"]
    assert refuse(bob, 2, bytes(24)) == ["late"]  # which was never opened
    with trading.store.read() as tx:
        found = tx.refused_updates(task.id, [ann.name, bob.name, zed.name])
    assert found == {ann.name: {"differs": 1}, bob.name: {"differs": 1, "late": 1}}


def test_a_look_reads_the_sums_of_those_whom_it_shows(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.completed(owners, rounds=1)
    names = [owner.name for owner in owners]
    looks = [
        (owners[1].caller, {"after": "", "limit": 100}, names[1:2]),
        (AUDITOR, {"after": "", "limit": 2}, names[:2]),
        (OPERATOR, {"after": names[1], "limit": 2}, names[2:]),
    ]
    for who, page, shown in looks:
        with trading.store.read() as tx:
            read = []
            for name in ("device_statistics", "refused_updates"):
                look = partial(_watched, getattr(tx, name), read)
                setattr(tx, name, look)
            found = monitoring.of_task(tx, who, task.id, **page)
        assert [device.owner for device in found.devices] == shown
        assert [device.updates for device in found.devices] == [1] * len(shown)
        assert read == [shown, shown]


def _watched(look, read, task, owners=None):
    read.append(owners)
    return look(task, owners)
