"""``fedbourse study evidence``: what a device without data earns, and what evidence shows of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.cli.study_task import (
    STUDY,
    EvidenceOptions,
    FirstSeed,
    SeedCount,
    percent,
)
from fedbourse.errors import InvalidInput
from fedbourse.units import number, whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from fedbourse.study.evidence import EvidenceStudy


def evidence(
    *,
    options: EvidenceOptions = EvidenceOptions(),
    reward: Annotated[float, Parameter(group=STUDY)] = 0.186,
    reference_records: Annotated[Whole, Parameter(group=STUDY)] = 1000,
    alpha: Annotated[float, Parameter(group=STUDY)] = 0.01,
    beta: Annotated[float, Parameter(group=STUDY)] = 0.01,
    k0: Annotated[float, Parameter(group=STUDY)] = 0.5,
    attack: Annotated[tuple[str, ...], Parameter(group=STUDY, negative="")] = (),
    seeds: SeedCount = 20,
    seed: FirstSeed = 0,
    output: Output = PEOPLE,
) -> None:
    """Show what one device that does not do its work earns, without evidence and with it.

    One owner acts as if privacy were worth next to nothing to it, sells most of the budget, and
    sends something else than its records' gradients. Evidence compares updates with the gradients
    of the buyer's reference records, which costs no privacy.

    For example:

        fedbourse study evidence

        fedbourse study evidence --attack "no data" --attack honest --seeds 3 --json

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
    attack
        An attack to try; may be repeated. All of them, where none is named.
    """
    from fedbourse.learning.evidence import EvidenceRule
    from fedbourse.study.evidence import ATTACKS, evidence_study

    for name in attack:
        if name not in ATTACKS:
            raise InvalidInput(f"attack must be one of {', '.join(ATTACKS)}; found {name!r:.60}")
    task = options.task()
    rule = EvidenceRule(alpha=alpha, beta=beta, k0=k0, rounds=task.rounds)
    count = whole_number("seeds", seeds, at_least=2)
    reward = number("reward", reward, above=0)
    reference_records = whole_number("reference_records", reference_records, at_least=1)
    with progress_bar("trainings") as advance:
        rows = evidence_study(
            task,
            rule,
            seeds=count,
            first_seed=whole_number("seed", seed, at_least=0),
            attacks=attack or tuple(ATTACKS),
            progress=advance,
            reward=reward,
            reference_records=reference_records,
        )
    document = {
        "version": __version__,
        "task": asdict(task),
        "rule": asdict(rule),
        "seed": seed,
        "seeds": count,
        "rows": [asdict(row) for row in rows],
        "reward": reward,
        "reference_records": reference_records,
    }
    output.show(document, lambda _: _in_words(rows, count))


def _in_words(rows: EvidenceStudy, seeds: int) -> Blocks:
    yield table(
        rows,
        {
            "what it sends": lambda row: row.attack,
            "shown": lambda row: f"{row.shown:.0%}",
            "dismissed": lambda row: f"{row.dismissed:.0%}",
            "in round": lambda row: (
                "-" if row.dismissal_round is None else f"{row.dismissal_round:.1f}"
            ),
            "score": lambda row: f"{row.score.value:.1f}",
            "pay": lambda row: f"{row.pay_share.value:.0%}",
            "with evidence": lambda row: f"{row.earned_share.value:.0%}",
            "accuracy": lambda row: percent(row.accuracy_without),
            "with evidence ": lambda row: percent(row.accuracy_with),
            "others dismissed": lambda row: f"{row.others_dismissed:.1%}",
            "stands": lambda row: f"{row.stands:.0%}",
            "by half of budget": lambda row: f"{row.half_of_budget:.0%}",
        },
    )
    yield ""
    yield (
        f"{seeds} seeds. Pay is a part of the reward; accuracy is on the buyer's own records, with "
        "95 % intervals. Dismissals count where evidence stands: at least half of the devices are "
        "left, and together they show data; the last column is how often those who show data hold "
        "half of the budget. Whoever knows the direction of the gradient shows data: ten records, "
        "amplified, may be enough."
    )
