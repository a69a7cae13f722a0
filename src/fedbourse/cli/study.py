"""``fedbourse study ...``: studies that print verdicts and leave figures and tables behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.progress import progress_bar
from fedbourse.errors import CannotWrite
from fedbourse.game import ACCURACY_MODELS
from fedbourse.study.claims import Verdict, judge
from fedbourse.study.figures import draw_panels, need_matplotlib
from fedbourse.study.paper import PaperStudy, run_paper_study
from fedbourse.study.tables import verdict_row, write_tables
from fedbourse.units import whole_number
from fedbourse.version import __version__

study_app = App(name="study", help="Run a study: verdicts, figures and tables.")


@study_app.command
def paper(
    *,
    out: Path = Path("study-paper"),
    draws: Whole = 200,
    seed: Whole = 0,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Repeat the paper's whole evaluation, and judge each of its claims.

    Both of the paper's sweeps (100 to 1000 owners; largest values 2 to 10) with its parameters,
    under four models of accuracy. Writes six panels and an overview (SVG and PNG) and the numbers
    behind them (CSV), and says of each claim whether it holds.

    Examples:

        fedbourse study paper

        fedbourse study paper --out figures --draws 5000 --seed 7 --json

    Parameters
    ----------
    out
        The folder to write to; it is made if need be.
    draws
        How often all owners' values are drawn at each setting.
    seed
        Where the draws start: the same seed gives the same study.
    as_json
        Print one JSON document with every verdict and the files written.
    """
    count = whole_number("draws", draws, at_least=2)
    first = whole_number("seed", seed, at_least=0)
    need_matplotlib()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with progress_bar("settings") as advance:
            study = run_paper_study(draws=count, seed=first, progress=advance)
        verdicts = judge(study)
        files = write_tables(study, verdicts, out) + draw_panels(study, out)
    except OSError as error:
        raise CannotWrite(f"{out} cannot be written to: {error.strerror or error}") from None
    if as_json:
        print(
            json.dumps(
                {
                    "version": __version__,
                    "draws": study.draws,
                    "seed": study.seed,
                    "files": [str(file) for file in files],
                    "verdicts": [verdict_row(verdict) for verdict in verdicts],
                },
                allow_nan=False,
            )
        )
    else:
        _print(verdicts, study, out, len(files))


def _print(verdicts: list[Verdict], study: PaperStudy, out: Path, files: int) -> None:
    """Print each claim, and below it a verdict under each model with the numbers behind it."""
    console = Console()
    by_claim: dict[str, list[str]] = {}
    for verdict in verdicts:
        by_claim.setdefault(verdict.claim.text, []).append(_cell(verdict))
    console.print("What the paper's text says, and whether it holds under each model of accuracy")
    console.print(_in_columns([f"[bold]{model}[/]" for model in ACCURACY_MODELS]))
    for text, cells in by_claim.items():
        console.print(f"\n[italic]{text}[/]", highlight=False)
        console.print(_in_columns(cells))
    console.print(
        f"\nBeside a verdict: Kendall's tau; below: the means at the first and last setting.\n"
        f"{study.draws} draws a setting, seed {study.seed}; {files} files in {out}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _in_columns(cells: list[str]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in cells:
        table.add_column(width=19, no_wrap=True)
    table.add_row(*cells)
    return table


def _cell(verdict: Verdict) -> str:
    style = "green" if verdict.holds else "red"
    tau = "" if verdict.tau is None else f" {verdict.tau:+.2f}"
    return f"[{style}]{verdict.word}[/]{tau}\n{verdict.numbers}"
