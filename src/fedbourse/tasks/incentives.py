"""What each rule of a card invites somebody to do, in one sentence with its number.

Every screen that shows a card shows these sentences: buyers choose the rules, owners accept them.
The numbers are of eight equal owners who share a reward of 10 credits and value a unit of rho at 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.tasks.held_pay import held_pay

if TYPE_CHECKING:
    from fedbourse.tasks.card import TaskCard

OWNERS = 8
REWARD = 10.0


@dataclass(frozen=True)
class Gain:
    """A number of credits before and after somebody plays a task in another way than meant."""

    before: float
    after: float


REFUND_PRICE = Gain(REWARD, 8.77)
"""What the buyer pays for the same budget, once its puppet stays away."""
REFUND_UTILITY = Gain(1.25, 0.02)
"""What is left to all owners together."""
SHARE_UTILITY = Gain(0.156, 9.95)
"""The utility of an owner, once its puppet never delivers."""

UNEARNED_INCENTIVES: dict[str, str] = {
    "fund": (
        "the pay of rounds that a device does not deliver goes to the market's fund, which no "
        "party of the task controls, so that nobody gains by staying away; a buyer that takes "
        "part under another name and delivers can still push the price down"
    ),
    "refund": (
        "the pay of rounds that a device does not deliver goes back to the buyer, which invites "
        "the buyer to take part under another name and stay away: of "
        f"{OWNERS} equal owners it then buys the same budget for {REFUND_PRICE.after:g} credits "
        f"instead of {REFUND_PRICE.before:g}, and their utility falls from "
        f"{REFUND_UTILITY.before:g} to {REFUND_UTILITY.after:g}"
    ),
    "share": (
        "the pay of rounds that a device does not deliver goes to those who delivered them, which "
        "invites an owner to sell much under a second name that never delivers: among "
        f"{OWNERS} equal owners its utility rises from {SHARE_UTILITY.before:g} to "
        f"{SHARE_UTILITY.after:g} credits of {REWARD:g}"
    ),
}
"""By the card's ``unearned``."""

UPFRONT_INCENTIVE = (
    "all pay is paid before round 0, which invites an owner to deliver nothing: it keeps all of "
    "its pay"
)
"""Of ``vesting: upfront``, under which no pay is ever unearned."""


CLOCK_INCENTIVE = (
    "everybody sells the same lot or nothing, at a price that falls until the reward pays for all "
    "lots on offer: to stay while the price is above your value is best, whatever others do, and "
    "your device says no more than in or out; whoever has several names sells several lots, and "
    "what is left of the reward goes to the market's fund"
)
"""Of a card that sells by the clock."""


def incentive_of(*, vesting: str, unearned: str) -> str:
    """Return what a card's rules of pay invite.

    >>> incentive_of(vesting="upfront", unearned="fund").partition(",")[0]
    'all pay is paid before round 0'
    """
    return UPFRONT_INCENTIVE if vesting == "upfront" else UNEARNED_INCENTIVES[unearned]


def incentive(card: TaskCard) -> str:
    """Return what a card's rules of pay invite, and what of the pay is held."""
    sentence = incentive_of(vesting=card.vesting, unearned=card.unearned)
    if card.sells_lots:
        sentence = f"{CLOCK_INCENTIVE}; {sentence}"
    held = held_pay(card)
    return sentence if held is None else f"{sentence}; {held.sentence}"
