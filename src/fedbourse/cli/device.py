"""``fedbourse device ...``: an owner's device, from its folder to what a task would bring."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter
from rich.text import Text

from fedbourse.cli.device_chart import chart
from fedbourse.cli.device_check import check_of, fit_sentence, used_sentence
from fedbourse.cli.device_options import (
    DEVICE,
    THE_DEVICE,
    DeviceOptions,
    MarketAddress,
    address,
    guarded_text,
    lifetime_document,
    lifetime_text,
    open_task,
    token_in,
)
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.server_options import (
    Json,
    console,
    credits_or_dash,
    moment,
    party_named,
    plain,
    print_facts,
    print_json,
    print_line,
    print_table,
)
from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.privacy.loss import EPSILON_HEADS, NOTES, epsilon_text, losses_text
from fedbourse.privacy.zcdp import DELTA
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from fedbourse.agent import Advice, Agent, DataCheck, Market

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
    least_price: Annotated[float, Parameter(group=_RULES)] = 0.0,
    least_rounds: Annotated[Whole, Parameter(group=_RULES)] = 1,
    refuse_data: Annotated[list[str] | None, Many] = None,
    only_buyer: Annotated[list[str] | None, Many] = None,
    accept_upfront: Annotated[bool, Parameter(negative=(), group=_RULES)] = False,
    noise: Annotated[Literal["exact", "fast"], Parameter(group=DEVICE)] = "exact",
    answers: Annotated[Literal["float64", "float32"], Parameter(group=DEVICE)] = "float64",
    risk_rounds: Annotated[Whole, Parameter(group=_PRIVACY)] = 1,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """Make a device's folder: its key, what privacy is worth to its owner, and its lifetime cap.

    Only you can read the folder. Never copy it back from a backup: an old copy has forgotten what
    was spent since. Your user's state folder remembers which data each folder guards: a second
    folder over the same file, a link to it or a copy of it would double the cap, and is refused.

    Examples:

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
    least_rounds
        Refuse tasks with fewer rounds: the fewer there are, the more one unpaid answer costs.
    least_price
        The least pay for a unit of rho, in credits, where that is more than your value.
    refuse_data
        Refuse tasks whose category of data or goal has this word; may be given several times.
    only_buyer
        Sell to this buyer only, buyer:NAME; may be given several times.
    accept_upfront
        Join tasks that pay everything before round 0 too. In them an owner that delivers nothing
        keeps all of its pay, and can outbid you for the same reward.
    noise
        exact, which is proven; or fast, for models with a million parameters, which is not proven.
    answers
        How answers are sent; float32 takes half the bytes.
    risk_rounds
        How many answers of a task may be without a receipt before the device stops answering.
    as_json
        Print one JSON document.
    """
    from fedbourse.agent import Agent, DeviceSettings, Limits

    settings = DeviceSettings(
        value=number("value", value, above=0),
        lifetime_cap=_cap(lifetime_cap, lifetime_epsilon, delta),
        data=None if data is None else _data_file(data),
        noise=noise,
        answers=answers,
        risk_rounds=whole_number("risk_rounds", risk_rounds, at_least=1),
        limits=Limits(
            least_price=least_price,
            least_rounds=whole_number("least_rounds", least_rounds, at_least=1),
            refused_data=tuple(refuse_data or ()),
            only_buyers=tuple(party_named(name, kind="buyer") for name in only_buyer or ()),
            accept_upfront=accept_upfront,
        ),
    )
    with Agent.create(device.folder, settings, separate_cap=separate_cap) as agent:
        key = agent.folder.key.public
    lifetime = lifetime_document(settings.lifetime_cap)
    if as_json:
        shown = asdict(settings) | lifetime | {"separate_cap": separate_cap, "delta": DELTA}
        print_json({"folder": str(device.folder), "public_key": key, **shown})
        return
    print_facts(
        {
            "folder": f"{device.folder}, which only you can read; keep it, and never restore it",
            "public key": key,
            "value": f"{settings.value:g} credits for a unit of rho; it stays here",
            "lifetime cap": lifetime_text(lifetime),
            "whole owner": NOTES["whole owner"],
            "data": guarded_text(settings.data, separate_cap=separate_cap),
        }
    )


def _cap(rho: float | None, epsilon: float | None, delta: float) -> float:
    from fedbourse.privacy.zcdp import rho_for

    if (rho is None) == (epsilon is None):
        found = "none" if rho is None else "both"
        raise InvalidInput(f"give --lifetime-cap or --lifetime-epsilon, one of them; found {found}")
    if epsilon is not None:
        return rho_for(epsilon=epsilon, delta=delta)
    return number("lifetime_cap", rho, above=0)


def _data_file(name: str) -> str:
    """Return the data's name, which holds wherever the device is started from."""
    from fedbourse.agent.data import KINDS
    from fedbourse.learning.sources.files import split_name

    path, label = split_name(name)
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
    server: str,
    token: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    ca: Annotated[Path | None, Parameter(env_var="FEDBOURSE_CA", group=DEVICE)] = None,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """Enrol in a market with a one-time token, and remember the market's key.

    From then on the device talks to nobody who cannot sign with that key.

    Examples:

        fedbourse device enrol http://127.0.0.1:8417 ann.enrolment

        fedbourse device enrol https://market.example - --folder phone < ann.enrolment

    Parameters
    ----------
    server
        The market's address.
    token
        The file with the token that the operator made with `fedbourse token enrol --out`; - for
        standard input. Never the token itself: everybody on a machine can read arguments.
    ca
        A file with the certificates to trust, where the market has one of its own making.
    as_json
        Print one JSON document.
    """
    if str(token).startswith(("fbe_", "fbt_")) and not token.exists():
        raise InvalidInput("TOKEN must be a file that holds the token; found a token itself")
    with device.selling() as agent:
        market = agent.enrol(
            address(server) or "",
            token_in(token),
            ca_file=None if ca is None else str(ca.absolute()),
        )
    _print_market(market, as_json=as_json)


@device_app.command
def move_market(
    old: str,
    new: str,
    /,
    *,
    ca: Annotated[Path | None, Parameter(env_var="FEDBOURSE_CA", group=DEVICE)] = None,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """Follow a market to a new address.

    The market's key stays the one that the device remembers, and the new address has to prove that
    it holds it. Deals go on where they were.

    Examples:

        fedbourse device move-market http://127.0.0.1:8417 https://market.example

    Parameters
    ----------
    old
        The address that the device knows.
    new
        The address from now on.
    ca
        A file with the certificates to trust, where the market has one of its own making.
    as_json
        Print one JSON document.
    """
    with device.selling() as agent:
        market = agent.move_market(
            address(old) or "",
            address(new) or "",
            ca_file=None if ca is None else str(ca.absolute()),
        )
    _print_market(market, as_json=as_json)


def _print_market(market: Market, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(market))
    else:
        print_facts(
            {
                "market": market.server,
                "its key": f"{market.key}, remembered: a market with another one is refused",
                "owner": market.owner,
                "device": market.device,
            }
        )


@device_app.command
def tasks(
    *,
    state: Literal["open", "announced", "settled", "training", "completed", "cancelled", "all"]
    | None = "open",
    server: MarketAddress = None,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """List the tasks of a market, the newest first, and which of them this device has joined.

    Examples:

        fedbourse device tasks

        fedbourse device tasks --state all --json

    Parameters
    ----------
    state
        Only tasks in this state; all for all.
    server
        The market's address, where the device is enrolled in several.
    as_json
        Print one JSON document.
    """
    with device.looking() as agent:
        found = agent.tasks(None if state == "all" else state, server=address(server))[:_TASKS_MAX]
        rows = _with_cards(agent, found, address(server))
    if as_json:
        print_json({"tasks": rows})
        return
    if not rows:
        print_line("the market has no tasks" if state == "all" else f"no task is {state} now")
        return
    print_table(
        ("task", "state", "reward", "until (UTC)", "records", "rounds", "joined", "goal"),
        (
            (
                row["task"],
                row["state"],
                credits_or_dash(row["reward_micro"])
                if row["reward_micro"] is not None
                else row["card_reward"],
                moment(row["deadline_ms"], seconds=False),
                row["samples"],
                row["rounds"],
                row["deal"] or "no",
                row["goal"],
            )
            for row in rows
        ),
        left="state,joined,goal",
    )


def _with_cards(
    agent: Agent, tasks: list[dict[str, Any]], server: str | None
) -> list[dict[str, Any]]:
    """Add what a card says and a list does not."""
    from fedbourse.wire.connection import Connection

    market = agent.market(server)
    deals = {deal.task: deal.state for deal in agent.deals.deals() if deal.market == market.key}
    rows = []
    with Connection(market.server, market_key=market.signing_key, ca_file=market.ca_file) as line:
        for task in tasks:
            card = line.get(f"/v1/tasks/{task['task']}/card")["card"]
            rows.append(
                task
                | {"samples": card["samples"], "card_reward": card["reward"]}
                | {"deal": deals.get(task["task"])}
            )
    return rows


@device_app.command
def advise(
    task: str,
    /,
    *,
    budgets: str | None = None,
    server: MarketAddress = None,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """Show what budgets would earn in a task, and what they would cost you.

    Utility is the pay less what the privacy is worth to you. The best reply is the budget with the
    most of it, while everybody else sells what they now seem to.

    Examples:

        fedbourse device advise latest

        fedbourse device advise 018f0c3e9a5b7d2c4e6f8a1b --budgets 0.05,0.1,0.2 --json

    Parameters
    ----------
    task
        The task's id, or latest, the newest open one.
    budgets
        The budgets to show, in rho, with commas between them; by default a range.
    server
        The market's address, where the device is enrolled in several.
    as_json
        Print one JSON document.
    """
    asked = None if budgets is None else _numbers(budgets)
    with device.looking() as agent:
        name = open_task(agent, task, server=address(server))
        advice = agent.advise(name, server=address(server), budgets=asked)
        check = check_of(agent, name, server=address(server))
    if as_json:
        data = None if check is None else asdict(check)
        print_json({"task": name, **asdict(advice), "data": data})
    else:
        _print_advice(name, advice, check)


def _numbers(text: str) -> list[float]:
    try:
        return [number("budgets", float(part), at_least=0) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(
            "--budgets must be numbers with commas between them, such as 0.1,0.2; "
            f"found {text!r:.60}"
        ) from None


def _print_advice(task: str, advice: Advice, check: DataCheck | None) -> None:
    best = advice.best
    print_table(
        ("", "budget rho", "pay", "utility", *EPSILON_HEADS, "of the\ncap's rho"),
        (
            (
                Text("best", "bold green") if choice == best else "",
                f"{choice.budget:.6g}",
                f"{choice.pay:.6f}",
                f"{choice.utility:.6f}",
                epsilon_text(choice.epsilon_one_record),
                epsilon_text(choice.epsilon_whole_owner),
                f"{choice.cap_share:.1%}",
            )
            for choice in advice.choices
        ),
        left="",
    )
    print_line("")
    output = console()
    for line in chart(advice, encoding=output.encoding):
        output.print(plain(line), soft_wrap=True)
    print_line("")
    print_facts(
        {
            "task": f"{task}, {advice.reward:g} credits for all owners",
            "known by": f"{advice.basis}; others sell {advice.others:.6g} rho",
            "best reply": f"to sell nothing: {advice.reason}"
            if not best.budget
            else f"{best.budget:.6g} rho for {best.pay:.6f} credits, {losses_text(asdict(best))}",
            "rules of pay": advice.incentive,
            "cap": f"{advice.left:.6g} rho is left of it",
            "records": "an application brings them"
            if check is None
            else f"{fit_sentence(check)}; used: {used_sentence(check)}; only you see this",
            "epsilon": "at delta 1e-5: nobody who sees all answers becomes surer by more than a "
            "factor e^epsilon whether a record was among yours",
            **NOTES,
        }
    )
