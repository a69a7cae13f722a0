"""``fedbourse study evidence``: what a device without data earns, and what evidence shows of it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - cyclopts reads it
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from fedbourse.cli.files import output_folder
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import OUTPUT, PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.cli.study_task import STUDY, EvidenceOptions, FirstSeed, SeedCount
from fedbourse.errors import InvalidInput
from fedbourse.units import number, whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedbourse.study.evidence.sweeps import EvidenceStudy

_ALL = "all"


def evidence(
    *,
    options: EvidenceOptions = EvidenceOptions(),
    reward: Annotated[float, Parameter(group=STUDY)] = 0.186,
    reference_records: Annotated[Whole, Parameter(group=STUDY)] = 1000,
    alpha: Annotated[float, Parameter(group=STUDY)] = 0.01,
    beta: Annotated[float, Parameter(group=STUDY)] = 0.01,
    k0: Annotated[float, Parameter(group=STUDY)] = 0.5,
    sweep: Annotated[tuple[str, ...], Parameter(group=STUDY, negative="")] = ("attacks",),
    attack: Annotated[tuple[str, ...], Parameter(group=STUDY, negative="")] = (),
    seeds: SeedCount = 20,
    seed: FirstSeed = 0,
    out: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    output: Output = PEOPLE,
) -> None:
    """Show what devices that do not do their work earn, without evidence and with it.

    One owner acts as if privacy were worth next to nothing to it, sells most of the budget, and
    sends something else than its records' gradients. Evidence compares updates with the gradients
    of the buyer's reference records, which costs no privacy. Other sweeps watch honest owners whose
    records differ, or vary one number of the rule at a time. With everything it takes some minutes.

    For example:

        fedbourse study evidence

        fedbourse study evidence --attack "no data" --attack honest --seeds 3 --json

        fedbourse study evidence --sweep all --out study-evidence

    Parameters
    ----------
    reward
        R, in credits.
    reference_records
        How many of the buyer's records updates are compared with.
    alpha
        How likely, at most, a device without data ever shows data.
    beta
        How likely, at most, a device with data like the reference's is ever dismissed.
    k0
        The part of the reference's gradient that an honest device's must reach.
    sweep
        What to try: attacks, ordinary-budgets, attacks-by-class, honest-owners, budget, reference,
        rounds, k0, or all; may be repeated.
    attack
        An attack to try; may be repeated. All of them, where none is named.
    out
        A folder to write the tables to, as CSV and Markdown; it is made if need be.
    """
    from fedbourse.study.evidence.scenario import DEVIATIONS, Setting
    from fedbourse.study.evidence.sweeps import SWEEPS, evidence_study

    _check("sweep", sweep, (*SWEEPS, _ALL))
    _check("attack", attack, DEVIATIONS)
    setting = Setting(
        task=options.task(),
        reward=number("reward", reward, above=0),
        reference_records=whole_number("reference_records", reference_records, at_least=2),
        alpha=alpha,
        beta=beta,
        k0=k0,
    )
    rule = setting.rule  # which checks its numbers
    count = whole_number("seeds", seeds, at_least=2)
    first = whole_number("seed", seed, at_least=0)
    with nullcontext() if out is None else output_folder(out):
        with progress_bar("scenarios") as advance:
            rows = evidence_study(
                setting,
                seeds=count,
                first_seed=first,
                sweeps=tuple(SWEEPS) if _ALL in sweep else tuple(dict.fromkeys(sweep)),
                deviations=attack,
                progress=advance,
            )
        files = [] if out is None else _write(rows, out)
    document = {
        "version": __version__,
        "task": asdict(setting.task),
        "rule": asdict(rule),
        "seed": first,
        "seeds": count,
        "rows": [asdict(row) for row in rows],
        "reward": setting.reward,
        "reference_records": setting.reference_records,
        "files": [str(file) for file in files],
    }
    output.show(document, lambda _: _in_words(rows, count, files, out))


def _check(name: str, chosen: tuple[str, ...], choices: Iterable[str]) -> None:
    for each in chosen:
        if each not in choices:
            raise InvalidInput(f"{name} must be one of {', '.join(choices)}; found {each!r:.60}")


def _write(rows: EvidenceStudy, out: Path) -> list[Path]:
    from fedbourse.study.evidence.tables import evidence_record, markdown
    from fedbourse.study.tables import write_rows

    source: dict[str, object] = {"version": __version__}
    page = out / "evidence.md"
    page.write_text(markdown(rows), encoding="utf-8")
    return [write_rows(out / "evidence.csv", (evidence_record(r) | source for r in rows)), page]


def _in_words(rows: EvidenceStudy, seeds: int, files: list[Path], out: Path | None) -> Blocks:
    from fedbourse.study.evidence.tables import COLUMNS, TITLES, by_sweep

    for sweep, group in by_sweep(rows):
        yield TITLES[sweep]
        yield table(group, COLUMNS[sweep])
        yield ""
    yield (
        f"{seeds} seeds. Parts of the watched devices, and of the reward; accuracy is on the "
        "buyer's own records, with 95 % intervals. z, echo z and ever shown are what they would be "
        "if nobody were dismissed. Dismissals count where evidence stands: at least half of the "
        "devices are left, and together they show data; the last column of attacks is how often "
        "those who show data hold half of the budget."
    )
    if out is not None:
        yield f"{len(files)} files in {out}"
