"""``fedbourse device ...``: an owner's device, from its folder to what a task would bring."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from fedbourse.cli.device_options import (
    DEVICE,
    THE_DEVICE,
    Address,
    DeviceOptions,
    MarketAddress,
    guarded_text,
    lifetime_document,
    lifetime_text,
)
from fedbourse.cli.files import read_token
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import PEOPLE, Column, Output, table
from fedbourse.cli.server_options import CaFile, party_named
from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.privacy.loss import NOTES
from fedbourse.privacy.zcdp import DELTA
from fedbourse.units import credits_text, number, whole_number

if TYPE_CHECKING:
    from fedbourse.device import Agent

device_app = App(
    name="device", help="Sell an owner's privacy, and guard it: what runs on a device."
)
_PRIVACY, _RULES = (Group.create_ordered(name) for name in ("Privacy", "What to sell"))
Many = Parameter(negative=(), consume_multiple=False, group=_RULES)
_TASKS_MAX = 50


@device_app.command
def init(
    *,
    value: Annotated[float, Parameter(group=_PRIVACY)],
    lifetime_cap: Annotated[float | None, Parameter(group=_PRIVACY)] = None,
    lifetime_epsilon: Annotated[float | None, Parameter(group=_PRIVACY)] = None,
    delta: Annotated[float, Parameter(group=_PRIVACY)] = 1e-5,
    data: Annotated[str | None, Parameter(group=_RULES)] = None,
    separate_cap: Annotated[bool, Parameter(negative=(), group=_PRIVACY)] = False,
    min_price: Annotated[float, Parameter(group=_RULES)] = 0.0,
    min_rounds: Annotated[Whole, Parameter(group=_RULES)] = 1,
    refuse_data: Annotated[list[str] | None, Many] = None,
    only_buyer: Annotated[list[str] | None, Many] = None,
    accept_upfront: Annotated[bool, Parameter(negative=(), group=_RULES)] = False,
    accept_evidence: Annotated[
        Literal["none", "any-class-mixture", "any"], Parameter(group=_RULES)
    ] = "none",
    max_held_rounds: Annotated[Whole | None, Parameter(group=_RULES)] = None,
    update_format: Annotated[Literal["float64", "float32"], Parameter(group=DEVICE)] = "float64",
    max_unpaid_rounds: Annotated[Whole, Parameter(group=_PRIVACY)] = 1,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """Make a device's folder: its key, what privacy is worth to its owner, and its lifetime cap.

    Only you can read the folder. Never copy it back from a backup: an old copy has forgotten what
    was spent since. Your user's state folder remembers which data each folder guards: a second
    folder over the same file, a link to it or a copy of it would double the cap, and is refused.

    For example:

        fedbourse device init --value 1.2 --lifetime-epsilon 8 --data flights.csv:late

        fedbourse device init --value 1.2 --lifetime-cap 2 --refuse-data health --folder phone

    Parameters
    ----------
    value
        What a unit of rho is worth to you, in credits: nothing is sold below it. It stays here.
    lifetime_cap
        The most that is ever spent, over all tasks and markets, in rho.
    lifetime_epsilon
        The same as an epsilon about one record, at delta.
    delta
        The delta of that epsilon.
    data
        Your records: FILE[:LABEL_COLUMN], a .csv, .parquet, .arrow or .npz file.
    separate_cap
        Let this folder have a cap of its own about data that another folder guards.
    min_rounds
        Refuse tasks with fewer rounds: the fewer there are, the more one unpaid update costs.
    min_price
        The least pay for a unit of rho, in credits, where that is more than your value.
    refuse_data
        Refuse tasks whose category of data or goal has this word; may be given several times.
    only_buyer
        Sell to this buyer only, buyer:NAME; may be given several times.
    accept_upfront
        Join tasks that pay everything before round 0 too. In them an owner that delivers nothing
        keeps all of its pay, and can outbid you for the same reward.
    accept_evidence
        Join tasks that hold pay until updates have been compared with the buyer's records: none of
        them; any-class-mixture, which dismiss no owner for its mixture of classes; or any.
    max_held_rounds
        Refuse tasks that hold the pay of more rounds than this; any number by default.
    update_format
        How updates are sent; float32 takes half the bytes.
    max_unpaid_rounds
        How many updates of a task may be without a receipt before the device sends no more. Held
        pay has a receipt: --max-held-rounds limits that.
    """
    from fedbourse.device import Agent, DeviceSettings, Limits

    settings = DeviceSettings(
        value=number("value", value, above=0),
        lifetime_cap=_cap(lifetime_cap, lifetime_epsilon, delta),
        data=None if data is None else _data_file(data),
        update_format=update_format,
        max_unpaid_rounds=whole_number("max_unpaid_rounds", max_unpaid_rounds, at_least=1),
        limits=Limits(
            min_price=min_price,
            min_rounds=whole_number("min_rounds", min_rounds, at_least=1),
            refused_data=tuple(refuse_data or ()),
            only_buyers=tuple(party_named(name, kind="buyer") for name in only_buyer or ()),
            accept_upfront=accept_upfront,
            accept_evidence=accept_evidence,
            max_held_rounds=None
            if max_held_rounds is None
            else whole_number("max_held_rounds", max_held_rounds, at_least=1),
        ),
    )
    with Agent.create(device.folder, settings, separate_cap=separate_cap) as agent:
        key = agent.folder.key.public
    document = {
        "folder": str(device.folder),
        "public_key": key,
        **asdict(settings),
        **lifetime_document(settings.lifetime_cap),
        "separate_cap": separate_cap,
        "delta": DELTA,
    }
    output.show(document, _folder)


def _folder(document: dict[str, Any]) -> dict[str, str]:
    return {
        "folder": f"{document['folder']}, which only you can read; keep it, and never restore it",
        "public key": document["public_key"],
        "value": f"{document['value']:g} credits for a unit of rho; it stays here",
        "lifetime cap": lifetime_text(document),
        "whole owner": NOTES["whole owner"],
        "data": guarded_text(document["data"], separate_cap=document["separate_cap"]),
    }


def _cap(rho: float | None, epsilon: float | None, delta: float) -> float:
    from fedbourse.privacy.zcdp import rho_for

    if (rho is None) == (epsilon is None):
        options = "none" if rho is None else "both"
        raise InvalidInput(
            f"give --lifetime-cap or --lifetime-epsilon, one of them; found {options}"
        )
    if epsilon is not None:
        return rho_for(epsilon=epsilon, delta=delta)
    return number("lifetime_cap", rho, above=0)


def _data_file(name: str) -> str:
    """Return the data's name, which holds wherever the device is started from."""
    from fedbourse.device.data import KINDS
    from fedbourse.files.column_file import split_spec

    path, label = split_spec(name)
    file = Path(path).absolute()
    if file.suffix.lower() not in KINDS:
        raise InvalidFile(f"--data must be a {', '.join(KINDS)} file; found {name!r:.80}")
    try:
        with file.open("rb"):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidFile(f"{path} cannot be read: {reason}") from None
    return str(file) if label is None else f"{file}:{label}"


@device_app.command
def enrol(
    server: Address,
    token: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    ca: Annotated[CaFile, Parameter(group=DEVICE)] = None,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """Enrol in a market with a one-time token, and remember the market's key.

    From then on the device talks to nobody who cannot sign with that key.

    For example:

        fedbourse device enrol http://127.0.0.1:8417 ann.enrolment

        fedbourse device enrol https://market.example - --folder phone < ann.enrolment

    Parameters
    ----------
    server
        The market's address.
    token
        The file with the token that the operator made with `fedbourse token enrol --out`; - for
        standard input. Never the token itself: everybody on a machine can read arguments.
    """
    if str(token).startswith(("fbe_", "fbt_")) and not token.exists():
        raise InvalidInput("TOKEN must be a file that holds the token; found a token itself")
    with device.selling() as agent:
        market = agent.enrol(server, read_token(token), ca_file=_absolute(ca))
    output.show(asdict(market), _market)


@device_app.command
def move_market(
    old: Address,
    new: Address,
    /,
    *,
    ca: Annotated[CaFile, Parameter(group=DEVICE)] = None,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """Follow a market to a new address.

    The market's key stays the one that the device remembers, and the new address has to prove that
    it holds it. Deals go on where they were.

    For example:

        fedbourse device move-market http://127.0.0.1:8417 https://market.example

    Parameters
    ----------
    old
        The address that the device knows.
    new
        The address from now on.
    """
    with device.selling() as agent:
        market = agent.move_market(old, new, ca_file=_absolute(ca))
    output.show(asdict(market), _market)


def _absolute(file: Path | None) -> str | None:
    """Return a file's name, which holds wherever the device is started from."""
    return None if file is None else str(file.absolute())


def _market(market: dict[str, Any]) -> dict[str, str]:
    return {
        "market": market["server"],
        "its key": f"{market['key']}, remembered: a market with another one is refused",
        "owner": market["owner"],
        "device": market["device"],
    }


@device_app.command
def tasks(
    *,
    state: Literal["open", "announced", "settled", "training", "completed", "cancelled", "all"]
    | None = "open",
    server: MarketAddress = None,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """List the tasks of a market, the newest first, and which of them this device has joined.

    For example:

        fedbourse device tasks

        fedbourse device tasks --state all --json

    Parameters
    ----------
    state
        Only tasks in this state; all for all.
    """
    with device.looking() as agent:
        wanted = None if state == "all" else state
        listed = agent.tasks(wanted, server=server, at_most=_TASKS_MAX)
        rows = _with_cards(agent, listed, server)
    nothing = "the market has no tasks" if state == "all" else f"no task is {state} now"
    output.show({"tasks": rows}, lambda _: table(rows, _TASKS) if rows else nothing)


def _reward(task: dict[str, Any]) -> str:
    reward = task["reward_micro"]
    return str(task["card_reward"]) if reward is None else credits_text(reward)


_TASKS: dict[str, Column] = {
    "task": "{task}",
    "<state": "{state}",
    "reward": _reward,
    "until (UTC)": "{deadline_ms:minute}",
    "records": "{samples}",
    "rounds": "{rounds}",
    "<joined": lambda task: task["deal"] or "no",
    "<goal": "{goal}",
}


def _with_cards(
    agent: Agent, tasks: list[dict[str, Any]], server: str | None
) -> list[dict[str, Any]]:
    """Add what a card says and a list does not."""
    market = agent.market(server)
    deals = {deal.task: deal.state for deal in agent.deals.deals() if deal.market == market.key}
    cards = agent.cards([task["task"] for task in tasks], server=server)
    return [
        task
        | {"samples": card.samples, "card_reward": card.reward}
        | {"deal": deals.get(task["task"])}
        for task, card in zip(tasks, cards, strict=True)
    ]
