"""``fedbourse demo``: a whole trade on real data, in one process."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fedbourse.cli.option_values import Whole, low_and_high, number_or_best
from fedbourse.errors import CannotWrite
from fedbourse.privacy.loss import EPSILON_HEADS, NOTES, PrivacyLoss
from fedbourse.units import credits_text, number, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.learning.rounds import Round

_TRADE, _TRAINING, _OUTPUT = (
    Group.create_ordered(name) for name in ("Trade", "Training", "Output")
)


def demo(
    *,
    data: Annotated[str, Parameter(group=_TRADE)] = "flights",
    owners: Annotated[Whole | None, Parameter(group=_TRADE)] = None,
    samples: Annotated[Whole | None, Parameter(group=_TRADE)] = None,
    partition: Annotated[str | None, Parameter(group=_TRADE)] = None,
    uniform: Annotated[str, Parameter(group=_TRADE)] = "1:5",
    reward: Annotated[str, Parameter(group=_TRADE)] = "best",
    weight: Annotated[float, Parameter(group=_TRADE)] = 20.0,
    seed: Annotated[Whole, Parameter(group=_TRADE)] = 0,
    model: Annotated[str | None, Parameter(group=_TRAINING)] = None,
    rounds: Annotated[Whole, Parameter(group=_TRAINING)] = 50,
    step_size: Annotated[float, Parameter(group=_TRAINING)] = 1.0,
    clip: Annotated[float, Parameter(group=_TRAINING)] = 1.0,
    weights: Annotated[Literal["equal", "precision"], Parameter(group=_TRAINING)] = "precision",
    noise: Annotated[Literal["simulated", "exact"], Parameter(group=_TRAINING)] = "simulated",
    dropout: Annotated[float, Parameter(group=_TRAINING)] = 0.0,
    cap_epsilon: Annotated[float, Parameter(group=_TRADE)] = 8.0,
    out: Annotated[Path, Parameter(group=_OUTPUT)] = Path("demo"),
    as_json: Annotated[bool, Parameter(name="--json", negative=(), group=_OUTPUT)] = False,
) -> None:
    """Carry out a whole trade: card, reward, plans, payments, private training, report.

    Owners with hidden values are interested in a buyer's task. The buyer announces the reward that
    is best for it, owners sell budgets, escrow holds the money, their devices train a model
    together on real data, each adding its own noise, and pay follows round by round.
    Writes `report.html` (one file, no network) and `report.json`.

    Examples:

        fedbourse demo

        fedbourse demo --owners 300 --reward 0.1 --weights equal --seed 7

        fedbourse demo --data sklearn:digits --reward 5 --json

        fedbourse demo --data patients.csv:outcome --owners 12 --samples 50 --reward 1

    Parameters
    ----------
    data
        flights, flights:aircraft (an owner is an aircraft), sklearn:digits, sklearn:breast_cancer,
        synthetic[:KEY=NUMBER,...], or FILE[:LABEL_COLUMN], a .csv, .parquet or .npz file.
    owners
        How many owners are interested; 200, or as many as the data can serve.
    samples
        Records behind each owner's answers; by default what suits the data.
    partition
        How records are dealt out: iid, dirichlet:ALPHA (skewed labels; the smaller ALPHA, the
        more), or groups (as flights:aircraft has them).
    uniform
        Owners' values are drawn evenly from LOW:HIGH, and the buyer knows that much.
    reward
        The total reward in credits, or `best`: the best for the values that the buyer assumes, by
        the accuracy model that fits the weights, not calibrated.
    weight
        What an accuracy of 1 is worth to the buyer, in credits.
    seed
        The same seed gives the same trade.
    model
        logistic, softmax, least-squares or hidden:UNITS; by default what suits the data.
    rounds
        How many rounds of training.
    step_size
        The step size of training.
    clip
        The norm that each record's gradient is clipped to.
    weights
        How answers are averaged: by their precision, which is by pay; or all alike, as the paper
        has it.
    noise
        Simulated from the seed, or exact: the devices' own, which cannot be repeated.
    dropout
        How often an owner is away in a round, between 0 and 1; it then neither spends nor earns.
    cap_epsilon
        Every owner's lifetime cap over all tasks, as an epsilon about one record at delta 1e-5.
    out
        The folder for the report; it is made if need be.
    as_json
        Print the report as one JSON document.
    """
    from fedbourse.bootstrap.demo import DemoSettings, demo_trade
    from fedbourse.report import trade_page

    amount = number_or_best(reward)
    settings = DemoSettings(
        data=data,
        owners=None if owners is None else whole_number("owners", owners, at_least=2),
        samples=None if samples is None else whole_number("samples", samples, at_least=1),
        partition=partition,
        values=low_and_high(uniform),
        reward="best" if amount is None else number("reward", amount, above=0),
        weight=number("weight", weight, above=0),
        rounds=whole_number("rounds", rounds, at_least=1),
        step_size=step_size,
        clip=clip,
        model=model,
        weights=weights,
        noise=noise,
        dropout=dropout,
        cap_epsilon=cap_epsilon,
        seed=whole_number("seed", seed, at_least=0),
    )
    console = Console(stderr=True)
    with (
        _made(out),
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[seen]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        ) as progress,
    ):
        bar = progress.add_task("setting up", total=settings.rounds, seen="")

        def on_step(sentence: str) -> None:
            progress.console.print(f"- {sentence}", highlight=False, soft_wrap=True, markup=False)
            progress.update(bar, description="trading")

        def on_round(seen: Round) -> None:
            progress.update(
                bar,
                advance=1,
                description="training",
                seen=f"loss {seen.loss:.3f}, accuracy {seen.accuracy:.1%}",
            )

        report = demo_trade(settings, on_step=on_step, on_round=on_round)
    text = json.dumps(report, allow_nan=False)
    _write(out / "report.json", text)
    _write(out / "report.html", trade_page(report))
    if as_json:
        print(text)
    else:
        _print(report, out)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder before the work begins, and take it away again where that fails."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"{folder}: {error.strerror}") from None
    try:
        yield
    except BaseException:
        if new:
            with suppress(OSError):  # something is in it
                folder.rmdir()
        raise


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(f"{file}: {error.strerror}") from None


def _print(report: dict[str, Any], out: Path) -> None:

    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = ("owner", "budget\nrho", "pay", "answered", "earned", *EPSILON_HEADS)
    for name in (*heads, "of its\ncap's rho"):
        table.add_column(name, justify="right", no_wrap=True)
    for owner in report["owners"]:
        loss = PrivacyLoss.of(owner["spent"], samples=report["card"]["samples"])
        table.add_row(
            str(owner["owner"]),
            f"{owner['budget']:.5f}",
            credits_text(owner["payment_micro"]),
            f"{owner['answered']}/{report['card']['rounds']}",
            credits_text(owner["earned_micro"]),
            loss.one_record_text,
            loss.whole_owner_text,
            f"{owner['cap_share']:.1%}",
        )
    console.print(table)
    accuracy, money = report["accuracy"], report["money"]
    predicted = ", ".join(f"{name} {level:.1%}" for name, level in accuracy["predicted"].items())
    references = ", ".join(
        f"{level:.1%} by {name}" for name, level in accuracy["references"].items()
    )
    fund = f" + to the fund {credits_text(money['fund_micro'])}" if money["fund_micro"] else ""
    lines = {
        "took part": f"{report['participants']} of {report['interested']} owners; none could gain "
        f"more than {report['regret']:.2g} by another budget, the others' fixed",
        "privacy": f"epsilon is of what was spent, at delta {report['delta']:g}; the cap over all "
        f"tasks is epsilon {report['origin']['cap_epsilon']:g} about one record",
        **NOTES,
        "noise": "exact, as on a device"
        if report["origin"]["noise"] == "exact"
        else "simulated from the seed: it protects nobody; --noise exact is what devices use",
        "accuracy": f"{accuracy['measured']:.1%} (loss {report['rounds'][-1]['loss']:.3f}) on "
        f"{accuracy['validation_records']} records of the buyer's own",
        "predicted": predicted,
        "to compare": references,
        "money": f"reward {credits_text(money['reward_micro'])} = earned "
        f"{credits_text(money['earned_micro'])} + refunded {credits_text(money['refunded_micro'])}"
        f"{fund} + in escrow {credits_text(money['escrow_micro'])}, "
        f"in {money['transfers']} transfers",
        "report": f"{out / 'report.html'}",
    }
    console.print()
    for name, text in lines.items():
        console.print(f"{name:>16}  {text}", highlight=False, soft_wrap=True, markup=False)
