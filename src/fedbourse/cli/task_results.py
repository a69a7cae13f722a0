"""``fedbourse task watch``, ``report``, ``monitoring`` and ``model``: what comes of a task."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.files import check_writable, write_bytes
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import OUTPUT, PEOPLE, Blocks, Column, Output, moment, table
from fedbourse.cli.server_options import NO_OPTIONS, ServerOptions, TaskId, pages, task_id
from fedbourse.cli.task_facts import discovery_facts, money_words, review_words, task_facts
from fedbourse.errors import ProtocolError
from fedbourse.units import credits_text, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable


_ALLOCATION_STATES = ("signed", "declined", "offered")


def watch(
    task: TaskId,
    /,
    *,
    after: Annotated[Whole, Parameter(allow_leading_hyphen=True)] = -1,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Follow a task live, from its first event until it has ended.

    A connection that breaks is taken up where it broke off. With --json, each event is a document.

    For example:

        fedbourse task watch latest

        fedbourse task watch 018f0c3e9a5b7d2c4e6f8a1b --after 12 --json

    Parameters
    ----------
    after
        Show only what comes after the event of this number.
    """
    first = whole_number("after", after, at_least=-1)
    with server.connect(patience=5.0) as connection:
        path = f"/v1/tasks/{task_id(connection, task)}/stream"
        for event in connection.events(path, after=first):
            output.show(event, _event_line)


def report(task: TaskId, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE) -> None:
    """Show what a task cost and brought so far: for its buyer, auditors and the operator.

    For example:

        fedbourse task report latest
    """
    with server.connect() as connection:
        document = connection.get(f"/v1/tasks/{task_id(connection, task)}/report")
    output.show(document, _report)


def _report(report: dict[str, Any]) -> Blocks:
    from fedbourse.market.log_summary import Settlement

    settlement = report["settlement"]
    discovery = discovery_facts(
        settlement=settlement and Settlement(**settlement),
        out=report["out"],
        restarts=report["restarts"],
    )
    yield (
        task_facts(report)
        | discovery
        | {
            "owners": ", ".join(
                f"{report['participants'][state]} {state}" for state in _ALLOCATION_STATES
            ),
            "credits": money_words(report["money_micro"]),
            "refused": _counts(report["refused_updates"]) or "no updates",
        }
    )
    if report["rounds_closed"]:
        yield ""
        yield table(
            report["rounds_closed"],
            {
                "round": "{round}",
                "updates": "{updates}",
                "void": lambda row: "yes" if row["void"] else "no",
                "model": "{model_hash:.12}",
            },
        )


def _counts(refused: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in refused.items())


def monitoring(
    task: TaskId, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE
) -> None:
    """Show what each device's updates say about it over rounds: for auditors and the operator.

    An owner sees its own device. A flag is a reason to ask; it never withholds pay.

    For example:

        fedbourse task monitoring latest
    """
    with server.connect() as connection:
        name = task_id(connection, task)
        path = f"/v1/tasks/{name}/monitoring"
        note = connection.get(path, {"limit": 1})["note"]
        devices = list(pages(connection, path, "devices"))
    document = {"task": name, "devices": devices, "note": note}
    output.show(document, lambda _: (table(devices, _MONITORING), "", note))


def _between(device: dict[str, Any]) -> str:
    low, high = device["squares_low"], device["squares_high"]
    return "" if low is None else f"{low:.6g} .. {high:.6g}"


def _agreement(device: dict[str, Any]) -> str:
    agreement = device["agreement"]
    return "" if agreement is None else f"{agreement:.2f}"


_MONITORING: dict[str, Column] = {
    "owner": "{owner}",
    "updates": "{updates}",
    "squares": "{squares:.6g}",
    "between": _between,
    "agreement": _agreement,
    "repeats": "{repeats}",
    "refused": lambda device: _counts(device["refused"]) or "none",
    "flags": lambda device: "; ".join(device["flags"]) or "none",
}


def model(
    task: TaskId,
    /,
    *,
    out: Annotated[Path, Parameter(group=OUTPUT)],
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Fetch the model of a completed task, as a NumPy file.

    For example:

        fedbourse task model latest --out model.npy

    Parameters
    ----------
    out
        The file to write to.
    """
    import numpy as np

    check_writable(out)
    with server.connect() as connection:
        path = f"/v1/tasks/{task_id(connection, task)}"
        content = connection.get_bytes(f"{path}/model")
        events = list(pages(connection, f"{path}/events", "events"))
    digest = hashlib.sha256(content).hexdigest()
    logged = events[-1]["body"].get("model_hash") if events else None
    if digest != logged:
        raise ProtocolError(
            f"the model that came has the hash {digest}, and the task's log says {logged}"
        )
    file = io.BytesIO()
    np.save(file, np.frombuffer(content, dtype="<f8"))
    write_bytes(out, file.getvalue())
    output.show(
        {"file": str(out), "dimension": len(content) // 8, "model_hash": digest},
        lambda model: f"{model['dimension']} parameters are in {model['file']}",
    )


def _event_line(event: dict[str, Any]) -> str:
    """Return an event as one line."""
    try:
        details = _DETAILS[event["kind"]](event["body"])
    except (KeyError, TypeError):  # of a market of another version
        details = ""
    return (
        f"{moment(event['at_ms'])}  {event['sequence']:>4}  {event['kind']:<10}  {details}".rstrip()
    )


def _announced(body: dict[str, Any]) -> str:
    offer = body["offer"]
    return (
        f"R {credits_text(offer['reward_micro'])} credits, {offer['method']}; "
        f"{credits_text(body['released_micro'])} released; "
        f"P {offer['total_budget']:.6g} for {offer['interested']} owners"
    )


def _replies(body: dict[str, Any]) -> str:
    missed = f", {body['missed']} missed it" if body["missed"] else ""
    return f"{body['replies']} replies, shares sum to {body['share_sum']:.6g}{missed}"


def _ticked(body: dict[str, Any]) -> str:
    total = f"P {body['offer']['total_budget']:.6g}"
    # The first tick after a restart closes none.
    return f"{_replies(body)}; {total}" if "closed_tick" in body else total


def _settled(body: dict[str, Any]) -> str:
    from fedbourse.market.log_summary import settlement_in

    return (
        f"{body['allocations']} of {body['plans']} plans are paid, for "
        f"{body['total_budget']:.6g} rho in all, {settlement_in(body).words}; "
        f"sign until {moment(body['deadline_ms'])}"
    )


def _end(body: dict[str, Any]) -> str:
    moves = {"refunded": body["refunded_micro"], "fund": body["fund_micro"]}
    shared = body["shared_micro"]
    to_owners = f", {credits_text(shared)} to those who delivered" if shared else ""
    return f"{money_words(moves)}{to_owners} credits"


_DETAILS: dict[str, Callable[[dict[str, Any]], str]] = {
    "created": lambda body: f"by {body['buyer']}",
    "opened": lambda body: (
        f"for interest until {moment(body['deadline_ms'])}; "
        f"{credits_text(body['reserved_micro'])} credits are reserved"
    ),
    "announced": _announced,
    "ticked": _ticked,
    "last-tick": lambda body: (
        f"{_replies(body)}; {'converged' if body['converged'] else 'not converged, and over'}"
    ),
    "settled": _settled,
    "restarted": lambda body: (
        f"{body['struck_out']} did not sign and are out; the price is discovered again"
    ),
    "signed": lambda body: f"all have signed; {review_words(body['review_ends_ms'])}",
    "training": lambda body: f"{body['signed']} owners train, started by the {body['by']}",
    "reference": lambda body: (
        f"round {body['round']} opens; its reference gradient has the hash {body['reference']}"
        if body["reference"]
        else f"round {body['round']} opens without a reference gradient: its block cannot be judged"
    ),
    "round": lambda body: (
        f"round {body['round']}, {body['updates']} updates"
        f"{', too few: the model stays' if body['void'] else ''}"
    ),
    "completed": _end,
    "cancelled": lambda body: f"by the {body['by']}: {body['reason']}; {_end(body)}",
}
