"""The paper's evaluation against the table of the theory page, and the verdicts on its claims."""

import numpy as np
import pytest

from fedbourse.study.claims import verdicts_on
from fedbourse.study.paper import paper_study


@pytest.fixture(scope="module")
def study():
    return paper_study(draws=400, seed=0)


# n, v_max: participants, R*, U_s, mean utility of all users, its standard deviation over users
TABLE = {
    (100, 5): (8.54, 1.189, 17.13, 1.91e-3, 8.83e-3),
    (400, 5): (15.55, 1.396, 16.51, 3.04e-4, 2.09e-3),
    (1000, 5): (23.77, 1.577, 15.93, 8.97e-5, 7.86e-4),
    (1000, 2): (46.12, 1.868, 14.84, 5.44e-5, 3.38e-4),
    (1000, 6): (21.37, 1.530, 16.07, 9.69e-5, 8.97e-4),
    (1000, 10): (16.35, 1.418, 16.44, 1.18e-4, 1.26e-3),
}
ROUNDING = (0.05, 0.003, 0.01, 1e-6, 1e-5)  # of the table itself, standard errors included


@pytest.mark.parametrize("setting", list(TABLE))
def test_means_agree_with_the_table_within_their_noise(study, setting) -> None:
    outcome = next(
        o
        for o in study.outcomes
        if o.model == "paper" and (o.setting.owners, o.setting.value_max) == setting
    )
    names = ("participants", "reward", "server_utility", "user_utility", "user_spread")
    for name, expected, rounding in zip(names, TABLE[setting], ROUNDING, strict=True):
        values = outcome.metrics[name]
        error = values.std(ddof=1) / np.sqrt(len(values))
        assert abs(values.mean() - expected) <= 4 * error + 2 * rounding, name


EXPECTED = {  # claim: holds under paper, population, averaged, precision
    "more owners, more participants": (True, True, True, True),
    "more diverse values, fewer participants": (True, True, True, True),
    "more owners, a better utility for the server": (False, True, False, True),
    "that gain shrinks as owners are added": (False, True, False, True),
    "more diverse values, a worse one": (False, False, False, True),
    "more owners, a lower mean utility of users": (True, True, True, True),
    "more owners, a lower spread of it": (True, True, True, True),
    "more diverse values, a higher mean utility": (True, True, True, True),
    "more diverse values, a higher spread": (True, True, True, True),
    "server's utility goes to 0 with the reward": (False, False, False, False),
    "some reward above 0 is the best one": (True, True, False, True),
}


def test_the_verdicts_on_the_papers_claims(study) -> None:
    found: dict[str, list[bool]] = {}
    for verdict in verdicts_on(study):
        found.setdefault(verdict.claim.text, []).append(verdict.holds)
    assert {text: tuple(holds) for text, holds in found.items()} == EXPECTED


def test_a_verdict_turns_when_the_numbers_do(study) -> None:
    # Planted: the sweep read backwards must turn every trend that held.
    for outcome in study.outcomes:
        assert outcome.metrics["participants"].shape == (400,)
    reversed_study = paper_study(draws=400, seed=0)
    for sweep in ("owners", "value_max"):
        for model in ("paper", "precision"):
            rows = [o.metrics for o in reversed_study.along(sweep, model)]
            copies = [dict(m) for m in rows]
            for metrics, other in zip(rows, reversed(copies), strict=True):
                metrics.update(other)
    held = {(v.claim.text, v.model) for v in verdicts_on(study) if v.holds and v.tau is not None}
    turned = {(v.claim.text, v.model) for v in verdicts_on(reversed_study) if v.holds}
    assert not {pair for pair in held & turned if pair[1] in ("paper", "precision")}


def test_the_seed_decides_the_study() -> None:
    one, same, other = (paper_study(draws=3, seed=s) for s in (5, 5, 6))
    for a, b, c in zip(one.outcomes, same.outcomes, other.outcomes, strict=True):
        assert a.metrics["reward"].tolist() == b.metrics["reward"].tolist()
        assert a.metrics["reward"].tolist() != c.metrics["reward"].tolist()


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    paper_study(draws=2, progress=lambda done, of: told.append((done, of)))
    assert told[0] == (0, 19)
    assert told[-1] == (19, 19)
