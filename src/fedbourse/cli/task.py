"""``fedbourse task ...``: a buyer's tasks, and what anybody may see of them."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from fedbourse.cli.evidence_options import read_reference, reference_beside
from fedbourse.cli.files import read_bytes
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import OUTPUT, PEOPLE, Column, Output, moment, table
from fedbourse.cli.server_options import NO_OPTIONS, ServerOptions, TaskId, pages, task_id
from fedbourse.cli.task_facts import card_facts, log_facts, task_facts
from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.units import whole_number

if TYPE_CHECKING:
    from fedbourse.protocol.connection import Connection
    from fedbourse.tasks.card import TaskCard

StateName = Literal["draft", "open", "announced", "settled", "training", "completed", "cancelled"]
_CARD_BYTES_MAX = 2**20
_SHOWN_MAX = 60

task_app = App(name="task", help="Publish a task, follow it, and fetch what it bought.")


@task_app.command
def create(
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    reference: Path | None = None,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Store a card as a draft, which nobody else sees until you open it.

    For example:

        fedbourse task create card.json

        fedbourse task card | fedbourse task create - --json

    Parameters
    ----------
    file
        The card, as JSON; - for standard input.
    reference
        The reference records of a card with evidence; by default the file that task card wrote
        beside the card.
    """
    from fedbourse.encoding.strict_json import read_json
    from fedbourse.tasks.card import TaskCard
    from fedbourse.tasks.incentives import incentive

    content = read_bytes(file, at_most=_CARD_BYTES_MAX)
    try:
        card = TaskCard.of(read_json(content))
    except InvalidInput as error:
        raise InvalidFile(f"{file}: {error}") from None
    content = _reference(card, file, reference)
    with server.connect() as connection:
        task = connection.post("/v1/tasks", card.document)
        stays = card.evidence is not None and card.evidence.source == "gradients"
        if content and not stays:
            task = connection.put_bytes(f"/v1/tasks/{task['task']}/reference", content)
    uploaded = " with its reference records" if content and not stays else ""
    lines = [
        f"task {task['task']} is a draft{uploaded}; fedbourse task open {task['task']}",
        f"rules of pay: {incentive(card)}",
    ]
    if stays:
        lines.append(
            "your reference records stay with you; run fedbourse task send-gradients "
            f"{task['task']} FILE from before training until the end"
        )
    output.show(task, lambda _: lines)


def _reference(card: TaskCard, file: Path, reference: Path | None) -> bytes:
    """Return the reference file of a card before anything is created; nothing without evidence."""
    if card.evidence is None:
        if reference is not None:
            raise InvalidInput("the card has no evidence, so that it needs no --reference")
        return b""
    chosen = reference or reference_beside(file)
    if reference is None and not chosen.exists():
        raise InvalidInput(
            f"the card has evidence, and {chosen} is not there; name the file of its reference "
            "records with --reference"
        )
    return read_reference(card, chosen)


@task_app.command(name="list")
def list_tasks(
    *,
    state: StateName | None = None,
    limit: Annotated[Whole, Parameter(group=OUTPUT)] = 50,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """List tasks, the newest first.

    For example:

        fedbourse task list

        fedbourse task list --state open --json

    Parameters
    ----------
    state
        Only tasks in this state.
    limit
        How many tasks to list at most.
    """
    most = whole_number("limit", limit, at_least=1)
    parameters = {"state": state, "limit": min(most, 100)}
    tasks = []
    with server.connect() as connection:
        for task in pages(connection, "/v1/tasks", "tasks", parameters, cursor="before"):
            tasks.append(task)
            if len(tasks) == most:
                break
    columns: dict[str, Column] = {
        "task": "{task}",
        "<state": "{state}",
        "reward": "{reward_micro:credits}",
        "until (UTC)": "{deadline_ms:minute}",
        "<goal": lambda task: _short(task["goal"]),
    }
    output.show({"tasks": tasks}, lambda _: table(tasks, columns))


@task_app.command
def show(task: TaskId, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE) -> None:
    """Show a task and its card.

    For example:

        fedbourse task show latest

        fedbourse task show 018f0c3e9a5b7d2c4e6f8a1b --json
    """
    with server.connect() as connection:
        path = f"/v1/tasks/{task_id(connection, task)}"
        shown = connection.get(path)
        published = connection.get(f"{path}/card")
        events = _events(connection, path, shown["events"])
    output.show(
        shown | {"card_document": published["card"], "fund": published["fund"]},
        lambda task: (
            task_facts(task) | _log_facts(events),
            "",
            card_facts(task["card_document"], task["fund"]),
        ),
    )


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
    task: TaskId,
    /,
    *,
    confirm_upfront: Annotated[bool, Parameter(negative=())] = False,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Publish a draft: owners can register their interest.

    Its reward, or the most that the reward can become, is reserved from your account.

    For example:

        fedbourse task open latest

        fedbourse task open latest --confirm-upfront

    Parameters
    ----------
    confirm_upfront
        Accept that a card with vesting upfront pays all of the reward before round 0, so that an
        owner that then delivers nothing keeps all of its pay. Such a card is not opened without it.
    """
    _move(server, task, "open", output, {"confirm_upfront": True} if confirm_upfront else {})


@task_app.command
def announce(
    task: TaskId, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE
) -> None:
    """End the time for interest: fix the reward, and give back what was reserved beyond it.

    For example:

        fedbourse task announce latest
    """
    _move(server, task, "announce", output)


@task_app.command
def train(task: TaskId, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE) -> None:
    """End the time for review: start training at once, with the owners who signed.

    Without it training starts by itself when the card's review_s is over.

    For example:

        fedbourse task train latest
    """
    _move(server, task, "train", output)


@task_app.command
def cancel(
    task: TaskId,
    /,
    *,
    reason: str = "",
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """End a task before its time; the pay of rounds that were not closed goes back to you.

    Pay that was earned stays earned. Pay of closed rounds that a device did not deliver goes where
    the card's unearned says.

    For example:

        fedbourse task cancel latest --reason "the data has changed"

    Parameters
    ----------
    reason
        Why, for everybody to read.
    """
    _move(server, task, "cancel", output, {"reason": reason} if reason else {})


def _move(
    server: ServerOptions, task: str, command: str, output: Output, body: object = None
) -> None:
    with server.connect() as connection:
        moved = connection.post(f"/v1/tasks/{task_id(connection, task)}/{command}", body or {})
    output.show(moved, _state)


def _state(task: dict[str, Any]) -> str:
    until = f" until {moment(task['deadline_ms'])} UTC" if task["deadline_ms"] else ""
    return f"task {task['task']} is {task['state']}{until}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
