"""``fedbourse task ...``: a buyer's tasks, and what anybody may see of them."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import fields
from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from fedbourse.cli.server_options import (
    NO_OPTIONS,
    OUTPUT,
    Json,
    ServerOptions,
    check_writable,
    credits_or_dash,
    moment,
    pages,
    plain,
    print_facts,
    print_json,
    print_line,
    print_table,
    read_bytes,
    task_id,
    write_bytes,
)
from fedbourse.errors import InvalidFile, InvalidInput, Unreachable
from fedbourse.units import credits_text, whole_number

StateName = Literal["draft", "open", "announced", "settled", "training", "completed", "cancelled"]
_CARD_BYTES_MAX = 2**20
_SHOWN_MAX = 60
_LINES = ("signed", "declined", "offered")
_MONEY = ("held", "earned", "declined", "refunded", "escrow")

task_app = App(name="task", help="Publish a task, follow it, and fetch what it bought.")


@task_app.command
def card(*, out: Annotated[Path | None, Parameter(group=OUTPUT)] = None) -> None:
    """Write an example of a task card, to start from.

    For example:

        fedbourse task card --out card.json

    Parameters
    ----------
    out
        The file to write to, in place of standard output.
    """
    text = json.dumps(_example(), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        print(text, end="")
    else:
        check_writable(out)
        write_bytes(out, text.encode())


@task_app.command
def create(file: Path, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """Store a card as a draft, which nobody else sees until you open it.

    Examples:

        fedbourse task create card.json

        fedbourse task card | fedbourse task create - --json

    Parameters
    ----------
    file
        The card, as JSON; - for standard input.
    as_json
        Print one JSON document.
    """
    from fedbourse.wire.card import TaskCard
    from fedbourse.wire.json_body import read_json

    content = read_bytes(file, at_most=_CARD_BYTES_MAX)
    try:
        document = TaskCard.of(read_json(content)).document
    except InvalidInput as error:
        raise InvalidFile(f"{file}: {error}") from None
    with server.connect() as connection:
        task = connection.post("/v1/tasks", document)
    if as_json:
        print_json(task)
    else:
        print_line(f"task {task['task']} is a draft; fedbourse task open {task['task']}")


@task_app.command(name="list")
def list_tasks(
    *,
    state: StateName | None = None,
    limit: Annotated[float, Parameter(group=OUTPUT)] = 50,
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """List tasks, the newest first.

    Examples:

        fedbourse task list

        fedbourse task list --state open --json

    Parameters
    ----------
    state
        Only tasks in this state.
    limit
        How many tasks to list at most.
    as_json
        Print one JSON document.
    """
    most = whole_number("limit", limit, at_least=1)
    asked = {"state": state, "limit": min(most, 100)}
    tasks = []
    with server.connect() as connection:
        for task in pages(connection, "/v1/tasks", "tasks", asked, cursor="before"):
            tasks.append(task)
            if len(tasks) == most:
                break
    if as_json:
        print_json({"tasks": tasks})
        return
    print_table(
        ("task", "state", "reward", "until (UTC)", "goal"),
        (
            (
                task["task"],
                task["state"],
                credits_or_dash(task["reward_micro"]),
                moment(task["deadline_ms"], seconds=False),
                _short(task["goal"]),
            )
            for task in tasks
        ),
        left="state,goal",
    )


@task_app.command
def show(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """Show a task and its card.

    Examples:

        fedbourse task show latest

        fedbourse task show 018f0c3e9a5b7d2c4e6f8a1b --json

    Parameters
    ----------
    task
        The task's id, or latest.
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        path = f"/v1/tasks/{task_id(connection, task)}"
        found = connection.get(path)
        published = connection.get(f"{path}/card")["card"]
    if as_json:
        print_json(found | {"card_document": published})
        return
    print_facts(_facts(found))
    print_line("")
    print_facts({name: _worded(published[name]) for name in _in_order(published)})


@task_app.command(name="open")
def open_task(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """Publish a draft: owners can register their interest.

    Examples:

        fedbourse task open latest

    Parameters
    ----------
    task
        The task's id, or latest.
    as_json
        Print one JSON document.
    """
    _move(server, task, "open", as_json)


@task_app.command
def announce(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """End the time for interest: fix the reward, and put it into escrow.

    Examples:

        fedbourse task announce latest

    Parameters
    ----------
    task
        The task's id, or latest.
    as_json
        Print one JSON document.
    """
    _move(server, task, "announce", as_json)


@task_app.command
def settle(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """End the time for plans: turn those at hand into payments.

    Examples:

        fedbourse task settle latest

    Parameters
    ----------
    task
        The task's id, or latest.
    as_json
        Print one JSON document.
    """
    _move(server, task, "settle", as_json)


@task_app.command
def train(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """End the time for terms: train with the owners who signed.

    Examples:

        fedbourse task train latest

    Parameters
    ----------
    task
        The task's id, or latest.
    as_json
        Print one JSON document.
    """
    _move(server, task, "train", as_json)


@task_app.command
def cancel(
    task: str,
    /,
    *,
    reason: str = "",
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """End a task before its time; what nobody has earned goes back to the buyer.

    Examples:

        fedbourse task cancel latest --reason "the data has changed"

    Parameters
    ----------
    task
        The task's id, or latest.
    reason
        Why, for everybody to read.
    as_json
        Print one JSON document.
    """
    _move(server, task, "cancel", as_json, {"reason": reason} if reason else {})


@task_app.command
def watch(
    task: str,
    /,
    *,
    after: Annotated[float, Parameter(allow_leading_hyphen=True)] = -1,
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


@task_app.command
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
    with server.connect() as connection:
        found = connection.get(f"/v1/tasks/{task_id(connection, task)}/report")
    if as_json:
        print_json(found)
        return
    print_facts(
        _facts(found)
        | {
            "owners": ", ".join(f"{found['participants'][state]} {state}" for state in _LINES),
            "credits": ", ".join(
                f"{credits_text(found['money_micro'][name])} {name}" for name in _MONEY
            ),
        }
    )
    if found["rounds_closed"]:
        print_line("")
        print_table(
            ("round", "answers", "void", "model"),
            (
                (row["round"], row["answers"], "yes" if row["void"] else "no", row["model_hash"])
                for row in found["rounds_closed"]
            ),
        )


@task_app.command
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


def _move(
    server: ServerOptions, task: str, command: str, as_json: bool, body: object = None
) -> None:
    with server.connect() as connection:
        moved = connection.post(f"/v1/tasks/{task_id(connection, task)}/{command}", body or {})
    if as_json:
        print_json(moved)
    else:
        until = f" until {moment(moved['deadline_ms'])} UTC" if moved["deadline_ms"] else ""
        print_line(f"task {moved['task']} is {moved['state']}{until}")


def _facts(task: dict[str, Any]) -> dict[str, object]:
    total = task["total_budget"]
    return {
        "task": task["task"],
        "state": task["state"],
        "buyer": task["buyer"],
        "goal": task["goal"],
        "made": f"{moment(task['created_ms'])} UTC",
        "until": f"{moment(task['deadline_ms'])} UTC" if task["deadline_ms"] else "-",
        "reward": credits_or_dash(task["reward_micro"]),
        "interested": task["interested"] or "-",
        "total budget": "-" if total is None else f"{total:.6g} rho, tick {task['tick']}",
        "round": f"{task['round']} of {task['rounds']}",
        "events": f"{task['events']}, the last with the hash {task['last_hash']}",
    }


def _told(event: dict[str, Any]) -> str:
    """Return an event as one line: what is short in it, and no hashes."""
    body = {name: value for name, value in event["body"].items() if name != "state"}
    offer = body.pop("offer", None)
    if isinstance(offer, dict):
        body |= {"R_micro": offer["reward_micro"], "P": offer["total_budget"]}
    said = ", ".join(
        _item(name, value)
        for name, value in body.items()
        if isinstance(value, (str, int, float)) and not _is_hash(value)
    )
    return f"{moment(event['at_ms'])}  {event['sequence']:>4}  {event['kind']:<10}  {said}".rstrip()


def _item(name: str, value: str | float) -> str:
    """Return one item of an event for people: moments and money as they write them."""
    if name.endswith("_ms") and isinstance(value, int):
        return f"{name.removesuffix('_ms')} {moment(value)}"
    if name.endswith("_micro") and isinstance(value, int):
        return f"{name.removesuffix('_micro')} {credits_text(value)} credits"
    if isinstance(value, bool):
        return f"{'' if value else 'not '}{name}"
    return f"{name} {_worded(value)}".replace("_", " ")


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64


def _worded(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_worded(part)}" for name, part in value.items())
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _in_order(card: dict[str, Any]) -> list[str]:
    """Return the items of a card as its record has them; those that it does not know come last."""
    from fedbourse.wire.card import TaskCard

    known = [field.name for field in fields(TaskCard) if field.name in card]
    return known + [name for name in card if name not in known]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def _example() -> dict[str, Any]:
    from fedbourse.wire.card import Assumptions, TaskCard

    return TaskCard(
        goal="Predict whether a flight arrives more than 15 minutes late.",
        data="A record is a flight: 9 numbers known at departure, and whether it came late.",
        loss="logistic",
        query="gradient",
        compensation="proportional",
        reward=10.0,
        scaling=hashlib.sha256(b"none").hexdigest(),
        model="logistic",
        features=9,
        classes=2,
        dimension=9,
        step_size=1.0,
        rounds=50,
        samples=1000,
        clip=1.0,
        weights="precision",
        payout="vested",
        max_reward=20.0,
        assumptions=Assumptions(weight=20.0, chance=0.75, ceiling=0.9),
        validation="5000 flights of the buyer's own.",
    ).document
