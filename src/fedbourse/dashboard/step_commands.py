"""The steps that a buyer takes on pages: their names, and how each is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fedbourse.dashboard.forms import Form
from fedbourse.market import buying, training
from fedbourse.market.lifecycle import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task

_REASON_MAX = 400


class Confirm(Form):
    """That a step was looked at, and is wanted."""

    shown_micro: Annotated[int, Field(ge=0)]
    """What the page said would leave the account."""
    reason: Annotated[str, Field(max_length=_REASON_MAX)] = ""
    confirm_upfront: bool = False
    """That all of the reward is paid before round 0, whoever then delivers."""


@dataclass(frozen=True)
class Step:
    """Something that a buyer does to a task."""

    command: Command
    label: str
    confirm: str
    take: Callable[[Market, Unit, Caller, str, Confirm], Task]


STEPS: dict[str, Step] = {
    "open": Step(
        Command.OPEN,
        "Publish it",
        "Reserve the reward and publish the task",
        lambda market, unit, caller, task, form: buying.open_task(
            market, unit, caller, task, confirm_upfront=form.confirm_upfront
        ),
    ),
    "announce": Step(
        Command.ANNOUNCE,
        "Announce the reward",
        "Announce the reward",
        lambda market, unit, caller, task, _form: buying.announce(market, unit, caller, task),
    ),
    "train": Step(
        Command.TRAIN,
        "Start training",
        "Start training",
        lambda market, unit, caller, task, _form: training.start(market, unit, caller, task),
    ),
    "cancel": Step(
        Command.CANCEL,
        "Cancel the task",
        "Cancel the task",
        lambda market, unit, caller, task, form: buying.cancel(
            market, unit, caller, task, reason=form.reason
        ),
    ),
}
