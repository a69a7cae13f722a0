"""``fedbourse study deviations``: who gains by playing the market another way than intended?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.files import output_folder
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.cli.study_task import STUDY, Folder
from fedbourse.errors import InvalidInput
from fedbourse.units import whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.study.deviations.cases import Case
    from fedbourse.study.deviations.findings import DeviationFinding


def deviations(
    *,
    plays: Annotated[Whole, Parameter(group=STUDY)] = 24,
    seed: Annotated[Whole, Parameter(group=STUDY)] = 0,
    only: Annotated[str | None, Parameter(group=STUDY)] = None,
    out: Folder = Path("study-deviations"),
    output: Output = PEOPLE,
) -> None:
    """Search for gains by playing the market another way than intended, for every party.

    Owners who act as others, take part under several names, reply late or contradict themselves,
    leave, decline or do not deliver; all owners together; a buyer with names of its own. Every
    deviation is played from the card to the last credit, under a model of the protocol before its
    rules, and against the market's own commands over a temporary database. Writes the table (CSV
    and Markdown) and a figure (SVG and PNG). With the default it takes some minutes.

    For example:

        fedbourse study deviations

        fedbourse study deviations --only sniping,leaving --plays 100 --json

    Parameters
    ----------
    plays
        How many tasks the search for each deviation plays on the market; the old protocol's model
        plays ten times as many.
    seed
        Where the search starts: the same seed gives the same study.
    only
        Keys of the deviations to search, separated by commas; all of them by default.
    """
    from fedbourse.embedded.deviation_market import deviation_market
    from fedbourse.figures import need_matplotlib
    from fedbourse.study.deviations.findings import deviation_study
    from fedbourse.study.deviations.tables import finding_row

    need_matplotlib()
    cases = _chosen(only)
    count = whole_number("plays", plays, at_least=1)
    first = whole_number("seed", seed, at_least=0)
    with output_folder(out):
        with progress_bar("deviations") as advance, deviation_market() as market:
            findings = deviation_study(
                market.play, cases=cases, plays=count, seed=first, progress=advance
            )
        files = _write(findings, out)
    document = {
        "version": __version__,
        "seed": first,
        "files": [str(file) for file in files],
        "rows": [finding_row(finding) for finding in findings],
    }
    output.show(document, lambda document: _in_words(document["rows"], files, out))


def _chosen(only: str | None) -> list[Case]:
    from fedbourse.study.deviations.findings import all_cases

    cases = all_cases()
    keys = list(cases) if only is None else [key.strip() for key in only.split(",")]
    for key in keys:
        if key not in cases:
            raise InvalidInput(
                f"only must be keys of deviations separated by commas; found {key!r:.60}, and "
                f"there are {', '.join(cases)}"
            )
    return [cases[key] for key in keys]


def _write(findings: Sequence[DeviationFinding], out: Path) -> list[Path]:
    from fedbourse.study.deviations.figure import draw_deviations
    from fedbourse.study.deviations.tables import finding_row, markdown
    from fedbourse.study.tables import write_rows

    source: dict[str, object] = {"version": __version__}
    page = out / "deviations.md"
    page.write_text(markdown(findings), encoding="utf-8")
    rows = write_rows(out / "deviations.csv", (finding_row(each) | source for each in findings))
    return [rows, page, *draw_deviations(findings, out)]


def _in_words(rows: list[dict[str, Any]], files: list[Path], out: Path) -> Blocks:
    yield table(
        rows,
        {
            "who": "{party}",
            "deviation": "{deviation}",
            "intended": "{intended:.3f}",
            "before": "{before:.3f}",
            "after": "{after:.3f}",
            "gain left": lambda row: f"{row['gain_after']:.3f}" if row["gain_after"] else "0",
        },
    )
    yield ""
    yield (
        "Owners: utility, in credits, at R = 10. Buyer: credits paid for the budget that honest "
        "owners sell for 10. The best that search found; a gain that is left has its reason in "
        f"{files[1].name}."
    )
    yield f"{len(files)} files in {out}"
