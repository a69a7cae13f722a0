"""``fedbourse task ...``: a buyer's tasks, and what anybody may see of them."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.server_options import (
    NO_OPTIONS,
    OUTPUT,
    Json,
    ServerOptions,
    credits_or_dash,
    moment,
    pages,
    print_facts,
    print_json,
    print_line,
    print_table,
    read_bytes,
    task_id,
)
from fedbourse.cli.task_facts import card_facts, log_facts, task_facts
from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.units import whole_number

if TYPE_CHECKING:
    from fedbourse.wire.connection import Connection

StateName = Literal["draft", "open", "announced", "settled", "training", "completed", "cancelled"]
_CARD_BYTES_MAX = 2**20
_SHOWN_MAX = 60

task_app = App(name="task", help="Publish a task, follow it, and fetch what it bought.")


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
    from fedbourse.wire.incentives import incentive
    from fedbourse.wire.json_body import read_json

    content = read_bytes(file, at_most=_CARD_BYTES_MAX)
    try:
        card = TaskCard.of(read_json(content))
    except InvalidInput as error:
        raise InvalidFile(f"{file}: {error}") from None
    with server.connect() as connection:
        task = connection.post("/v1/tasks", card.document)
    if as_json:
        print_json(task)
    else:
        print_line(f"task {task['task']} is a draft; fedbourse task open {task['task']}")
        print_line(f"rules of pay: {incentive(card)}")


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
        shown = connection.get(path)
        published = connection.get(f"{path}/card")
        events = _events(connection, path, shown["events"])
    if as_json:
        print_json(shown | {"card_document": published["card"], "fund": published["fund"]})
        return
    print_facts(task_facts(shown) | _log_facts(events))
    print_line("")
    print_facts(card_facts(published["card"], published["fund"]))


def _events(connection: Connection, path: str, count: int) -> list[dict[str, Any]]:
    """Return a task's events up to its training, and the last one."""
    events: list[dict[str, Any]] = []
    for event in pages(connection, f"{path}/events", "events", {"limit": 1000}):
        events.append(event)
        if event["kind"] == "training":
            break
    if events and events[-1]["sequence"] < count - 1:
        events += connection.get(f"{path}/events", {"after": count - 2, "limit": 1})["events"]
    return events


def _log_facts(events: list[dict[str, Any]]) -> dict[str, object]:
    from fedbourse.market.log_summary import summary

    try:
        return log_facts(summary((e["kind"], e["at_ms"], e["body"]) for e in events))
    except (KeyError, TypeError):  # of a market of another version
        return {}


@task_app.command(name="open")
def open_task(
    task: str,
    /,
    *,
    confirm_upfront: Annotated[bool, Parameter(negative=())] = False,
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """Publish a draft: owners can register their interest.

    Its reward, or the most that the reward can become, is reserved from your account.

    Examples:

        fedbourse task open latest

        fedbourse task open latest --confirm-upfront

    Parameters
    ----------
    task
        The task's id, or latest.
    confirm_upfront
        Accept that a card with vesting upfront pays all of the reward before round 0, so that an
        owner that then delivers nothing keeps all of its pay. Such a card is not opened without it.
    as_json
        Print one JSON document.
    """
    _move(server, task, "open", as_json, {"confirm_upfront": True} if confirm_upfront else {})


@task_app.command
def announce(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """End the time for interest: fix the reward, and give back what was reserved beyond it.

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
def train(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """End the time for review: start training at once, with the owners who signed.

    Without it training starts by itself when the card's review_s is over.

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
    """End a task before its time; the pay of rounds that were not closed goes back to you.

    Pay that was earned stays earned. Pay of closed rounds that a device did not deliver goes where
    the card's unearned says.

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


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
