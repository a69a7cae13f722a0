"""``fedbourse task ...``: a buyer's tasks, and what anybody may see of them."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.server_options import (
    NO_OPTIONS,
    OUTPUT,
    Json,
    ServerOptions,
    check_writable,
    credits_or_dash,
    moment,
    pages,
    print_facts,
    print_json,
    print_line,
    print_table,
    read_bytes,
    task_id,
    write_bytes,
)
from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.units import whole_number

StateName = Literal["draft", "open", "announced", "settled", "training", "completed", "cancelled"]
_CARD_BYTES_MAX = 2**20
_SHOWN_MAX = 60

task_app = App(name="task", help="Publish a task, follow it, and fetch what it bought.")


@task_app.command
def card(
    *, data: str | None = None, out: Annotated[Path | None, Parameter(group=OUTPUT)] = None
) -> None:
    """Write an example of a task card, to start from.

    Examples:

        fedbourse task card --out card.json

        fedbourse task card --data flights.csv:late --out card.json

    Parameters
    ----------
    data
        Records of your own, FILE[:LABEL_COLUMN] or a name that fedbourse train knows: the card then
        has their columns by name, and the numbers that scale them, so that owners' devices find the
        same columns in their own tables.
    out
        The file to write to, in place of standard output.
    """
    from fedbourse.bootstrap.example_card import example_card

    text = json.dumps(example_card(data), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        print(text, end="")
    else:
        check_writable(out, new=not out.exists() or out.is_file())
        write_bytes(out, text.encode())
        print_line(f"an example card is in {out}")


@task_app.command
def create(
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
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
    limit: Annotated[Whole, Parameter(group=OUTPUT)] = 50,
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
        last = connection.get(f"{path}/events", {"after": found["events"] - 2})["events"]
    if as_json:
        print_json(found | {"card_document": published})
        return
    reasons = [event["body"]["reason"] for event in last if event["kind"] == "cancelled"]
    print_facts(task_facts(found) | ({"why": reasons[0]} if reasons else {}))
    print_line("")
    print_facts({name: worded(published[name]) for name in _in_order(published)})


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


def task_facts(task: dict[str, Any]) -> dict[str, object]:
    """Return what everybody may see of a task, for people."""
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


def worded(value: object) -> str:
    """Return an item of a card or an event in words."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {worded(part)}" for name, part in value.items())
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
