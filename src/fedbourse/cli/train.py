"""``fedbourse train``: private training without a market, in one process or on Flower."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from fedbourse.cli.device_check import fit_sentence
from fedbourse.cli.files import check_writable, write_bytes
from fedbourse.cli.option_values import (
    Clip,
    Model,
    Rounds,
    Samples,
    StepSize,
    Whole,
    count_or_none,
    numbers,
)
from fedbourse.cli.output import (
    OUTPUT,
    PEOPLE,
    Blocks,
    Output,
    epsilon_columns,
    print_blocks,
    print_note,
    table,
    write_document,
)
from fedbourse.errors import InvalidInput
from fedbourse.privacy.loss import NOTES
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from fedbourse.flower.train import TrainSettings

_RECIPE, _OWNERS, _RUN = (Group.create_ordered(name) for name in ("Recipe", "Owners", "Engine"))
_OWNERS_MAX = 10_000


@Parameter(name="*", group=_RECIPE)
@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """What is trained.

    Parameters
    ----------
    data
        As for `fedbourse demo`: flights, sklearn:digits, synthetic[:KEY=NUMBER,...], a file... Part
        of it is the buyer's own, to evaluate the model; simulated owners hold the rest.
    name
        What tells two trainings with the same options apart: a device sends one update in each
        round of a training.
    aggregation
        How updates are aggregated: by their precision, or all alike.
    seed
        Which records are whose, where the model starts, and what simulated noise is drawn from.
    """

    data: str = "flights"
    name: str = "training"
    rounds: Rounds = 20
    model: Model = None
    samples: Samples = None
    clip: Clip = 1.0
    step_size: StepSize = 1.0
    aggregation: Literal["equal", "precision"] = "precision"
    seed: Whole = 0

    def settings(self) -> TrainSettings:
        """Return the options, checked."""
        from fedbourse.flower.train import TrainSettings

        return TrainSettings(
            data=self.data,
            name=self.name,
            rounds=whole_number("rounds", self.rounds, at_least=1),
            model=self.model,
            samples=count_or_none("samples", self.samples),
            clip=number("clip", self.clip, above=0),
            step_size=number("step_size", self.step_size, above=0),
            aggregation=self.aggregation,
            seed=whole_number("seed", self.seed, at_least=0),
        )


_USUAL = RecipeOptions()

train_app = App(name="train")


@train_app.default
def train(
    *,
    options: RecipeOptions = _USUAL,
    budgets: Annotated[str | None, Parameter(group=_OWNERS)] = None,
    owners: Annotated[Whole | None, Parameter(group=_OWNERS)] = None,
    roster: Annotated[Path | None, Parameter(group=_OWNERS)] = None,
    noise: Annotated[Literal["exact", "simulated"], Parameter(group=_OWNERS)] = "exact",
    engine: Annotated[Literal["local", "simulation", "flower"], Parameter(group=_RUN)] = "local",
    superlink: Annotated[str | None, Parameter(group=_RUN)] = None,
    certificates: Annotated[Path | None, Parameter(group=_RUN)] = None,
    insecure: Annotated[bool, Parameter(negative=(), group=_RUN)] = False,
    job: Annotated[Path | None, Parameter(group=_RUN)] = None,
    folder: Annotated[Path | None, Parameter(group=_RUN)] = None,
    round_seconds: Annotated[float, Parameter(group=_RUN)] = 60.0,
    join_seconds: Annotated[float, Parameter(group=_RUN)] = 60.0,
    out: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    output: Output = PEOPLE,
) -> None:
    """Train a model with a privacy budget for each owner.

    Simulated owners hold parts of the data, each on a device with spend and noise of its own: all
    in this process, on virtual nodes of Flower's simulation, or on up to three SuperNodes that are
    started here and stopped again. Or real owners take part, from SuperNodes of their own: those
    of a roster, on a SuperLink that is there already.

    For example:

        fedbourse train --budgets 0.5,0.5,1.0

        fedbourse train --budgets 0.1 --owners 100 --engine simulation --folder run --json

        fedbourse train --budgets 0.5,0.5,1.0 --engine flower --folder run

        fedbourse train --engine flower --superlink HOST:PORT --roster roster.jsonl --folder run

    Parameters
    ----------
    budgets
        The budget rho of each simulated owner, as 0.5,0.5,1.0.
    owners
        How many simulated owners there are, where one budget is everybody's.
    roster
        Real owners: a file with the line that `fedbourse train agree` printed for each.
    noise
        Of simulated owners: exact, as on devices; or simulated from the seed, protecting nobody.
    engine
        local: one process. simulation: Flower's virtual nodes, on Ray. flower: real SuperNodes.
    superlink
        HOST:PORT of a SuperLink that is there already; its machine needs fedbourse and the data.
    certificates
        The CA that signed the SuperLink's certificate, where the system does not know it.
    insecure
        Reach the SuperLink without TLS.
    job
        With a roster: write what the ServerApp is to do to this file and end, for `flwr run` by
        hand, as where a SuperLink wants a login.
    folder
        Where checkpoint, spend and model are kept: the same command goes on where it stopped.
        With a SuperLink that is there already, a folder on its machine.
    round_seconds
        How long a round waits for updates, on Flower.
    join_seconds
        How long the first round waits for nodes that are still to come, on Flower.
    out
        The file for the model; by default model.npz, in the folder where one is named.
    """
    from fedbourse.flower.job import MODEL, read_roster
    from fedbourse.flower.processes import Link
    from fedbourse.flower.train import (
        Location,
        federation_job,
        train_on_federation,
        train_simulated,
    )

    settings = options.settings()
    place = Location(
        folder,
        round_s=number("round_seconds", round_seconds, above=0, at_most=86400),
        join_s=number("join_seconds", join_seconds, above=0, at_most=86400),
    )
    _check_together(engine, budgets, roster, superlink, job)
    if roster is not None and job is not None:
        document = federation_job(settings, read_roster(roster), place).document
        write_bytes(job, json.dumps(document).encode())
        print_blocks(f"the job is in {job}")
        return
    if out is not None or folder is None:
        check_writable(out or Path(MODEL))
    out = out or Path(folder or "", MODEL)
    notes = _RoundNotes(rounds=settings.rounds)
    if roster is None or superlink is None:
        each = _budgets(budgets or "", owners)
        trained = train_simulated(
            settings, each, engine=engine, noise=noise, place=place, on_line=notes
        )
    else:
        link = Link(_address(superlink), insecure, str(certificates) if certificates else None)
        trained = train_on_federation(
            federation_job(settings, read_roster(roster), place), link, on_line=notes
        )
    trained.save(out)
    here = trained.parameters is not None
    output.show(
        {"model_file": str(out) if here else None, **trained.document},
        lambda document: _in_words(
            document, str(out) if here else f"{folder}/model.npz on the SuperLink's machine"
        ),
    )


@train_app.command
def recipe(
    *,
    options: RecipeOptions = _USUAL,
    out: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
) -> None:
    """Write what owners are to agree to: give it to them, and train with the same options.

    For example:

        fedbourse train recipe --data flights --rounds 20 --out recipe.json

    Parameters
    ----------
    out
        The file to write to, in place of standard output.
    """
    from fedbourse.learning.data import load

    settings = options.settings()
    document = settings.recipe(load(settings.data, seed=settings.seed)).document
    write_document(document, out, "the recipe")


@train_app.command
def agree(
    file: Path,
    /,
    *,
    folder: Annotated[Path, Parameter(env_var="FEDBOURSE_DEVICE")] = Path("device"),
    owner: str,
    budget: float,
    data: str | None = None,
    separate_cap: Annotated[bool, Parameter(negative=())] = False,
    public_key: Path | None = None,
) -> None:
    """Agree to a recipe, on the owner's own machine, and print the line for the buyer's roster.

    Reserves the budget under the device's lifetime cap, and keeps a fixed random choice of records
    in its folder. From then on the device sends one update in each round of this training, and no
    others. How many records fit is printed on standard error, to you alone: the line for the roster
    does not depend on them. `fedbourse device check recipe.json` says so before you agree.
    Data that another device's folder guards is refused: it would have a second cap.
    Start its SuperNode with `--node-config 'fedbourse-device="FOLDER"'`.

    For example:

        fedbourse train agree recipe.json --owner ann --budget 0.5 --data my.csv:ill

    Parameters
    ----------
    file
        The recipe, as the buyer gave it.
    folder
        The device's folder, which `fedbourse device init` made.
    owner
        The name that the roster knows the owner by.
    budget
        What is sold, in rho, over all rounds.
    data
        FILE[:LABEL_COLUMN], a .csv, .parquet, .arrow or .npz file; by default the device's own.
    separate_cap
        Let this folder have a cap of its own about data that another folder guards.
    public_key
        The public key that the SuperNode is registered with, so that nobody can take its place.
    """
    from fedbourse.flower.consent import agree_to

    agreed = agree_to(
        file, folder, owner, budget, data=data, separate_cap=separate_cap, public_key=public_key
    )
    if agreed.check is not None:
        print_note(f"{fit_sentence(agreed.check)}; that stays on this machine")
    print(json.dumps(asdict(agreed.member)))


@train_app.command(name="app")
def app_folder() -> None:
    """Print the folder of the Flower app, for `flwr run`.

    For example:

        fedbourse train app
    """
    from fedbourse.flower.job import APP_FOLDER

    print(APP_FOLDER)


class _RoundNotes:
    """Notes a training on standard error, one line for each round."""

    def __init__(self, *, rounds: int) -> None:
        self._rounds, self._refused = rounds, set[tuple[str, str]]()

    def __call__(self, line: dict[str, Any]) -> None:
        if line["event"] != "round":
            return
        print_note(
            f"round {line['round'] + 1}/{self._rounds}: {line['updates']} of {line['owners']} "
            f"updates, loss {line['loss']:.4f}, accuracy {line['accuracy']:.1%}, "
            f"{line['seconds']:.2f} s"
        )
        for owner, (reason, sentence) in line["refused"].items():
            if (owner, reason) not in self._refused:
                self._refused.add((owner, reason))
                print_note(f"  {owner} refuses, {reason}: {sentence}")


def _check_together(
    engine: str,
    budgets: str | None,
    roster: Path | None,
    superlink: str | None,
    job: Path | None,
) -> None:
    """Refuse options that contradict one another."""
    if (roster is None) != (superlink is None and job is None):
        raise InvalidInput("--superlink and --roster belong together: who is asked, and where")
    if superlink is not None and engine != "flower":
        raise InvalidInput(f"--superlink belongs to --engine flower; found --engine {engine}")
    if (budgets is None) == (roster is None):
        raise InvalidInput(
            "give --budgets for simulated owners, as 0.5,0.5,1.0, or --roster for real ones"
        )


def _budgets(text: str, owners: float | None) -> list[float]:
    each = numbers("--budgets", text, example="0.5,0.5,1.0")
    if owners is not None:
        count = whole_number("owners", owners, at_least=1)
        if count > _OWNERS_MAX:
            raise InvalidInput(f"owners must be at most {_OWNERS_MAX}; found {count}")
        if len(each) not in (1, count):
            raise InvalidInput(f"{count} owners need one budget, or {count}; found {len(each)}")
        each = each * count if len(each) == 1 else each
    return [number(f"budgets[{i}]", rho, above=0) for i, rho in enumerate(each)]


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidInput(f"--superlink must be HOST:PORT, without a scheme; found {text!r:.60}")
    return text


def _in_words(document: dict[str, Any], file: str) -> Blocks:
    yield table(
        document["owners"],
        {
            "owner": "{owner}",
            "budget rho": "{budget:g}",
            "delivered": lambda owner: f"{owner['delivered']}/{document['rounds']}",
            "spent rho": "{spent_rho:.4g}",
            **epsilon_columns("spent_"),
            "last refusal": lambda owner: owner["refused"] or "-",
        },
    )
    yield ""
    yield {
        "engine": document["engine"],
        "noise": "simulated from the seed: it protects nobody"
        if document["noise"] == "simulated"
        else document["noise"],
        "privacy": f"epsilon at delta {document['delta']:g}; the whole owner is "
        f"{NOTES['whole owner']}",
        "accuracy": f"{document['accuracy']:.1%} (loss {document['loss']:.4f}) on the buyer's own "
        "records",
        "model": file,
    }
