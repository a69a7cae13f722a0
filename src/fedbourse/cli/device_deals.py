"""``fedbourse device join``, ``run`` and ``withdraw``: deals, from interest to the last receipt."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.device_options import (
    DEAL,
    THE_DEVICE,
    DeviceOptions,
    MarketAddress,
    address,
    deal_document,
    open_task,
    own_deal,
    stopped_by_signals,
)
from fedbourse.cli.server_options import Json, plain, print_facts, print_json, print_line
from fedbourse.errors import InvalidInput
from fedbourse.privacy.loss import losses_text
from fedbourse.units import credits_text, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.agent import Agent, Wish

_GO_ON = "nothing is lost: fedbourse device run goes on"


def join(
    task: str,
    /,
    *,
    budget: Annotated[str, Parameter(group=DEAL)] = "best",
    max_epsilon: Annotated[float | None, Parameter(group=DEAL)] = None,
    report_value: Annotated[bool, Parameter(negative="--withhold-value", group=DEAL)] = False,
    no_wait: Annotated[bool, Parameter(name="--no-wait", negative=(), group=DEAL)] = False,
    server: MarketAddress = None,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """Take part in a task: plan at each announcement, then sign the terms or decline them.

    Waits until the terms are decided on; `fedbourse device run` then answers the rounds.

    Examples:

        fedbourse device join latest

        fedbourse device join latest --max-epsilon 1 --no-wait

        fedbourse device join 018f0c3e9a5b7d2c4e6f8a1b --budget 0.1 --report-value --json

    Parameters
    ----------
    task
        The task's id, or latest, the newest open one.
    budget
        The budget to sell in rho, whatever others do; or best, which follows what is announced.
    max_epsilon
        Sell no more than this epsilon about one record, at delta 1e-5.
    report_value
        Tell the market what your privacy is worth to you, or withhold it.
    no_wait
        Register only; `fedbourse device run` does the rest.
    server
        The market's address, where the device is enrolled in several.
    as_json
        Print one JSON document; progress as JSON lines, on standard error.
    """
    from fedbourse.wire.incentives import incentive

    wish = _wish(budget, max_epsilon, report_value)
    with device.selling(_teller(as_json)) as agent:
        name = open_task(agent, task, server=address(server))
        deal = agent.join(name, wish, server=address(server))
        invites = incentive(deal.card)
        agent.tell({"event": "registered", "task": name, "incentive": invites})
        if not no_wait:
            with stopped_by_signals(agent):
                agent.run(only=deal, until="signed")
        found = _documents(agent, {deal.name})[0]
    if as_json:
        print_json(found | {"stopped": agent.stop.is_set()})
    else:
        _print_deal(found)
    if agent.stop.is_set() and found["state"] == "joined":
        raise KeyboardInterrupt
    if as_json:
        return
    if found["state"] == "joined":
        print_line("fedbourse device run plans, signs and answers from here on")
    elif found["state"] == "signed":
        print_line("fedbourse device run answers the rounds")


def _wish(budget: str, max_epsilon: float | None, report_value: bool) -> Wish:
    from fedbourse.agent import Wish
    from fedbourse.privacy.zcdp import DELTA, rho_for

    try:
        rho = None if budget == "best" else number("budget", float(budget), above=0)
    except ValueError:
        raise InvalidInput(f"--budget must be a number, or best; found {budget!r:.60}") from None
    return Wish(
        budget=rho,
        most=None if max_epsilon is None else rho_for(epsilon=max_epsilon, delta=DELTA),
        report_value=report_value,
    )


def run(
    *,
    join_open: Annotated[bool, Parameter(negative=(), group=DEAL)] = False,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """Follow all deals until they have ended: plan, sign, answer every round, keep receipts.

    It comes back to a market that was away, and can be stopped (Ctrl-C or SIGTERM), killed and
    started again at any moment: what was spent and earned is on the disk first.

    Examples:

        fedbourse device run

        fedbourse device run --join-open --folder phone

    Parameters
    ----------
    join_open
        Join every open task that your rules allow, and go on until it is stopped.
    as_json
        Print one JSON document; progress as JSON lines, on standard error.
    """
    with device.selling(_teller(as_json)) as agent:
        with stopped_by_signals(agent):
            followed = {deal.name for deal in agent.run(join_open=join_open)}
        found = _documents(agent, followed)
        stopped = agent.stop.is_set()
    if as_json:
        print_json({"stopped": stopped, "deals": found})
        return
    for document in found:
        _print_deal(document)
        print_line("")
    if stopped:
        print_line(f"stopped; {_GO_ON}")
    elif not found:
        print_line("there is no deal to follow; fedbourse device join makes one")


def withdraw(
    task: str,
    /,
    *,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """Step back from a task before it is settled: nothing is sold, and nothing is owed.

    That cannot be taken back: the task cannot be joined again. A device that is at work is stopped
    first, with Ctrl-C; or withdraw on the market's page of the task, and it stops by itself.

    Examples:

        fedbourse device withdraw latest

        fedbourse device withdraw 018f0c3e9a5b7d2c4e6f8a1b --folder phone --json

    Parameters
    ----------
    task
        The id of a task that this device has joined, or latest, the one that was joined last.
    as_json
        Print one JSON document.
    """
    with device.selling() as agent:
        deal = agent.withdraw(own_deal(agent, task).task)
        found = _documents(agent, {deal.name})[0]
    if as_json:
        print_json(found)
    else:
        _print_deal(found)


def _documents(agent: Agent, names: set[str]) -> list[dict[str, Any]]:
    entries = [entry for entry in agent.ledger().entries if entry.deal.name in names]
    return [deal_document(agent, entry) for entry in entries]


def _print_deal(deal: dict[str, Any]) -> None:
    facts: dict[str, object] = {
        "task": deal["task"],
        "state": deal["state"] + (f": {deal['outcome']}" if deal["outcome"] else ""),
    }
    if deal["payment_micro"]:
        facts |= {
            "sold": f"{deal['budget']:.6g} rho, which is {losses_text(deal)}",
            "pay": f"{credits_text(deal['payment_micro'])} credits for {deal['rounds']} rounds",
            "answered": f"{deal['answered']} rounds, {deal['receipts']} receipts",
            "earned": f"{credits_text(deal['earned_micro'])} credits",
            "spent": f"{deal['spent']:.6g} rho, which is {losses_text(deal, 'spent_')}",
        }
    print_facts(facts)


def _teller(as_json: bool) -> Callable[[dict[str, Any]], None]:
    """Return what tells of events on standard error, a line each."""

    def tell(event: dict[str, Any]) -> None:
        line = json.dumps(event) if as_json else _told(event)
        if line:
            with suppress(OSError, ValueError):  # nobody listens: the work goes on
                print(plain(line), file=sys.stderr, flush=True)

    return tell


def _told(event: dict[str, Any]) -> str:
    """Return an event as one line; nothing for what concerns nobody."""
    said = _SAID.get(event["event"])
    return f"{event.get('task', '')}  {said(event)}".strip() if said else ""


_SAID: dict[str, Callable[[dict[str, Any]], str]] = {
    "registered": lambda event: (
        f"registered; the reward and the first total come next. Rules of pay: {event['incentive']}"
    ),
    "joined": lambda event: "joined",
    "full": lambda event: event["sentence"],
    "following": lambda event: "the market answers; following the task",
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
    "answered": lambda event: (
        f"round {event['round']}: {event['answered']} of {event['rounds']} answered, earned "
        f"{credits_text(event['earned_micro'])} credits, spent {event['spent']:.6g} rho"
    ),
    "refused": lambda event: (
        f"round {event['round']}: REFUSED ({event['reason']}): {event['sentence']}"
    ),
    "unpaid": lambda event: f"round {event['round']}: not paid: {event['sentence']}",
    "unreachable": lambda event: f"{event['sentence']}; trying again",
    "failed": lambda event: f"failed: {event['sentence']}",
    "ended": lambda event: f"the task is {event['outcome']}",
}
