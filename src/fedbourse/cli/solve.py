"""``fedbourse solve``: the equilibrium of a game, and the reward that is best for the buyer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from cyclopts import Group, Parameter
from rich.console import Console
from rich.table import Table

from fedbourse.cli.column_file import read_column
from fedbourse.cli.option_values import low_and_high, number_or_best
from fedbourse.errors import InvalidGame, InvalidInput
from fedbourse.game import Accuracy, Training, Uniform, best_reward, equilibrium
from fedbourse.game.columns import positive
from fedbourse.privacy import DELTA, epsilon
from fedbourse.units import number, whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedbourse.game import Equilibrium, Offer

_OWNERS, _REWARD, _TRAINING, _OUTPUT = (
    Group.create_ordered(name) for name in ("Owners", "Reward", "Training", "Output")
)

CostName = Literal["linear", "quadratic", "exponential", "paper-exponential"]
ModelName = Literal["paper", "population", "averaged", "precision"]


def solve(
    *,
    values: Annotated[str | None, Parameter(group=_OWNERS, allow_leading_hyphen=True)] = None,
    uniform: Annotated[str | None, Parameter(group=_OWNERS)] = None,
    owners: Annotated[float | None, Parameter(group=_OWNERS)] = None,
    seed: Annotated[float, Parameter(group=_OWNERS)] = 0,
    cost: Annotated[CostName, Parameter(group=_OWNERS)] = "linear",
    entry_cost: Annotated[str, Parameter(group=_OWNERS)] = "0",
    caps: Annotated[str | None, Parameter(group=_OWNERS)] = None,
    reward: Annotated[str, Parameter(group=_REWARD)] = "best",
    accuracy: Annotated[ModelName, Parameter(group=_REWARD)] = "paper",
    chance: Annotated[float, Parameter(group=_REWARD)] = 0.5,
    ceiling: Annotated[float, Parameter(group=_REWARD)] = 1.0,
    noise_coefficient: Annotated[float, Parameter(group=_REWARD)] = 1.0,
    weight: Annotated[float, Parameter(group=_REWARD)] = 20.0,
    pay_for: Annotated[Literal["budget", "information"], Parameter(group=_REWARD)] = "budget",
    dimension: Annotated[float, Parameter(group=_TRAINING)] = 1000,
    step_size: Annotated[float, Parameter(group=_TRAINING)] = 0.1,
    iterations: Annotated[float, Parameter(group=_TRAINING)] = 500,
    samples: Annotated[str, Parameter(group=_TRAINING)] = "1000",
    clip: Annotated[float, Parameter(group=_TRAINING)] = 1.0,
    rows: Annotated[float, Parameter(group=_OUTPUT)] = 20,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), group=_OUTPUT)] = False,
) -> None:
    """Solve a game: who takes part, with which budget, for what pay, at which reward.

    Examples:

        fedbourse solve --uniform 1:5 --owners 1000

        fedbourse solve --values owners.csv:value --reward 2 --json

        seq 1 9 | fedbourse solve --values - --accuracy precision

    Parameters
    ----------
    values
        The owners' privacy values: FILE[:COLUMN], a .csv, .parquet, .npy or .txt file, or - for
        standard input.
    uniform
        Draw the values instead, once: LOW:HIGH, with --owners and --seed.
    owners
        How many values to draw.
    seed
        Where the draw starts: the same seed draws the same values.
    cost
        What a budget r costs an owner of value v: v r, v r^2, exp(v r) - 1, or exp(v r).
    entry_cost
        What taking part costs before the first unit of budget: a number or FILE[:COLUMN].
    caps
        Each owner's largest budget: a number or FILE[:COLUMN].
    reward
        The total reward, or `best`: the one that is best for the buyer.
    accuracy
        The model of the accuracy that budgets buy: the paper's mean over participants; its mean
        over the whole population; the noise of the plain average; of the precision-weighted one.
    chance
        The accuracy of a guess.
    ceiling
        The accuracy without noise.
    noise_coefficient
        What all noise counts for; `fedbourse study calibrate` fits it.
    weight
        What an accuracy of 1 is worth to the buyer, in units of reward.
    pay_for
        Pay in proportion to the budget, or to the information: samples^2 times the budget.
    dimension
        How many parameters the model has.
    step_size
        The step size of training.
    iterations
        How many rounds of training.
    samples
        Records behind each owner's answers: a number or FILE[:COLUMN].
    clip
        The norm that each record's gradient is clipped to.
    rows
        How many participants the table shows, the largest budgets first.
    as_json
        Print one JSON document with every participant, in full precision.
    """
    column = _values(values, uniform, owners, seed)
    shown = whole_number("rows", rows, at_least=0)
    training = Training(
        dimension=whole_number("dimension", dimension, at_least=1),
        step_size=step_size,
        iterations=whole_number("iterations", iterations, at_least=1),
        samples=_number_or_column("samples", samples, "samples"),
        clip=clip,
    )
    model = Accuracy(accuracy, chance=chance, ceiling=ceiling, noise=noise_coefficient)
    weight = number("weight", weight, above=0)
    game: dict[str, Any] = {
        "cost": cost,
        "entry_cost": _number_or_column("entry-cost", entry_cost, "entry_cost"),
        "caps": None if caps is None else _number_or_column("caps", caps, "cap", "caps"),
        "pay_for": pay_for,
    }
    reason, method = "", "given"
    given = number_or_best(reward)
    if given is None:
        offer: Offer = best_reward(column, training, weight=weight, accuracy=model, **game)
        found, reason, method = offer.equilibrium, offer.reason, offer.method
    else:
        amount = number("reward", given, above=0)
        training.check_owners(len(column))
        found = equilibrium(column, reward=amount, samples=training.samples, **game)
    precisions = training.precisions(found.budgets, found.participants)
    predicted = model.of(precisions, found.owners)
    paid = found.reward if len(found.participants) else 0.0
    document = {
        "reward": found.reward,
        "participants": len(found.participants),
        "threshold": found.threshold,
        "total_budget": found.total_budget,
        "server_utility": weight * predicted - paid,
        "accuracy": predicted,
        "regret": found.regret,
        "reason": reason,
        "owners_asked": found.owners,
        "reward_method": method,
        "equilibrium_method": found.method,
        "cost": cost,
        "accuracy_model": accuracy,
        "pay_for": pay_for,
        "weight": weight,
        "chance": chance,
        "ceiling": ceiling,
        "noise_coefficient": noise_coefficient,
        "dimension": training.dimension,
        "step_size": step_size,
        "iterations": training.iterations,
        "clip": clip,
        "delta": DELTA,
        "seed": int(seed) if uniform else None,
        "version": __version__,
        "owners": _rows(found, column, training),
    }
    if as_json:
        print(json.dumps(document, allow_nan=False))
    else:
        _print(document, shown)


def _values(
    values: str | None, uniform: str | None, owners: float | None, seed: float
) -> npt.NDArray[Any]:
    if (values is None) == (uniform is None):
        raise InvalidInput("give the owners' values by one of --values and --uniform")
    if values is not None:
        if owners is not None:
            raise InvalidInput(
                "--owners goes with --uniform; a file says itself how many there are"
            )
        return positive("values", read_column(values, "value", "values"))
    ends = low_and_high(str(uniform))
    if owners is None:
        raise InvalidInput("--uniform needs --owners, the number of values to draw")
    count = whole_number("owners", owners, at_least=2, error=InvalidGame)
    if count > 10**10:
        raise InvalidGame(f"owners must be at most 1e10; found {count:g}")
    rng = np.random.default_rng(whole_number("seed", seed, at_least=0))
    return Uniform(*ends).rvs(size=(count,), random_state=rng)


def _number_or_column(name: str, text: str, *columns: str) -> float | npt.NDArray[Any]:
    try:
        return float(text)
    except ValueError:
        if "." in text or ":" in text:
            return read_column(text, *columns)
        raise InvalidInput(
            f"{name} must be a number or FILE[:COLUMN], FILE ending in .csv, .parquet, .npy or "
            f".txt; found {text!r:.60}"
        ) from None


def _rows(
    found: Equilibrium, column: npt.NDArray[Any], training: Training
) -> list[dict[str, float | int]]:
    fields = {
        "index": found.participants,
        "value": column[found.participants],
        "budget": found.budgets,
        "payment": found.payments,
        "utility": found.utilities,
        "noise_scale": training.noise_scale(found.budgets, found.participants),
        "epsilon": epsilon(rho=found.budgets, delta=DELTA),
    }
    columns = [array.tolist() for array in fields.values()]
    return [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]


def _print(document: dict[str, Any], rows: int) -> None:
    console = Console()
    people = sorted(document["owners"], key=lambda owner: -owner["budget"])
    if people[:rows]:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("owner", "value", "budget rho", "pay", "utility", "noise sigma", "epsilon"):
            table.add_column(name, justify="right")
        for owner in people[:rows]:
            table.add_row(str(owner["index"]), *(f"{owner[k]:.6g}" for k in list(owner)[1:]))
        console.print(table)
        if len(people) > rows:
            console.print(f"... and {len(people) - rows} more (--rows {len(people)} shows all)")
        console.print()
    tau = document["threshold"] if document["pay_for"] == "budget" else None
    lines = {
        "reward": f"{document['reward']:.6g} ({document['reward_method']})",
        "participants": f"{document['participants']} of {document['owners_asked']} owners"
        + (f", those with a value below {tau:.6g}" if tau is not None else ""),
        "total budget": f"{document['total_budget']:.6g} rho of zCDP",
        "epsilon": f"about one record of an owner, at delta {document['delta']:g}, proved",
        "accuracy": f"{document['accuracy']:.2%} by the model '{document['accuracy_model']}'",
        "buyer's utility": f"{document['server_utility']:.6g}",
        "regret": f"{document['regret']:.3g}, the most that any owner could gain by deviating",
        "method": document["equilibrium_method"],
    }
    if not document["reward"]:
        lines = {name: lines[name] for name in ("participants", "accuracy", "buyer's utility")}
    for name, text in lines.items():
        console.print(f"{name:>16}  {text}", highlight=False, soft_wrap=True)
    if document["reason"]:
        console.print(f"\n{document['reason']}", highlight=False, soft_wrap=True)
