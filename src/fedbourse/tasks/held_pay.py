"""What evidence means for an owner's pay: what is held, until when, and how it may be lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedbourse.tasks.card import TaskCard

_NOT_COVERED = {
    "like-reference": "nothing limits how often owners lose it whose records differ from the "
    "buyer's, such as those of one class only, or whose noise is smaller than the chance "
    "differences between two sets of records",
    "any-class-mixture": "nothing limits how often owners lose it whose records of a class differ "
    "from the buyer's of that class",
}
_COVERED = {
    "like-reference": "an owner whose records are like the buyer's",
    "any-class-mixture": "an owner whose records are any mixture of the buyer's classes",
}
"""By the card's population."""


@dataclass(frozen=True)
class HeldPay:
    """What a card with evidence says to an owner, in numbers and in words."""

    rounds: int
    """For how many rounds pay is held together at most: a block."""
    blocks: int
    """How many blocks there are."""
    lost_to: str
    """Where held pay goes that is lost."""
    reference_records: int
    """How many of the buyer's records updates are compared with."""
    population: str
    """Whom ``beta`` covers."""
    beta: float
    """How likely, at most, an owner of the population is ever dismissed, over all blocks."""
    not_covered: str
    """Whom it does not cover."""
    least_budget: float
    """rho; below it a device cannot be judged, whatever its records are."""
    sentence: str
    """All of it in words."""

    def judging(self, budget: float) -> str:
        """Return what evidence can find about a budget."""
        if self.is_too_small(budget):
            return (
                f"{budget:.4g} rho cannot be judged, since that takes {self.least_budget:.4g} rho "
                "at the very least: the noise hides whether there are data, and pay is held all "
                "the same"
            )
        return (
            f"{budget:.4g} rho may be judged: no device below {self.least_budget:.4g} rho can, "
            "and one of short gradients needs more"
        )

    def is_too_small(self, budget: float) -> bool:
        """Say whether a budget surely cannot be judged; where not, it depends on gradients."""
        return budget < self.least_budget


def held_pay(card: TaskCard) -> HeldPay | None:
    """Return what a card's evidence means for an owner; None where it has none."""
    spec = card.evidence
    if spec is None:
        return None
    rounds = spec.block_rounds(card.rounds)
    rule = spec.rule(card.rounds)
    # No gradient is longer than the clipping bound: W <= rho m^2 / 2 over all rounds.
    least = 2 * rule.least_variance / card.samples**2 * card.rounds / rounds
    until, covered = _until(card.rounds, rounds), _COVERED[spec.population]
    sentence = (
        f"pay is held {until}, while updates are compared with {spec.records} of the buyer's own "
        "records: a device whose updates do not follow them is asked no more, and what is held "
        f"for it goes to the market's fund; {covered} ever loses it with a probability of at most "
        f"{spec.beta:.2g}, while {_NOT_COVERED[spec.population]}"
    )
    if spec.source == "gradients":
        sentence += (
            "; the buyer keeps its records until the task has ended, so that only then can anybody "
            "verify that updates were compared with them, and what was lost stays lost"
        )
    return HeldPay(
        rounds=rounds,
        blocks=-(-card.rounds // rounds),
        lost_to="fund",
        reference_records=spec.records,
        population=spec.population,
        beta=spec.beta,
        not_covered=_NOT_COVERED[spec.population],
        least_budget=least,
        sentence=sentence,
    )


def _until(rounds: int, block: int) -> str:
    """Return until when pay is held, in words.

    >>> _until(10, 10), _until(10, 1)
    ('until round 9, the last one, closes', 'until its round closes')
    >>> _until(9, 4)
    'until its block of rounds closes (rounds 0 to 3, 4 to 7, 8)'
    >>> _until(200, 50)
    'until its block of rounds closes (rounds 0 to 49, 50 to 99, ..., 150 to 199)'
    """
    if block == rounds:
        return f"until round {rounds - 1}, the last one, closes"
    if block == 1:
        return "until its round closes"
    starts = range(0, rounds, block)
    blocks = [_block(start, min(start + block, rounds) - 1) for start in (*starts[:2], starts[-1])]
    if len(starts) == 2:
        del blocks[1]
    elif len(starts) > 3:
        blocks.insert(2, "...")
    return f"until its block of rounds closes (rounds {', '.join(blocks)})"


def _block(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
