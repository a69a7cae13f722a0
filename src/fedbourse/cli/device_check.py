"""``fedbourse device check``: how an owner's records fit a task, for the owner's eyes alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fedbourse.cli.device_options import THE_DEVICE, DeviceOptions, MarketAddress, open_task
from fedbourse.cli.output import PEOPLE, Blocks, Output, table

if TYPE_CHECKING:
    from fedbourse.device import Agent, DataCheck


def check(
    task: str = "latest",
    /,
    *,
    server: MarketAddress = None,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """Show how many of your records fit a task's card, and why the others do not.

    A record that does not fit contributes nothing, and nobody notices: your device says the same to
    the market whatever your records hold, and however many there are. So this is for you alone,
    before you sell. It reads the card, and sends nothing about your records to anybody. Records are
    named by their lines in a CSV file, otherwise counted from 1.

    For example:

        fedbourse device check

        fedbourse device check 018f0c3e9a5b7d2c4e6f8a1b --json

        fedbourse device check recipe.json

    Parameters
    ----------
    task
        The task's id, or latest, the newest open one; or the file of a recipe, a .json file.
    """
    with device.looking() as agent:
        if task.endswith(".json"):
            from fedbourse.flower.recipe import Recipe

            name, result = task, agent.check_data(Recipe.read(Path(task)))
        else:
            name = open_task(agent, task, server=server)
            result = agent.check_data(agent.card(name, server=server))
    output.show({"task": name, **asdict(result)}, lambda _: _in_words(name, result))


def _in_words(name: str, check: DataCheck) -> Blocks:
    if check.misfits:
        yield table(
            check.misfits,
            {
                "records": lambda group: group.count,
                "<do not fit": lambda group: group.reason,
                "<column": lambda group: group.column or "",
                "first at": lambda group: ", ".join(map(str, group.rows)),
                "<which holds": lambda group: group.shown,
            },
        )
        yield ""
    yield {
        "task": name,
        "records": fit_sentence(check),
        "used": used_sentence(check),
        "who knows": "you alone: nothing of this leaves your device, and what it says to the "
        "market is the same whatever your records hold",
    }


def check_of(agent: Agent, task: str, *, server: str | None) -> DataCheck | None:
    """Return how the device's own file fits a task; None where an application brings the data."""
    if agent.settings.data is None:
        return None
    return agent.check_data(agent.card(task, server=server))


def fit_sentence(check: DataCheck) -> str:
    """Return in words how many records fit."""
    return f"{check.fit} of {check.records} records fit"


def used_sentence(check: DataCheck) -> str:
    """Return in words what updates are computed from."""
    if not check.fit:
        return "none: updates would be noise alone, and cost as much privacy budget as any others"
    chosen = "all that fit" if check.fit <= check.samples else "chosen in secret, always the same"
    return f"{check.used}, {chosen}; their sum is divided by {check.samples} (the card's samples)"
