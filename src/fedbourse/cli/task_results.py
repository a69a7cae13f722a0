"""``fedbourse task watch``, ``report``, ``drift`` and ``model``: what comes of a task."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.server_options import (
    NO_OPTIONS,
    OUTPUT,
    Json,
    ServerOptions,
    check_writable,
    moment,
    pages,
    plain,
    print_facts,
    print_json,
    print_line,
    print_table,
    task_id,
    write_bytes,
)
from fedbourse.cli.task_facts import discovery_facts, money_words, review_words, task_facts
from fedbourse.errors import Unreachable
from fedbourse.units import credits_text, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

_LINES = ("signed", "declined", "offered")


def watch(
    task: str,
    /,
    *,
    after: Annotated[Whole, Parameter(allow_leading_hyphen=True)] = -1,
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """Follow a task live, from its first event until it has ended.

    A connection that breaks is taken up where it broke off.

    Examples:

        fedbourse task watch latest

        fedbourse task watch 018f0c3e9a5b7d2c4e6f8a1b --after 12 --json

    Parameters
    ----------
    task
        The task's id, or latest.
    after
        Show only what comes after the event of this number.
    as_json
        Print one JSON document a line, for each event.
    """
    first = whole_number("after", after, at_least=-1)
    with server.connect(patience=5.0) as connection:
        path = f"/v1/tasks/{task_id(connection, task)}/stream"
        for event in connection.events(path, after=first):
            if as_json:
                print_json(event)
            else:
                print(plain(_told(event)), flush=True)


def report(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """Show what a task cost and brought so far: for its buyer, auditors and the operator.

    Examples:

        fedbourse task report latest

    Parameters
    ----------
    task
        The task's id, or latest.
    as_json
        Print one JSON document.
    """
    from fedbourse.market.log_summary import Settlement

    with server.connect() as connection:
        found = connection.get(f"/v1/tasks/{task_id(connection, task)}/report")
    if as_json:
        print_json(found)
        return
    settlement = found["settlement"]
    print_facts(
        task_facts(found)
        | discovery_facts(
            settlement=settlement and Settlement(**settlement),
            out=found["out"],
            restarts=found["restarts"],
        )
        | {
            "owners": ", ".join(f"{found['participants'][state]} {state}" for state in _LINES),
            "credits": money_words(found["money_micro"]),
            "refused": ", ".join(
                f"{count} {reason}" for reason, count in found["refused_answers"].items()
            )
            or "no answers",
        }
    )
    if found["rounds_closed"]:
        print_line("")
        print_table(
            ("round", "answers", "void", "model"),
            (
                (
                    row["round"],
                    row["answers"],
                    "yes" if row["void"] else "no",
                    row["model_hash"][:12],
                )
                for row in found["rounds_closed"]
            ),
        )


def drift(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """Show what each device's answers say of it over rounds: for auditors and the operator.

    An owner sees its own device. A flag is a reason to ask; it never withholds pay.

    Examples:

        fedbourse task drift latest

    Parameters
    ----------
    task
        The task's id, or latest.
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        name = task_id(connection, task)
        path = f"/v1/tasks/{name}/drift"
        note = connection.get(path, {"limit": 1})["note"]
        devices = list(pages(connection, path, "devices"))
    if as_json:
        print_json({"task": name, "devices": devices, "note": note})
        return
    print_table(
        ("owner", "answers", "squares", "between", "agreement", "repeats", "refused", "flags"),
        map(_drift_row, devices),
    )
    print_line("")
    print_line(note)


def _drift_row(device: dict[str, Any]) -> tuple[object, ...]:
    low, high, agreement = (device[n] for n in ("squares_low", "squares_high", "agreement"))
    refused = ", ".join(f"{count} {reason}" for reason, count in device["refused"].items())
    return (
        device["owner"],
        device["answers"],
        f"{device['squares']:.6g}",
        "" if low is None else f"{low:.6g} .. {high:.6g}",
        "" if agreement is None else f"{agreement:.2f}",
        device["repeats"],
        refused or "none",
        "; ".join(device["flags"]) or "none",
    )


def model(
    task: str,
    /,
    *,
    out: Annotated[Path, Parameter(group=OUTPUT)],
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """Fetch the model of a completed task, as a NumPy file.

    Examples:

        fedbourse task model latest --out model.npy

    Parameters
    ----------
    task
        The task's id, or latest.
    out
        The file to write to.
    as_json
        Print one JSON document.
    """
    import numpy as np

    check_writable(out)
    with server.connect() as connection:
        path = f"/v1/tasks/{task_id(connection, task)}"
        content = connection.get_bytes(f"{path}/model")
        events = list(pages(connection, f"{path}/events", "events"))
    found = hashlib.sha256(content).hexdigest()
    logged = events[-1]["body"].get("model_hash") if events else None
    if found != logged:
        raise Unreachable(
            f"the model that came has the hash {found}, and the task's log says {logged}"
        )
    file = io.BytesIO()
    np.save(file, np.frombuffer(content, dtype="<f8"))
    write_bytes(out, file.getvalue())
    if as_json:
        print_json({"file": str(out), "dimension": len(content) // 8, "model_hash": found})
    else:
        print_line(f"{len(content) // 8} parameters are in {out}")


def _told(event: dict[str, Any]) -> str:
    """Return an event as one line."""
    try:
        said = _SAID[event["kind"]](event["body"])
    except (KeyError, TypeError):  # of a market of another version
        said = ""
    return f"{moment(event['at_ms'])}  {event['sequence']:>4}  {event['kind']:<10}  {said}".rstrip()


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
        f"{body['lines']} of {body['plans']} plans are paid, for {body['total_budget']:.6g} rho in "
        f"all, {settlement_in(body).words}; sign until {moment(body['deadline_ms'])}"
    )


def _end(body: dict[str, Any]) -> str:
    moves = {"refunded": body["refunded_micro"], "fund": body["fund_micro"]}
    shared = body["shared_micro"]
    to_owners = f", {credits_text(shared)} to those who delivered" if shared else ""
    return f"{money_words(moves)}{to_owners} credits"


_SAID: dict[str, Callable[[dict[str, Any]], str]] = {
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
    "round": lambda body: (
        f"round {body['round']}, {body['answers']} answers"
        f"{', too few: the model stays' if body['void'] else ''}"
    ),
    "completed": _end,
    "cancelled": lambda body: f"by the {body['by']}: {body['reason']}; {_end(body)}",
}
