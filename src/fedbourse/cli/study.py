"""``fedbourse study ...``: studies that print verdicts and leave figures and tables behind."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App
from rich.table import Table
from rich.text import Text

from fedbourse.cli.files import output_folder
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar
from fedbourse.cli.study_task import Folder  # noqa: TC001 - cyclopts reads it
from fedbourse.figures import need_matplotlib
from fedbourse.game import ACCURACY_MODELS
from fedbourse.study.claims import Verdict, verdicts_on
from fedbourse.study.figures import draw_panels
from fedbourse.study.paper import PaperStudy, paper_study
from fedbourse.study.tables import verdict_row, write_tables
from fedbourse.units import whole_number
from fedbourse.version import __version__

study_app = App(name="study", help="Run a study: verdicts, figures and tables.")


@study_app.command
def paper(
    *,
    out: Folder = Path("study-paper"),
    draws: Whole = 200,
    seed: Whole = 0,
    output: Output = PEOPLE,
) -> None:
    """Repeat the paper's whole evaluation, and judge each of its claims.

    Both of the paper's sweeps (100 to 1000 owners; largest values 2 to 10) with its parameters,
    under four models of accuracy. Writes six panels and an overview (SVG and PNG) and the numbers
    behind them (CSV), and says of each claim whether it holds.

    For example:

        fedbourse study paper

        fedbourse study paper --out figures --draws 5000 --seed 7 --json

    Parameters
    ----------
    draws
        How often all owners' values are drawn at each setting.
    seed
        Where the draws start: the same seed gives the same study.
    """
    count = whole_number("draws", draws, at_least=2)
    first = whole_number("seed", seed, at_least=0)
    need_matplotlib()
    with output_folder(out):
        with progress_bar("settings") as advance:
            study = paper_study(draws=count, seed=first, progress=advance)
        verdicts = verdicts_on(study)
        files = write_tables(study, verdicts, out) + draw_panels(study, out)
    output.show(
        {
            "version": __version__,
            "draws": study.draws,
            "seed": study.seed,
            "files": [str(file) for file in files],
            "verdicts": [verdict_row(verdict) for verdict in verdicts],
        },
        lambda _: _in_words(verdicts, study, out, len(files)),
    )


def _in_words(verdicts: list[Verdict], study: PaperStudy, out: Path, files: int) -> Blocks:
    """Yield each claim, and below it a verdict under each model with the numbers behind it."""
    by_claim: dict[str, list[Text]] = {}
    for verdict in verdicts:
        by_claim.setdefault(verdict.claim.text, []).append(_cell(verdict))
    yield "What the paper's text says, and whether it holds under each model of accuracy"
    yield _in_columns([Text(model, "bold") for model in ACCURACY_MODELS])
    for text, cells in by_claim.items():
        yield ""
        yield Text(text, "italic")
        yield _in_columns(cells)
    yield ""
    yield "Beside a verdict: Kendall's tau; below: the means at the first and last setting."
    yield f"{study.draws} draws a setting, seed {study.seed}; {files} files in {out}"


def _in_columns(cells: list[Text]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in cells:
        table.add_column(width=19, no_wrap=True)
    table.add_row(*cells)
    return table


def _cell(verdict: Verdict) -> Text:
    tau = "" if verdict.tau is None else f" {verdict.tau:+.2f}"
    word = (verdict.word, "green" if verdict.holds else "red")
    return Text.assemble(word, f"{tau}\n{verdict.numbers}")
