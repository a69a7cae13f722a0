"""``fedbourse study unknown-values``: what not knowing owners' values costs, and who uses it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.files import output_folder
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.cli.study_task import STUDY, Folder
from fedbourse.units import whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN = (1, 2, 3, 5, 10, 20)  # tasks that are printed, besides the last one


def unknown_values(
    *,
    owners: Annotated[Whole, Parameter(group=STUDY)] = 100,
    tasks: Annotated[Whole, Parameter(group=STUDY)] = 50,
    repeats: Annotated[Whole, Parameter(group=STUDY)] = 10,
    seed: Annotated[Whole, Parameter(group=STUDY)] = 0,
    out: Folder = Path("study-unknown-values"),
    output: Output = PEOPLE,
) -> None:
    """Show what a buyer loses by not knowing owners' values, and what owners gain by holding back.

    A buyer starts from a guessed range, announces the best reward for what it assumes, and learns
    from the replies to each settled task; regret is what knowing the distribution would have added.
    Then groups of owners act as if their values were larger in the first tasks, so that it learns
    that it must pay more. Writes both tables (CSV). With the default it takes about a minute.

    For example:

        fedbourse study unknown-values

        fedbourse study unknown-values --owners 20 --tasks 5 --repeats 3 --json

    Parameters
    ----------
    owners
        How many owners are interested in each task.
    tasks
        How many tasks the buyer publishes, one after the other.
    repeats
        How often everything is played with other values.
    seed
        Where the draws start: the same seed gives the same study.
    """
    from fedbourse.study.ratchet import run_ratchet_study
    from fedbourse.study.tables import mean_row, write_rows
    from fedbourse.study.unknown_values import run_regret_study

    options = {
        "owners": whole_number("owners", owners, at_least=2),
        "tasks": whole_number("tasks", tasks, at_least=2),
        "repeats": whole_number("repeats", repeats, at_least=2),
        "seed": whole_number("seed", seed, at_least=0),
    }
    with output_folder(out):
        with progress_bar("tasks of buyers") as advance:
            regret = [mean_row(row) for row in run_regret_study(**options, progress=advance)]
        with progress_bar("owners who hold back") as advance:
            ratchet = [mean_row(row) for row in run_ratchet_study(**options, progress=advance)]
        source: dict[str, object] = {"version": __version__, **options}
        files = [
            write_rows(out / "regret.csv", (row | source for row in regret)),
            write_rows(out / "ratchet.csv", (row | source for row in ratchet)),
        ]
    document = {
        **source,
        "files": [str(file) for file in files],
        "regret_rows": regret,
        "ratchet_rows": ratchet,
    }
    output.show(document, lambda document: _in_words(document, out))


def _in_words(document: dict[str, Any], out: Path) -> Blocks:
    from fedbourse.study.ratchet import MEMORIES
    from fedbourse.study.unknown_values import METHODS

    yield "The buyer's regret, in credits, in the task and (over all tasks so far)"
    last = document["tasks"]
    yield table(
        _by_task(document["regret_rows"], {*_SHOWN, last}),
        {
            "<values": "{values}",
            "task": "{task}",
            "best R": "{best_reward:.3f}",
            **{name: _regret(name) for name in METHODS},
        },
    )
    yield ""
    yield "What owners of the lowest values gain by acting dear in early tasks"
    yield table(
        _by_play(document["ratchet_rows"]),
        {
            "owners": "{group}",
            "times": "{factor:g}",
            "tasks": "{early}",
            "by acting": "{acting:+.1%}",
            **{f"ratchet,\n{memory}": _ratchet(memory) for memory in MEMORIES},
            "together": lambda row: f"{row['gain']:+.1%} ± {100 * row['gain_margin']:.1f}",
            "buyer loses": "{buyer_loss:.2f}",
        },
    )
    yield ""
    yield (
        f"{document['owners']} owners, {last} tasks, {document['repeats']} repeats, 95 % "
        "intervals. Gains are parts of what truthful replies earn the group over all tasks; "
        "together, and the buyer's loss in credits, are where it learns from "
        f"{MEMORIES[0]}. {len(document['files'])} files in {out}"
    )


def _by_task(rows: list[dict[str, Any]], tasks: set[int]) -> Iterator[dict[str, Any]]:
    """Yield one row for each distribution and task, with every method's row by its name."""
    together: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        if row["task"] in tasks:
            together.setdefault((row["values"], row["task"]), dict(row))[row["method"]] = row
    yield from together.values()


def _by_play(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one row for each way to hold back, with the ratchet by what the buyer learns from."""
    together: dict[tuple[int, float, int], dict[str, Any]] = {}
    for row in rows:
        play = row["group"], row["factor"], row["early"]
        together.setdefault(play, dict(row))[row["memory"]] = row["ratchet"]
    yield from together.values()


def _ratchet(memory: str) -> Any:
    return lambda row: f"{row[memory]:+.1%}"


def _regret(method: str) -> Any:
    return lambda row: f"{row[method]['regret']:.4f} ({row[method]['total_regret']:.3f})"
