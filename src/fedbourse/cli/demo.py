"""``fedbourse demo``: a whole trade on real data, in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from fedbourse.cli.files import output_folder
from fedbourse.cli.option_values import (
    Clip,
    Model,
    Rounds,
    Samples,
    StepSize,
    Whole,
    count_or_none,
    low_and_high,
    number_or_best,
)
from fedbourse.cli.output import (
    OUTPUT,
    PEOPLE,
    Blocks,
    Output,
    epsilon_columns,
    print_note,
    progress_bar,
    table,
)
from fedbourse.privacy.loss import NOTES, PrivacyLoss
from fedbourse.units import credits_text, number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

_TRADE, _TRAINING = (Group.create_ordered(name) for name in ("Trade", "Training"))


def demo(
    *,
    data: Annotated[str, Parameter(group=_TRADE)] = "flights",
    owners: Annotated[Whole | None, Parameter(group=_TRADE)] = None,
    samples: Annotated[Samples, Parameter(group=_TRADE)] = None,
    partition: Annotated[str | None, Parameter(group=_TRADE)] = None,
    uniform: Annotated[str, Parameter(group=_TRADE)] = "1:5",
    reward: Annotated[str, Parameter(group=_TRADE)] = "best",
    without_data: Annotated[Whole, Parameter(group=_TRADE)] = 1,
    evidence: Annotated[bool, Parameter(group=_TRADE)] = True,
    accuracy_value: Annotated[float, Parameter(group=_TRADE)] = 20.0,
    seed: Annotated[Whole, Parameter(group=_TRADE)] = 0,
    model: Annotated[Model, Parameter(group=_TRAINING)] = None,
    rounds: Annotated[Rounds, Parameter(group=_TRAINING)] = 50,
    step_size: Annotated[StepSize, Parameter(group=_TRAINING)] = 1.0,
    clip: Annotated[Clip, Parameter(group=_TRAINING)] = 1.0,
    aggregation: Annotated[Literal["equal", "precision"], Parameter(group=_TRAINING)] = "precision",
    noise: Annotated[Literal["simulated", "exact"], Parameter(group=_TRAINING)] = "simulated",
    dropout: Annotated[float, Parameter(group=_TRAINING)] = 0.0,
    cap_epsilon: Annotated[float, Parameter(group=_TRADE)] = 8.0,
    out: Annotated[Path, Parameter(group=OUTPUT)] = Path("demo"),
    output: Output = PEOPLE,
) -> None:
    """Carry out a whole trade: card, reward, plans, payments, private training, report.

    Owners with hidden values are interested in a buyer's task. The buyer announces the reward that
    is best for it, owners sell budgets, escrow holds the money, their devices train a model
    together on real data, each adding its own noise, and pay follows round by round.
    Writes `report.html` (one file, no network) and `report.json`.

    For example:

        fedbourse demo

        fedbourse demo --owners 300 --reward 0.1 --aggregation equal --seed 7

        fedbourse demo --data sklearn:digits --reward 5 --json

        fedbourse demo --data patients.csv:outcome --owners 12 --samples 50 --reward 1

    Parameters
    ----------
    data
        flights, flights:aircraft (an owner is an aircraft), mnist (see `fedbourse data fetch`),
        sklearn:digits, sklearn:breast_cancer, synthetic[:KEY=NUMBER,...], or
        FILE[:LABEL_COLUMN], a .csv, .parquet or .npz file.
    owners
        How many owners are interested; 200, or as many as the data can serve.
    partition
        How records are dealt out: iid, dirichlet:ALPHA (skewed labels; the smaller ALPHA, the
        more), or groups (as flights:aircraft has them).
    uniform
        Owners' values are drawn evenly from LOW:HIGH, and the buyer knows that much.
    reward
        The total reward in credits, or `best`: the best for the values that the buyer assumes, by
        the accuracy model that fits the aggregation, not calibrated.
    without_data
        How many of the owners have no data, act as if privacy were worth next to nothing to them,
        and send noise alone.
    evidence
        Whether the market compares updates with records of the buyer's own, asks devices no more
        whose updates do not agree, and pays them nothing. The report then also says how the same
        trade ends without evidence; `--no-evidence` is the paper's rule alone.
    accuracy_value
        What an accuracy of 1 is worth to the buyer, in credits.
    seed
        The same seed gives the same trade.
    aggregation
        How updates are aggregated: by their precision, which is by pay; or all alike, as the paper
        has it.
    noise
        Simulated from the seed, or exact: the devices' own, which cannot be repeated.
    dropout
        How often an owner is away in a round, between 0 and 1; it then neither spends nor earns.
    cap_epsilon
        Every owner's lifetime cap over all tasks, as an epsilon about one record at delta 1e-5.
    out
        The folder for the report; it is made if need be.
    """
    from fedbourse.demos.local import DemoSettings, demo_trade
    from fedbourse.report import trade_page

    amount = number_or_best("reward", reward)
    settings = DemoSettings(
        data=data,
        owners=count_or_none("owners", owners, at_least=2),
        samples=count_or_none("samples", samples),
        partition=partition,
        values=low_and_high(uniform),
        reward="best" if amount is None else amount,
        accuracy_value=number("accuracy_value", accuracy_value, above=0),
        rounds=whole_number("rounds", rounds, at_least=1),
        step_size=step_size,
        clip=clip,
        model=model,
        aggregation=aggregation,
        without_data=whole_number("without_data", without_data, at_least=0),
        evidence=evidence,
        noise=noise,
        dropout=dropout,
        cap_epsilon=cap_epsilon,
        seed=whole_number("seed", seed, at_least=0),
    )
    with output_folder(out):
        with progress_bar("training", transient=True) as advance:
            report = demo_trade(
                settings,
                on_step=lambda sentence: print_note(f"- {sentence}"),
                on_round=lambda each: advance(
                    each.number + 1,
                    settings.rounds,
                    f"training, loss {each.loss:.3f}, accuracy {each.accuracy:.1%}",
                ),
            )
        text = json.dumps(report, allow_nan=False)
        (out / "report.json").write_text(text, encoding="utf-8")
        (out / "report.html").write_text(trade_page(report), encoding="utf-8")
    output.show(report, lambda report: _in_words(report, out))


def _in_words(report: dict[str, Any], out: Path) -> Blocks:
    from fedbourse.report import finding_words

    samples, rounds = report["card"]["samples"], report["card"]["rounds"]
    yield table(
        [
            owner | PrivacyLoss.of(owner["spent"], samples=samples).document()
            for owner in report["owners"]
        ],
        {
            "owner": "{owner}",
            "budget\nrho": "{budget:.5f}",
            "pay": "{payment_micro:credits}",
            "delivered": lambda owner: f"{owner['delivered']}/{rounds}",
            "earned": "{earned_micro:credits}",
            **epsilon_columns(),
            "of its\ncap's rho": "{cap_share:.1%}",
            **({"<evidence": finding_words} if report["evidence"] else {}),
        },
    )
    if report["comparison"] and report["without_data"]:
        yield ""
        yield _comparison(report)
    accuracy, money = report["accuracy"], report["money"]
    predicted = ", ".join(f"{name} {level:.1%}" for name, level in accuracy["predicted"].items())
    references = ", ".join(
        f"{level:.1%} by {name}" for name, level in accuracy["references"].items()
    )
    evidence, held = report["evidence"], {}
    if evidence is not None:
        held["held"] = (
            f"{credits_text(evidence['held_micro'])} until evidence was decided on = released "
            f"{credits_text(evidence['released_micro'])} + forfeited to the fund "
            f"{credits_text(evidence['forfeited_micro'])}"
        )
    fund = f" + to the fund {credits_text(money['fund_micro'])}" if money["fund_micro"] else ""
    yield ""
    yield {
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
        **held,
        **_evidence_words(report),
        "report": out / "report.html",
    }


def _comparison(report: dict[str, Any]) -> Table:
    """Return who earned what without evidence and with it."""
    from fedbourse.report import without_data_payment

    without, trades = report["without_data"], report["comparison"]
    honest = report["participants"] - len(without)
    share = without_data_payment(report) / report["money"]["reward_micro"]
    rows: list[tuple[str, Callable[[Any], str]]] = [
        (
            f"{_named(without)} without data ({share:.0%} of the reward at settlement)",
            lambda trade: credits_text(trade["without_data_micro"]),
        ),
        (f"{honest} honest owners", lambda trade: credits_text(trade["honest_micro"])),
        ("the market's fund", lambda trade: credits_text(trade["fund_micro"])),
        ("accuracy of the model", lambda trade: f"{trade['accuracy']:.1%}"),
    ]
    columns: dict[str, Any] = {"<earned": lambda row: row[0]}
    for trade in trades:
        head = "with evidence" if trade["evidence"] else "without evidence"
        columns[head] = lambda row, trade=trade: row[1](trade)
    return table(rows, columns)


def _named(owners: list[int]) -> str:
    return f"owner {owners[0]}," if len(owners) == 1 else f"{len(owners)} owners"


def _evidence_words(report: dict[str, Any]) -> dict[str, str]:
    """Return what evidence found, and what it does not do for the honest owners."""
    if report["evidence"] is None:
        return {}
    words = {"evidence": report["evidence"]["summary"]}
    if report["without_data"]:
        earned = credits_text(report["comparison"][-1]["honest_micro"])
        words["honest"] = (
            f"the honest owners earn {earned} in both, which is what settlement gave them: what "
            "is not earned goes to the fund, so that nobody gains from a dismissal"
        )
    return words
