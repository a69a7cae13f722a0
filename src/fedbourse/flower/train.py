"""Training without a market: simulated owners on any engine, real ones on a Flower federation."""

from __future__ import annotations

import json
import statistics
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedbourse.device import DeviceFolder, DeviceSettings
from fedbourse.errors import Conflict, InvalidInput, Unreachable
from fedbourse.flower.device import DEVICES, FlowerDevice, SeededNoise
from fedbourse.flower.job import APP_FOLDER, MODEL, PREFIX, Job, Member, make_folder, save_model
from fedbourse.flower.processes import NODES_MAX, Flower, Link
from fedbourse.flower.recipe import Recipe
from fedbourse.learning.data import load
from fedbourse.learning.device_records import DeviceRecords
from fedbourse.learning.engines.local import LocalEngine
from fedbourse.learning.partition import Federation, partition
from fedbourse.privacy.loss import PrivacyLoss
from fedbourse.privacy.noise import ExactNoise, Noise, SimulatedNoise
from fedbourse.privacy.zcdp import DELTA
from fedbourse.tasks.layout import layout_of
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.records import Records
    from fedbourse.learning.sources import Source

EngineName = Literal["local", "simulation", "flower"]
NoiseName = Literal["exact", "simulated"]

_DEVICES, _HOME = "devices", "flower"


@dataclass(frozen=True)
class TrainSettings:
    """The settings of a training."""

    data: str = "flights"
    name: str = "training"
    rounds: int = 20
    model: str | None = None
    samples: int | None = None
    clip: float = 1.0
    step_size: float = 1.0
    aggregation: str = "precision"
    seed: int = 0

    def recipe(self, source: Source) -> Recipe:
        """Return what owners agree to; the same settings give the same recipe."""
        samples = source.default_samples if self.samples is None else self.samples
        return Recipe(
            name=self.name,
            data=source.description,
            model=self.model or source.default_model,
            features=source.buyer.features.shape[1],
            classes=source.buyer.classes,
            rounds=whole_number("rounds", self.rounds, at_least=1),
            samples=whole_number("samples", samples, at_least=1),
            clip=number("clip", self.clip, above=0),
            step_size=number("step_size", self.step_size, above=0),
            aggregation=self.aggregation,
            start_seed=whole_number("seed", self.seed, at_least=0),
            layout=layout_of(source),
        )


@dataclass(frozen=True)
class Location:
    """Where a training runs, and how long it waits."""

    folder: Path | None = None
    """Where checkpoint, spend and model lie; where there is none, nothing is stored."""
    round_s: float = 60.0
    join_s: float = 60.0


def train_simulated(
    settings: TrainSettings,
    budgets: list[float],
    *,
    engine: EngineName = "local",
    noise: NoiseName = "exact",
    place: Location | None = None,
    on_line: Callable[[dict[str, Any]], None] = lambda line: None,
) -> Trained:
    """Train with simulated owners, who hold parts of the data, and return the result.

    Their devices are real ones: each has a folder, spend on disk and noise of its own.
    """
    place = place or Location()
    if engine == "flower" and len(budgets) > NODES_MAX:
        raise InvalidInput(
            f"at most {NODES_MAX} SuperNodes are started here, as each takes some 450 MB; found "
            f"{len(budgets)} budgets: use --engine simulation, or --superlink for nodes that are "
            "there already"
        )
    source = load(settings.data, seed=settings.seed)
    recipe = settings.recipe(source)
    federation = partition(
        source.pool,
        owners=len(budgets),
        samples=recipe.samples,
        scheme="iid" if source.groups is None else "groups",
        seed=settings.seed,
        groups=source.groups,
        name=source.name,
    )
    with _folder(place.folder, needed=engine != "local") as folder:
        job = Job(
            recipe,
            tuple(
                Member(f"owner-{i}", budget, recipe.terms(budget).digest)
                for i, budget in enumerate(budgets)
            ),
            data=settings.data,
            seed=settings.seed,
            folder="" if folder is None else str(folder.absolute()),
            round_s=place.round_s,
            join_s=place.join_s,
        )
        progress = _Progress(job, on_line)
        devices = _agree(job, federation, noise, settings.seed)
        if engine == "local":
            _train_here(
                job,
                federation,
                devices,
                progress,
                noise=SimulatedNoise(job.terms, seed=settings.seed)
                if noise == "simulated"
                else ExactNoise(job.terms),
                validation=source.buyer,
            )
        else:
            assert folder is not None
            with Flower(folder / _HOME) as flower:
                _start_and_follow(flower, job, devices, progress, simulation=engine == "simulation")
        spent = [float(sum(a.spent for a in device.accounts())) for device in devices]
        return progress.result(engine=engine, noise=noise, spent=spent or None)


def federation_job(settings: TrainSettings, roster: list[Member], place: Location) -> Job:
    """Return the job of real owners, for a ServerApp on the machine of a SuperLink.

    The folder and the data are looked for there.
    """
    if place.folder is None:
        raise InvalidInput("a roster needs --folder, a folder on the SuperLink's machine")
    return Job(
        settings.recipe(load(settings.data, seed=settings.seed)),
        tuple(roster),
        data=settings.data,
        seed=settings.seed,
        folder=str(place.folder),
        round_s=place.round_s,
        join_s=place.join_s,
    )


def train_on_federation(
    job: Job,
    link: Link,
    *,
    on_line: Callable[[dict[str, Any]], None] = lambda line: None,
) -> Trained:
    """Train on a SuperLink that is there already, with the owners of a roster."""
    progress = _Progress(job, on_line)
    with tempfile.TemporaryDirectory(prefix="fedbourse-") as home, Flower(Path(home)) as flower:
        _follow(flower, link, job, progress)
    return progress.result(engine="flower", noise="the devices' own", spent=None)


def _agree(job: Job, federation: Federation, noise: NoiseName, seed: int) -> list[FlowerDevice]:
    """Make the folder of each simulated owner's device; none where nothing is stored."""
    if not job.folder:
        return []
    devices = []
    for i, (member, terms) in enumerate(zip(job.roster, job.terms, strict=True)):
        path = Path(job.folder, _DEVICES, member.owner)
        if not (path / "device.json").exists():
            DeviceFolder.create(path, DeviceSettings(value=1.0, lifetime_cap=terms.rho))
        device = FlowerDevice(path)
        study = SeededNoise(seed, i, tuple(job.terms)) if noise == "simulated" else None
        device.agree(
            job.recipe,
            member.budget,
            lambda i=i: DeviceRecords.of(federation.parts[i]),  # type: ignore[misc]
            owner=member.owner,
            study=study,
        )
        devices.append(device)
    return devices


def _train_here(
    job: Job,
    federation: Federation,
    devices: list[FlowerDevice],
    progress: _Progress,
    *,
    noise: Noise,
    validation: Records,
) -> None:
    with ExitStack() as stack:
        filters = []
        for device in devices:
            store = device.store()
            stack.callback(store.close)
            filters.append(device.guard(store))
        engine = LocalEngine(
            job.recipe.build(), federation, job.terms, noise, filters=filters or None
        )
        run = job.train(engine, validation=validation, on_line=progress.take)
    progress.parameters = run.parameters


def _start_and_follow(
    flower: Flower, job: Job, devices: list[FlowerDevice], progress: _Progress, *, simulation: bool
) -> None:
    if simulation:
        link = flower.superlink(
            simulation=True, **{DEVICES: str(Path(job.folder, _DEVICES).absolute())}
        )
        _follow(flower, link, job, progress, nodes=len(devices))
        return
    link = flower.superlink()
    for member, device in zip(job.roster, devices, strict=True):
        flower.supernode(f"supernode-{member.owner}", link, device.folder.path)
    _follow(flower, link, job, progress)


def _follow(
    flower: Flower, link: Link, job: Job, progress: _Progress, *, nodes: int | None = None
) -> None:
    """Submit a job, and read its progress until it ends."""
    run = flower.submit(APP_FOLDER, link, json.dumps(job.document), nodes=nodes)
    ended = False
    try:
        for line in flower.lines(run):
            _, prefix, text = line.partition(PREFIX)
            if prefix:
                progress.take(json.loads(text))
        ended = True
    finally:
        if not ended and not flower.has_link:  # it goes with its SuperLink, where that is ours
            flower.stop_run(run)
    if not progress.completed:
        raise _failure(flower, run, progress)


def _failure(flower: Flower, run: str, progress: _Progress) -> Exception:
    """Return why a run ended before its time."""
    if progress.failure:
        from fedbourse import errors

        kind = getattr(errors, str(progress.failure.get("kind")), Conflict)
        error: Exception = (Conflict if kind is errors.Refused else kind)(
            str(progress.failure["sentence"])
        )
        return error
    after = f"after {progress.rounds} of {progress.job.recipe.rounds} rounds"
    again = "the same command goes on from there"
    try:
        status, details = flower.status(run)
    except Unreachable:
        return Unreachable(f"the SuperLink is gone {after}; {again}")
    return Unreachable(f"Flower's run {run} is {status} {after} ({details[:200]}); {again}")


@dataclass(frozen=True, eq=False)
class Trained:
    """A training that ended: its result as a plain document, and the model."""

    document: dict[str, Any]
    recipe: Recipe
    parameters: FloatArray | None
    """None where the model lies on the SuperLink's machine alone."""

    def save(self, file: Path) -> None:
        """Write the model, with its recipe."""
        if self.parameters is not None:
            save_model(file, self.recipe, self.parameters)


class _Progress:
    """The progress of a training, as its lines report it."""

    def __init__(self, job: Job, on_line: Callable[[dict[str, Any]], None]) -> None:
        self.job, self._on_line = job, on_line
        self.completed: dict[str, Any] | None = None
        self.failure: dict[str, Any] | None = None
        self.parameters: FloatArray | None = None
        self._seconds: list[float] = []
        self._refused: dict[str, str] = {}
        run = job.checkpoint.load() if job.checkpoint is not None else None
        self.rounds = len(run.rounds) if run is not None else 0

    def take(self, line: dict[str, Any]) -> None:
        if line["event"] == "round":
            self.rounds = line["round"] + 1
            self._seconds.append(line["seconds"])
            self._refused |= {owner: reason for owner, (reason, _) in line["refused"].items()}
        elif line["event"] == "completed":
            self.completed = line
        else:
            self.failure = line
        self._on_line(line)

    def result(self, *, engine: str, noise: str, spent: list[float] | None) -> Trained:
        """Return the training as it ended."""
        assert self.completed is not None
        delivered = self.completed["delivered"]
        used = spent or [
            terms.round_rho * k for terms, k in zip(self.job.terms, delivered, strict=True)
        ]
        if self.parameters is None:
            self.parameters = _parameters(Path(self.job.folder, MODEL))
        document = {
            "engine": engine,
            "noise": noise,
            "data": self.job.data,
            "task": self.job.recipe.task,
            "model": self.job.recipe.model,
            "dimension": self.job.terms[0].dimension,
            "rounds": self.job.recipe.rounds,
            "accuracy": self.completed["accuracy"],
            "loss": self.completed["loss"],
            "seconds_per_round": round(statistics.median(self._seconds), 4)
            if self._seconds
            else None,
            "delta": DELTA,
            "owners": [
                {
                    "owner": member.owner,
                    "budget": member.budget,
                    "delivered": int(k),
                    "spent_rho": rho,
                    **PrivacyLoss.of(rho, samples=self.job.recipe.samples).document("spent_"),
                    "refused": self._refused.get(member.owner),
                }
                for member, k, rho in zip(self.job.roster, delivered, used, strict=True)
            ],
        }
        return Trained(document, self.job.recipe, self.parameters)


def _parameters(file: Path) -> FloatArray | None:
    """Return the model of a file; None where it lies on another machine."""
    if not file.exists():
        return None
    with file.open("rb") as f, np.load(f, allow_pickle=False) as stored:
        parameters: FloatArray = stored["parameters"]
        return parameters


@contextmanager
def _folder(folder: Path | None, *, needed: bool) -> Iterator[Path | None]:
    """Yield the folder, made if need be; a temporary one where none was named."""
    if folder is not None:
        make_folder(folder)
        yield folder
    elif not needed:
        yield None
    else:
        with tempfile.TemporaryDirectory(prefix="fedbourse-", ignore_cleanup_errors=True) as name:
            yield Path(name)
