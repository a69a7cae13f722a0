"""``fedbourse solve``: the equilibrium of a game, and the reward that is best for the buyer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from fedbourse.cli.option_values import Clip, Rounds, StepSize, Whole, number_or_best
from fedbourse.cli.output import OUTPUT, PEOPLE, Blocks, Output, table
from fedbourse.cli.solve_owners import listed, owners_of, shown_while_read
from fedbourse.errors import InvalidInput
from fedbourse.files.column_file import read_column
from fedbourse.game import (
    ACCURACY_MODELS,
    COSTS,
    Accuracy,
    Offer,
    Stream,
    Training,
    best_reward,
)
from fedbourse.game.buyer import Buyer
from fedbourse.game.costs import cost_named
from fedbourse.privacy import DELTA
from fedbourse.units import number, whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    import numpy.typing as npt


_OWNERS, _REWARD, _TRAINING = (
    Group.create_ordered(name) for name in ("Owners", "Reward", "Training")
)

_COST = f"What a budget costs its owner: {COSTS.explained}."
_ACCURACY = f"The model of the accuracy that budgets buy: {ACCURACY_MODELS.explained}."


def solve(
    *,
    values: Annotated[str | None, Parameter(group=_OWNERS, allow_leading_hyphen=True)] = None,
    names: Annotated[str | None, Parameter(group=_OWNERS)] = None,
    uniform: Annotated[str | None, Parameter(group=_OWNERS)] = None,
    owners: Annotated[Whole | None, Parameter(group=_OWNERS)] = None,
    seed: Annotated[Whole, Parameter(group=_OWNERS)] = 0,
    cost: Annotated[str, Parameter(group=_OWNERS, help=_COST)] = "linear",
    entry_cost: Annotated[str, Parameter(group=_OWNERS)] = "0",
    caps: Annotated[str | None, Parameter(group=_OWNERS)] = None,
    reward: Annotated[str, Parameter(group=_REWARD)] = "best",
    accuracy: Annotated[str, Parameter(group=_REWARD, help=_ACCURACY)] = "paper",
    chance: Annotated[float, Parameter(group=_REWARD)] = 0.5,
    ceiling: Annotated[float, Parameter(group=_REWARD)] = 1.0,
    noise_coefficient: Annotated[float, Parameter(group=_REWARD)] = 1.0,
    sampling: Annotated[float, Parameter(group=_REWARD)] = 0.0,
    accuracy_value: Annotated[float, Parameter(group=_REWARD)] = 20.0,
    pay_for: Annotated[Literal["budget", "information"], Parameter(group=_REWARD)] = "budget",
    dimension: Annotated[Whole, Parameter(group=_TRAINING)] = 1000,
    step_size: Annotated[StepSize, Parameter(group=_TRAINING)] = 0.1,
    iterations: Annotated[Rounds, Parameter(group=_TRAINING)] = 500,
    samples: Annotated[str, Parameter(group=_TRAINING)] = "1000",
    clip: Annotated[Clip, Parameter(group=_TRAINING)] = 1.0,
    rows: Annotated[Whole, Parameter(group=OUTPUT)] = 20,
    output: Output = PEOPLE,
) -> None:
    """Solve a game: who takes part, with which budget, for what pay, at which reward.

    For example:

        fedbourse solve --uniform 1:5 --owners 1000

        fedbourse solve --values owners.csv:value --reward 2 --json

        seq 1 9 | fedbourse solve --values - --accuracy precision

        fedbourse solve --values owners/:value --names id --reward 100

    Parameters
    ----------
    values
        The owners' privacy values: FILE[:COLUMN], a .csv, .parquet, .arrow, .npy or .txt file;
        from standard input with -. A directory or glob of tables, DIR[:COLUMN], is read in
        chunks, and so is a table above 256 MB: any number of owners, in little memory.
    names
        The column that says what owners are called, to show instead of file and row.
    uniform
        Draw the values instead, once: LOW:HIGH, with --owners and --seed.
    owners
        How many values to draw.
    seed
        Where the draw starts: the same seed draws the same values.
    entry_cost
        What taking part costs before the first unit of budget: a number or FILE[:COLUMN].
    caps
        Each owner's largest budget: a number or FILE[:COLUMN].
    reward
        The total reward, or `best`: the one that is best for the buyer.
    chance
        The accuracy of a guess.
    ceiling
        The accuracy without noise.
    noise_coefficient
        What all noise counts for; `fedbourse study calibrate` fits it.
    sampling
        The variance that one owner's few records leave without any noise, in the units of noise;
        `fedbourse study calibrate --sellers` fits it.
    accuracy_value
        What an accuracy of 1 is worth to the buyer, in units of reward.
    pay_for
        Pay in proportion to the budget, or to the information: samples^2 times the budget.
    dimension
        How many parameters the model has.
    samples
        Records behind each owner's updates: a number or FILE[:COLUMN].
    rows
        How many participants the table shows, the largest budgets first.
    """
    COSTS.choose(cost)
    ACCURACY_MODELS.choose(accuracy)
    people = owners_of(values, uniform, owners, seed, names)
    if isinstance(people.data, Stream):
        _refuse_unstreamed(
            cost, reward, entry_cost=entry_cost, caps=caps, pay_for=pay_for, samples=samples
        )
    shown = whole_number("rows", rows, at_least=0)
    training = Training(
        dimension=whole_number("dimension", dimension, at_least=1),
        step_size=step_size,
        iterations=whole_number("iterations", iterations, at_least=1),
        samples=_number_or_column("samples", samples, "samples"),
        clip=clip,
    )
    model = Accuracy(
        accuracy, chance=chance, ceiling=ceiling, noise=noise_coefficient, sampling=sampling
    )
    accuracy_value = number("accuracy_value", accuracy_value, above=0)
    game: dict[str, Any] = {
        "cost": cost,
        "entry_cost": _number_or_column("entry-cost", entry_cost, "entry_cost"),
        "caps": None if caps is None else _number_or_column("caps", caps, "cap", "caps"),
        "pay_for": pay_for,
    }
    buyer = Buyer(
        training, accuracy_value, model, cost_named(cost), game["entry_cost"], game["caps"], pay_for
    )
    amount = number_or_best("reward", reward)
    with shown_while_read(people) as data:
        if amount is None:
            offer: Offer = best_reward(
                data, training, accuracy_value=accuracy_value, accuracy=model, **game
            )
        else:
            offer = _at(amount, buyer, data)
        solution = offer.equilibrium
        # A document has every participant, in full precision.
        rows_shown, not_listed = listed(people, solution, training, None if output.json else shown)
        regret = solution.certify()
    document = {
        "reward": solution.reward,
        "participants": solution.count,
        "cutoff": solution.cutoff,
        "total_budget": solution.total_budget,
        "server_utility": offer.utility,
        "accuracy": offer.accuracy,
        "regret": regret,
        "reason": offer.reason,
        "owners_asked": solution.owners,
        "reward_method": offer.method,
        "equilibrium_method": solution.method,
        "cost": cost,
        "accuracy_model": accuracy,
        "pay_for": pay_for,
        "accuracy_value": accuracy_value,
        "chance": chance,
        "ceiling": ceiling,
        "noise_coefficient": noise_coefficient,
        "sampling": sampling,
        "dimension": training.dimension,
        "step_size": step_size,
        "iterations": training.iterations,
        "clip": clip,
        "delta": DELTA,
        "seed": int(seed) if uniform else None,
        "version": __version__,
        "unlisted": not_listed,
        "owners": rows_shown,
    }
    output.show(document, lambda document: _in_words(document, shown))


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


def _at(reward: float, buyer: Buyer, values: object) -> Offer:
    """Return what a given reward buys."""
    solution = buyer.equilibrium(values, reward)
    precisions, multiplicities = buyer.precisions(solution)
    return Offer(
        reward=reward,
        utility=buyer.utility(precisions, multiplicities, solution.owners, reward),
        accuracy=buyer.accuracy.of(precisions, solution.owners, multiplicities),
        equilibrium=solution,
        method="given",
        reason="",
    )


def _refuse_unstreamed(
    cost: str, reward: str, *, entry_cost: str, caps: str | None, pay_for: str, samples: str
) -> None:
    """Refuse what needs all values in memory."""
    function = cost_named(cost)
    wrong = {
        "--caps": caps is not None,
        f"--entry-cost {entry_cost}": not _is_number(entry_cost) or float(entry_cost) != 0,
        f"--samples {samples}": not _is_number(samples),
        f"--pay-for {pay_for}": pay_for != "budget",
        f"--cost {cost}": bool(function.entry),
        f"--reward best with --cost {cost}": reward == "best" and function.degree is None,
    }
    for option, is_wrong in wrong.items():
        if is_wrong:
            raise InvalidInput(
                f"{option} needs all values in memory, and a directory, a glob or a file above "
                "256 MB is read in chunks; give one smaller file"
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _name(owner: dict[str, Any]) -> str:
    """Return what to call an owner in the table."""
    if "file" in owner:
        return f"{owner['file']}:{owner['row']}"
    return str(owner.get("name", owner["index"]))


def _in_words(document: dict[str, Any], rows: int) -> Blocks:
    if document["owners"]:
        yield table(
            document["owners"],
            {
                "owner": _name,
                "value": "{value:.6g}",
                "budget rho": "{budget:.6g}",
                "pay": "{payment:.6g}",
                "utility": "{utility:.6g}",
                "noise sigma": "{noise_scale:.6g}",
                "epsilon": "{epsilon:.6g}",
            },
        )
        count = document["participants"]
        if count > rows:
            yield f"... and {count - rows} more (--rows {count} shows all)"
        yield ""
    elif document["unlisted"]:
        yield document["unlisted"]
        yield ""
    tau = document["cutoff"] if document["pay_for"] == "budget" else None
    facts: dict[str, object] = {
        "reward": f"{document['reward']:.6g} ({document['reward_method']})",
        "participants": f"{document['participants']} of {document['owners_asked']} owners"
        + (f", those with a value below {tau:.6g}" if tau is not None else ""),
        "total budget": f"{document['total_budget']:.6g} rho of zCDP",
        "epsilon": f"about one record of an owner, at delta {document['delta']:g}, proved",
        "accuracy": f"{document['accuracy']:.2%} by the model '{document['accuracy_model']}'",
        "buyer's utility": f"{document['server_utility']:.6g}",
        "regret": f"{document['regret']:.3g}, the most that any owner could gain by another "
        "budget, the others' fixed",
        "method": document["equilibrium_method"],
    }
    if not document["reward"]:
        facts = {name: facts[name] for name in ("participants", "accuracy", "buyer's utility")}
    yield facts
    if document["reason"]:
        yield ""
        yield document["reason"]
