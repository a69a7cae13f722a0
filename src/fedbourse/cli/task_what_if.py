"""``fedbourse task what-if``: what other rewards would buy."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import PEOPLE, Blocks, Output, table
from fedbourse.cli.server_options import NO_OPTIONS, ServerOptions, TaskId, task_id
from fedbourse.errors import InvalidInput
from fedbourse.units import number, whole_number

_COUNT_MAX = 200


def what_if(
    task: TaskId,
    /,
    *,
    rewards: Annotated[str, Parameter(allow_leading_hyphen=True)],
    owners: Whole | None = None,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Show what rewards would buy, before the task is settled.

    From the values that owners reported, where five or more did; otherwise from those that the card
    assumes.

    For example:

        fedbourse task what-if latest --rewards 1:20:20

        fedbourse task what-if latest --rewards 5,10 --owners 1000 --json

    Parameters
    ----------
    rewards
        Rewards in credits: LOW:HIGH:COUNT, or numbers separated by commas; at most 200.
    owners
        As if so many owners were interested, with values as the card assumes them.
    """
    parameters: dict[str, object] = {"rewards": ",".join(map(repr, rewards_of(rewards)))}
    if owners is not None:
        parameters["owners"] = whole_number("owners", owners, at_least=2)
    with server.connect() as connection:
        document = connection.get(f"/v1/tasks/{task_id(connection, task)}/what-if", parameters)
    output.show(document, _in_words)


def _in_words(document: dict[str, Any]) -> Blocks:
    models = document["models"]
    yield {
        "task": document["task"],
        "rests on": document["why"],
        "would take part": f"{document['participants']} of {document['owners']} owners",
    }
    yield ""
    yield "accuracy, and the buyer's utility, by each accuracy model"
    rows = [
        {
            "reward": f"{reward:g}",
            "total budget": f"{total:.4g}",
            **{m["model"]: f"{m['accuracy'][i]:.1%}, {m['utility'][i]:.4g}" for m in models},
        }
        for i, (reward, total) in enumerate(
            zip(document["rewards"], document["total_budgets"], strict=True)
        )
    ]
    yield table(rows, {head: itemgetter(head) for head in rows[0]})
    yield ""
    yield {
        f"best by {m['model']}": f"{m['best_reward']:.4g}, for {m['best_utility']:.4g}"
        for m in models
    }


def rewards_of(text: str) -> list[float]:
    """Read LOW:HIGH:COUNT, or numbers separated by commas.

    >>> rewards_of("1:2:3"), rewards_of("4,8")
    ([1.0, 1.5, 2.0], [4.0, 8.0])
    """
    try:
        numbers = [float(part) for part in text.split(":" if ":" in text else ",")]
    except ValueError:
        numbers = []
    if not numbers or (":" in text and len(numbers) != 3):
        raise InvalidInput(
            f"--rewards must be LOW:HIGH:COUNT or numbers separated by commas, such as 1:20:20 or "
            f"1,5,10; found {text!r:.60}"
        )
    if ":" in text:
        low, high = number("LOW", numbers[0], above=0), number("HIGH", numbers[1], above=0)
        count = whole_number("COUNT", numbers[2], at_least=1)
        if count > _COUNT_MAX:
            raise InvalidInput(f"--rewards must be at most {_COUNT_MAX} numbers; found {count}")
        return [low + (high - low) * i / max(count - 1, 1) for i in range(count)]
    return [number("--rewards", each, above=0) for each in numbers]
