"""``fedbourse device join``, ``run`` and ``leave``: deals, from interest to the last receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.device_options import (
    DEAL,
    THE_DEVICE,
    DeviceOptions,
    MarketAddress,
    OpenTask,
    OwnTask,
    deal_document,
    held_facts,
    open_task,
    own_deal,
    stopped_by_signals,
)
from fedbourse.cli.option_values import number_or_best
from fedbourse.cli.output import PEOPLE, Blocks, Output
from fedbourse.privacy.loss import losses_text
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.device import Agent, BiddingStrategy


def join(
    task: OpenTask,
    /,
    *,
    budget: Annotated[str, Parameter(group=DEAL)] = "best",
    max_epsilon: Annotated[float | None, Parameter(group=DEAL)] = None,
    report_value: Annotated[bool, Parameter(negative="--withhold-value", group=DEAL)] = False,
    no_wait: Annotated[bool, Parameter(name="--no-wait", negative=(), group=DEAL)] = False,
    server: MarketAddress = None,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """Take part in a task: plan at each announcement, then sign the terms or decline them.

    Waits until the terms are decided on; `fedbourse device run` then sends the updates. Progress
    is on standard error, with --json as JSON lines.

    For example:

        fedbourse device join latest

        fedbourse device join latest --max-epsilon 1 --no-wait

        fedbourse device join 018f0c3e9a5b7d2c4e6f8a1b --budget 0.1 --report-value --json

    Parameters
    ----------
    budget
        The budget to sell in rho, whatever others do; or best, which follows what is announced.
    max_epsilon
        Sell no more than this epsilon about one record, at delta 1e-5.
    report_value
        Tell the market what your privacy is worth to you, or withhold it.
    no_wait
        Register only; `fedbourse device run` does the rest.
    """
    from fedbourse.tasks.incentives import incentive

    strategy = _strategy(budget, max_epsilon, report_value)
    with device.selling(output.event_notes(_event_line)) as agent:
        name = open_task(agent, task, server=server)
        deal = agent.join(name, strategy, server=server)
        invites = incentive(deal.card)
        agent.tell({"event": "registered", "task": name, "incentive": invites})
        if not no_wait:
            with stopped_by_signals(agent):
                agent.run(only=deal, until="signed")
        document = _documents(agent, {deal.name})[0]
        stopped = agent.stop.is_set()
    output.show(document | {"stopped": stopped}, _joined)
    if stopped and document["state"] == "joined":
        raise KeyboardInterrupt


def _joined(deal: dict[str, Any]) -> Blocks:
    yield deal_facts(deal)
    if deal["state"] == "joined" and not deal["stopped"]:
        yield "fedbourse device run plans, signs and sends updates from here on"
    elif deal["state"] == "signed":
        yield "fedbourse device run sends the updates"


def _strategy(budget: str, max_epsilon: float | None, report_value: bool) -> BiddingStrategy:
    from fedbourse.device import BiddingStrategy
    from fedbourse.privacy.zcdp import DELTA, rho_for

    return BiddingStrategy(
        budget=number_or_best("budget", budget),
        most=None if max_epsilon is None else rho_for(epsilon=max_epsilon, delta=DELTA),
        report_value=report_value,
    )


def run(
    *,
    join_open: Annotated[bool, Parameter(negative=(), group=DEAL)] = False,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """Follow all deals until they have ended: plan, sign, send updates, keep receipts.

    It comes back to a market that was away, and can be stopped (Ctrl-C or SIGTERM), killed and
    started again at any moment: what was spent and earned is on the disk first. Progress is on
    standard error, with --json as JSON lines.

    For example:

        fedbourse device run

        fedbourse device run --join-open --folder phone

    Parameters
    ----------
    join_open
        Join every open task that your rules allow, and go on until it is stopped.
    """
    with device.selling(output.event_notes(_event_line)) as agent:
        with stopped_by_signals(agent):
            followed = {deal.name for deal in agent.run(join_open=join_open)}
        deals = _documents(agent, followed)
        stopped = agent.stop.is_set()
    output.show({"stopped": stopped, "deals": deals}, _followed)


def _followed(document: dict[str, Any]) -> Blocks:
    for deal in document["deals"]:
        yield deal_facts(deal)
        yield ""
    if document["stopped"]:
        yield "stopped; nothing is lost: fedbourse device run goes on"
    elif not document["deals"]:
        yield "there is no deal to follow; fedbourse device join makes one"


def leave(task: OwnTask, /, *, device: DeviceOptions = THE_DEVICE, output: Output = PEOPLE) -> None:
    """Leave a task before it is settled: nothing is sold, and nothing is owed.

    That cannot be taken back: the task cannot be joined again. A device that is at work is stopped
    first, with Ctrl-C; or leave on the market's page of the task, and it stops by itself.

    For example:

        fedbourse device leave latest

        fedbourse device leave 018f0c3e9a5b7d2c4e6f8a1b --folder phone --json
    """
    with device.selling() as agent:
        deal = agent.leave_task(own_deal(agent, task).task)
        document = _documents(agent, {deal.name})[0]
    output.show(document, deal_facts)


def _documents(agent: Agent, names: set[str]) -> list[dict[str, Any]]:
    entries = [entry for entry in agent.ledger().entries if entry.deal.name in names]
    return [deal_document(agent, entry) for entry in entries]


def deal_facts(deal: dict[str, Any]) -> dict[str, object]:
    """Return a deal as people read it."""
    facts: dict[str, object] = {
        "task": deal["task"],
        "state": deal["state"] + (f": {deal['outcome']}" if deal["outcome"] else ""),
    }
    if deal["payment_micro"]:
        facts |= {
            "sold": f"{deal['budget']:.6g} rho, which is {losses_text(deal)}",
            "pay": f"{credits_text(deal['payment_micro'])} credits for {deal['rounds']} rounds",
            "delivered": f"{deal['delivered']} rounds, {deal['receipts']} receipts",
            "earned": f"{credits_text(deal['earned_micro'])} credits",
            **held_facts(deal),
            "spent": f"{deal['spent']:.6g} rho, which is {losses_text(deal, 'spent_')}",
        }
        if deal["evidence"]:
            facts["evidence"] = f"{deal['evidence']['sentence']}; {deal['evidence']['judging']}"
    return facts


def _event_line(event: dict[str, Any]) -> str:
    """Return an event as one line; nothing for those that people need not read."""
    details = _DETAILS.get(event["event"])
    return f"{event.get('task', '')}  {details(event)}".strip() if details else ""


_DETAILS: dict[str, Callable[[dict[str, Any]], str]] = {
    "registered": lambda event: (
        f"registered; the reward and the first total come next. Rules of pay: {event['incentive']}"
    ),
    "joined": lambda event: "joined",
    "full": lambda event: event["sentence"],
    "following": lambda event: "the market responds; following the task",
    "not-joined": lambda event: f"not joined: {event['sentence']}",
    "planned": lambda event: (
        f"tick {event['tick']}: {event['reward']:g} credits for {event['total_budget']:.6g} rho in "
        f"all; this device plans {event['budget']:.6g}"
    ),
    "signed": lambda event: (
        f"signed: {event['budget']:.6g} rho for {credits_text(event['payment_micro'])} credits"
    ),
    "reopened": lambda event: (
        "the price is discovered again, for an owner declined; nothing was spent"
    ),
    "declined": lambda event: f"declined: {event['sentence']}",
    "not-taking-part": lambda event: f"not taking part: {event['sentence']}",
    "delivered": lambda event: (
        f"round {event['round']}: {event['delivered']} of {event['rounds']} delivered, earned "
        f"{credits_text(event['earned_micro'])} credits, spent {event['spent']:.6g} rho"
    ),
    "refused": lambda event: (
        f"round {event['round']}: REFUSED ({event['reason']}): {event['sentence']}"
    ),
    "unpaid": lambda event: f"round {event['round']}: not paid: {event['sentence']}",
    "released": lambda event: (
        f"all held pay is released: {credits_text(event['earned_micro'])} credits are earned"
    ),
    "dismissed": lambda event: event["sentence"],
    "unreachable": lambda event: f"{event['sentence']}; trying again",
    "failed": lambda event: f"failed: {event['sentence']}",
    "ended": lambda event: f"the task is {event['outcome']}",
}
