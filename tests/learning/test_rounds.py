"""Algorithm 1: weights, dropouts, exact resume, reproducible bytes, and a real reference."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedbourse.device import SpendStore
from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput, Refused
from fedbourse.learning.aggregation import aggregate
from fedbourse.learning.checkpoint import Checkpoint
from fedbourse.learning.data import load
from fedbourse.learning.engines import LocalEngine
from fedbourse.learning.engines.local import sometimes_away
from fedbourse.learning.models import model_named
from fedbourse.learning.partition import partition
from fedbourse.learning.query import QUERIES, query_named
from fedbourse.learning.reference import reference_accuracy
from fedbourse.learning.rounds import train
from fedbourse.privacy.filter import Filter
from fedbourse.privacy.memory_store import MemoryStore
from fedbourse.privacy.noise import ExactNoise, NoNoise, SimulatedNoise
from fedbourse.privacy.terms import Terms
from learning.federations import federation, plain_clipped_mean

ROUNDS = 12


def terms_for(owners, model, *, rounds=ROUNDS, rhos=(0.5, 1.0, 2.0), clip=1.0):
    return [
        Terms("task", rho, rounds, model.dimension, int(size), clip)
        for rho, size in zip(rhos, owners.sizes, strict=False)
    ]


@pytest.fixture
def task():
    owners = federation()
    model = model_named("logistic", features=4, classes=2)
    return owners, model, terms_for(owners, model)


def run(task, noise=None, *, engine=None, rounds=ROUNDS, **options):
    owners, model, terms = task
    engine = engine or LocalEngine(model, owners, terms, noise or SimulatedNoise(terms, seed=5))
    return train(engine, model, owners.records, step_size=0.5, rounds=rounds, **options)


def test_without_noise_it_is_gradient_descent_on_the_mean_of_clipped_gradients(task) -> None:
    owners, model, terms = task
    parameters = np.zeros(4)
    for _ in range(ROUNDS):
        parts = [plain_clipped_mean("logistic", parameters, r, 1.0) for r in owners.parts]
        parameters = parameters - 0.5 * np.mean(parts, axis=0)
    found = run(task, NoNoise(terms))
    assert np.allclose(found.parameters, parameters, atol=1e-8)
    assert found.accuracy == model.accuracy(found.parameters, owners.records)
    assert found.rounds[-1].loss == model.loss(found.parameters, owners.records)
    assert [seen.number for seen in found.rounds] == list(range(ROUNDS))


@pytest.mark.slow
def test_the_noise_in_the_model_is_what_the_weights_say() -> None:
    owners = federation(samples=4)
    model = model_named("logistic", features=4, classes=2)
    terms = terms_for(owners, model, rounds=1)
    sigmas = np.array([t.scale for t in terms])
    expected = {"equal": np.sqrt(sigmas @ sigmas) / 3, "precision": (sigmas**-2).sum() ** -0.5}
    for aggregation, sigma in expected.items():
        steps = []
        for seed in range(800):
            engine = LocalEngine(model, owners, terms, SimulatedNoise(terms, seed=seed))
            updates = engine.ask(0, np.zeros(4)).vectors
            steps.append(aggregate([updates], engine.scales, aggregation, dimension=4).mean)
        spread = np.std(steps, axis=0).mean()
        assert spread == pytest.approx(sigma, rel=0.05)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(task) -> None:
    _owners, _model, terms = task
    first, again, other = (run(task, SimulatedNoise(terms, seed=s)) for s in (5, 5, 6))
    assert first.parameters.tobytes() == again.parameters.tobytes()
    assert first.rounds == again.rounds
    assert first.parameters.tobytes() != other.parameters.tobytes()


def test_an_owner_that_is_away_spends_nothing_and_the_others_go_on(task) -> None:
    owners, model, terms = task
    away = {3: [False, True, True], 4: [False, False, False], 7: [True, False, True]}

    def available(number, count):
        return np.array(away.get(number, [True] * count))

    engine = LocalEngine(model, owners, terms, SimulatedNoise(terms, seed=5), available=available)
    found = run(task, engine=engine)
    assert found.delivered.tolist() == [ROUNDS - 2, ROUNDS - 2, ROUNDS - 1]
    assert [seen.updates for seen in found.rounds][3:8] == [2, 0, 3, 3, 2]
    for guard, agreed, delivered in zip(engine.filters, terms, found.delivered, strict=True):
        assert guard.accounts()[0].charged == delivered
        assert float(guard.accounts()[0].spent) == pytest.approx(agreed.rho * delivered / ROUNDS)


def test_a_round_without_updates_leaves_the_model_as_it_is(task) -> None:
    owners, model, terms = task
    engine = LocalEngine(
        model, owners, terms, NoNoise(terms), available=sometimes_away(1.0, seed=0)
    )
    found = run(task, engine=engine)
    assert not found.parameters.any()
    assert not found.delivered.any()


def test_who_is_away_follows_the_rate_and_the_seed() -> None:
    there = [sometimes_away(0.25, seed=1)(k, 400) for k in range(10)]
    assert np.mean(there) == pytest.approx(0.75, abs=0.03)
    assert (sometimes_away(0.25, seed=1)(3, 400) == there[3]).all()
    assert (there[0] != there[1]).any()


@pytest.mark.parametrize("stop", [1, 5, 11])
@pytest.mark.parametrize("every", [1, 4])
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(task, tmp_path, stop, every) -> None:
    class Stopped(Exception):
        pass

    def stopping(seen, updates):
        if seen.number == stop:
            raise Stopped

    file = tmp_path / "run.npz"
    keep = Checkpoint(file, {"task": 1}, every=every)
    with pytest.raises(Stopped):
        run(task, checkpoint=keep, on_round=stopping)
    resumed = run(task, checkpoint=Checkpoint(file, {"task": 1}, every=every))
    straight = run(task)
    assert resumed.parameters.tobytes() == straight.parameters.tobytes()
    assert resumed.rounds == straight.rounds
    assert (resumed.delivered == straight.delivered).all()
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_finished_run_is_not_trained_again(task, tmp_path) -> None:
    keep = Checkpoint(tmp_path / "run.npz", {})
    first = run(task, checkpoint=keep)

    class Untouchable:
        scales = np.ones(3)

        def ask(self, number, parameters):
            raise AssertionError("a finished run asks nobody")

    assert run(task, engine=Untouchable(), checkpoint=keep).rounds == first.rounds


def test_checkpoints_that_are_damaged_or_of_another_task_are_refused(task, tmp_path) -> None:
    file = tmp_path / "run.npz"
    run(task, checkpoint=Checkpoint(file, {"seed": 1}))
    with pytest.raises(InvalidFile, match="holds another training"):
        run(task, checkpoint=Checkpoint(file, {"seed": 2}))
    whole = file.read_bytes()
    for broken in (b"", b"no", whole[: len(whole) // 2]):
        file.write_bytes(broken)
        with pytest.raises(InvalidFile, match="not a checkpoint, or is damaged"):
            Checkpoint(file, {"seed": 1}).load()
    with pytest.raises(CannotWrite, match="No such file or directory"):
        run(task, checkpoint=Checkpoint(tmp_path / "nowhere" / "run.npz", {}))


def test_a_repeated_round_gets_the_stored_update_and_another_model_a_refusal(task) -> None:
    owners, model, terms = task
    engine = LocalEngine(model, owners, terms, ExactNoise(terms))
    first = engine.ask(0, np.zeros(4))
    again = engine.ask(0, np.zeros(4))
    assert first.vectors.tobytes() == again.vectors.tobytes()
    for number, parameters, reason in (
        (0, np.ones(4), "other-model"),
        (12, first, "beyond-rounds"),
    ):
        wanted = parameters if isinstance(parameters, np.ndarray) else np.zeros(4)
        updates = engine.ask(number, wanted)
        assert not len(updates.owners)
        assert {r.reason for r in updates.refused.values()} == {reason}
        assert set(updates.refused) == {0, 1, 2}
    assert [guard.accounts()[0].charged for guard in engine.filters] == [1, 1, 1]


def test_kept_and_fresh_updates_stand_beside_their_owners(task) -> None:
    owners, model, terms = task
    there = {"now": np.array([False, True, False])}
    engine = LocalEngine(
        model, owners, terms, ExactNoise(terms), available=lambda number, count: there["now"]
    )
    alone = engine.ask(0, np.zeros(4))
    there["now"] = np.array([1, 1, 1])
    everybody = engine.ask(0, np.zeros(4))
    assert everybody.owners.tolist() == [0, 1, 2]
    assert (everybody.vectors[1] == alone.vectors[0]).all()
    assert len({row.tobytes() for row in everybody.vectors}) == 3


def test_a_device_that_refuses_is_left_out_and_training_goes_on(task) -> None:
    owners, model, terms = task
    engine = LocalEngine(model, owners, terms, SimulatedNoise(terms, seed=0))

    def close_one(seen, updates):
        if seen.number == 3:
            engine.filters[1].close("task")

    found = run(task, engine=engine, on_round=close_one)
    assert found.delivered.tolist() == [ROUNDS, 4, ROUNDS]


def test_noise_that_costs_more_than_agreed_is_refused(task) -> None:
    owners, model, terms = task
    noise = SimulatedNoise(terms, seed=0)
    noise.costs = noise.costs * 2
    updates = LocalEngine(model, owners, terms, noise).ask(0, np.zeros(4))
    assert {r.reason for r in updates.refused.values()} == {"over-budget"}


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (np.full(4, np.nan), "a model must be finite"),
        (np.array([0, 0, 0, np.inf]), "a model must be finite"),
        (np.zeros(3), r"a model must be 4 doubles; found float64 of shape \(3,\)"),
        (np.zeros(4, dtype=np.float32), "a model must be 4 doubles; found float32"),
    ],
)
def test_what_is_no_model_costs_nothing(task, parameters, sentence) -> None:
    owners, model, terms = task
    engine = LocalEngine(model, owners, terms, SimulatedNoise(terms, seed=0))
    with pytest.raises(InvalidInput, match=sentence):
        engine.ask(0, parameters)
    assert not any(guard.accounts()[0].charged for guard in engine.filters)


def test_two_threads_get_one_update(task) -> None:
    owners, model, terms = task
    engine = LocalEngine(model, owners, terms, ExactNoise(terms))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: engine.ask(0, np.zeros(4)).vectors.tobytes(), range(8)))
    assert len(set(found)) == 1


def test_a_run_with_durable_devices_resumes_after_a_crash(task, tmp_path) -> None:
    owners, model, terms = task

    class Crash(Exception):
        pass

    def attempt(crash_at):
        stores = [SpendStore(tmp_path / f"{i}.db") for i in range(3)]
        guards = [Filter(store, lifetime_cap=5.0) for store in stores]
        engine = LocalEngine(model, owners, terms, ExactNoise(terms), filters=guards)

        def crash(seen, updates):
            if seen.number == crash_at:
                raise Crash

        try:
            return run(
                task,
                engine=engine,
                checkpoint=Checkpoint(tmp_path / "run.npz", {}),
                on_round=crash,
            ), [guard.accounts()[0].charged for guard in guards]
        finally:
            for store in stores:
                store.close()

    for crash_at in (0, 5, 6):
        with pytest.raises(Crash):
            attempt(crash_at)
    found, charged = attempt(None)
    assert found.delivered.tolist() == charged == [ROUNDS] * 3


def test_a_training_that_diverges_says_so(task) -> None:
    owners, model, terms = task
    model = model_named("least-squares", features=4, classes=2)
    engine = LocalEngine(model, owners, terms, NoNoise(terms))
    with pytest.raises(InvalidInput, match=r"diverged in round 0: .* smaller step_size than 1e"):
        train(engine, model, owners.records, step_size=1e200, rounds=3)


def test_a_checkpoint_of_another_shape_is_refused(task, tmp_path) -> None:
    keep = Checkpoint(tmp_path / "run.npz", {})
    run(task, checkpoint=keep)
    with pytest.raises(InvalidFile, match=r"12 rounds of .* this training has 5"):
        run(task, checkpoint=keep, rounds=5)


def test_a_checkpoint_is_on_the_disk_before_it_counts(task, tmp_path, monkeypatch) -> None:
    calls = []
    real_sync, real_replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (calls.append("sync"), real_sync(file))[1])
    monkeypatch.setattr(
        Path, "replace", lambda old, new: (calls.append("replace"), real_replace(old, new))[1]
    )
    run(task, checkpoint=Checkpoint(tmp_path / "run.npz", {}))
    assert calls == ["sync", "replace"] * ROUNDS


def test_a_device_that_sold_its_cap_elsewhere_does_not_join(task) -> None:
    owners, model, terms = task
    guards = [Filter(MemoryStore(), lifetime_cap=2.0) for _ in terms]
    guards[0].agree(Terms("other", 1.8, 5, 2, 2))
    with pytest.raises(Refused, match="does not fit under the lifetime cap"):
        LocalEngine(model, owners, terms, NoNoise(terms), filters=guards)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"samples": 6}, "agreed to updates from 6 records; found 7"),
        ({"dimension": 5}, "agreed to dimension 5 and clip 1"),
        ({"clip": 2.0}, "agreed to dimension 4 and clip 2"),
    ],
)
def test_terms_that_do_not_fit_the_task_are_refused(task, change, sentence) -> None:
    owners, model, terms = task
    wrong = {**vars(terms[2]), **change}
    names = ("task", "rho", "rounds", "dimension", "samples", "clip")
    terms = [*terms[:2], Terms(**{name: wrong[name] for name in names})]
    with pytest.raises(InvalidInput, match=sentence):
        LocalEngine(model, owners, terms, NoNoise(terms))
    with pytest.raises(InvalidInput, match="terms must be one for each of 3 owners; found 2"):
        LocalEngine(model, owners, terms[:2], NoNoise(terms[:2]))


@pytest.mark.slow
def test_exact_noise_trains_like_simulated_noise(task) -> None:
    _owners, _model, terms = task
    exact = [run(task, ExactNoise(terms)).parameters for _ in range(150)]
    simulated = [run(task, SimulatedNoise(terms, seed=s)).parameters for s in range(150)]
    assert np.std(exact, axis=0) == pytest.approx(np.std(simulated, axis=0), rel=0.35)
    error = np.std(simulated, axis=0) / np.sqrt(150)
    assert (np.abs(np.mean(exact, axis=0) - np.mean(simulated, axis=0)) < 6 * error).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "owners", "step_size", "rounds"),
    [("flights", 12, 2.0, 150), ("sklearn:breast_cancer", 18, 0.5, 400)],
)
def test_without_noise_it_reaches_what_scikit_learn_reaches(
    data, owners, step_size, rounds
) -> None:
    source = load(data, seed=0)
    dealt = partition(source.pool, owners=owners, samples=source.default_samples, seed=0)
    features = source.buyer.features.shape[1]
    model = model_named(source.default_model, features=features, classes=source.buyer.classes)
    terms = [Terms("t", 1.0, rounds, model.dimension, int(m), 4.0) for m in dealt.sizes]
    engine = LocalEngine(model, dealt, terms, NoNoise(terms))
    found = train(engine, model, source.buyer, step_size=step_size, rounds=rounds)
    assert abs(found.accuracy - reference_accuracy(dealt.records, source.buyer)) < 0.02


def test_queries_that_break_the_sensitivity_are_refused_with_the_reason() -> None:
    assert query_named("gradient") is QUERIES["gradient"]
    with pytest.raises(InvalidInput, match="found 'local-steps': after the first of several local"):
        query_named("local-steps")
    with pytest.raises(InvalidInput, match=r"must be one of gradient; found 'loss'$"):
        query_named("loss")


def test_several_local_steps_do_move_an_update_by_more_than_the_sensitivity() -> None:
    """Why the registry has one query: a step amplifies what one record did to the step before."""
    model = model_named("least-squares", features=2, classes=0)
    one = federation(owners=1, samples=4, features=2, classes=0, seed=50, scale=3.0)
    features, labels = one.records.features.copy(), one.records.labels.copy()
    labels[0] = 1000.0
    other = type(one)(type(one.records)(features, labels, 0), one.offsets)

    def after(f, steps):
        parameters, total = np.zeros(2), np.zeros(2)
        for _ in range(steps):
            step = model.clipped_means(parameters, f, clip=1.0)[0]
            parameters, total = parameters - 20.0 * step, total + step
        return total / steps

    assert np.linalg.norm(after(one, 1) - after(other, 1)) <= 2 / 4 * (1 + 1e-12)
    assert np.linalg.norm(after(one, 2) - after(other, 2)) > 1.3 * 2 / 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"aggregation": "pay"}, "aggregation must be one of equal, precision; found 'pay'"),
        ({"rounds": 0}, "rounds must be a finite number of at least 1; found 0"),
    ],
)
def test_wrong_training_options_are_refused(task, options, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        run(task, **options)
