"""What the commands of a device share: its folder, its deals in words, and how they stop."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from fedbourse.cli.server_options import checked_task
from fedbourse.errors import NotFound
from fedbourse.privacy.loss import PrivacyLoss, losses_text
from fedbourse.tasks.held_pay import held_pay
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cyclopts import Token

    from fedbourse.device import Agent, Deal, KnownMarket, SpendEntry

DEVICE, DEAL = (Group.create_ordered(name) for name in ("Device", "Deal"))
EXAMPLE_SAMPLES = 1000
"""The records of a task, where there is none yet that says how many it asks for."""


def _as_remembered(_type: object, tokens: Sequence[Token]) -> str:
    """Return a market's address as it was remembered when the device enrolled."""
    return tokens[0].value.rstrip("/")


Address = Annotated[str, Parameter(converter=_as_remembered)]
_MARKET_HELP = "The market's address, where the device is enrolled in several."
MarketAddress = Annotated[
    str | None,
    Parameter(name="--server", group=DEVICE, help=_MARKET_HELP, converter=_as_remembered),
]
_OWN_TASK_HELP = "The task's id, or latest, the one that was joined last."
OwnTask = Annotated[str, Parameter(help=_OWN_TASK_HELP)]
OpenTask = Annotated[str, Parameter(help="The task's id, or latest, the newest open one.")]


@Parameter(name="*", group=DEVICE)
@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Which device.

    Parameters
    ----------
    folder
        The device's folder.
    """

    folder: Annotated[Path, Parameter(env_var="FEDBOURSE_DEVICE")] = Path("device")

    def looking(self) -> Agent:
        """Open the folder to look into it, whoever is selling from it meanwhile."""
        from fedbourse.device import Agent

        return Agent(self.folder, read_only=True)

    def selling(self, on_event: Callable[[dict[str, Any]], None] = lambda event: None) -> Agent:
        """Open the folder to sell from it, as the only process that does."""
        from fedbourse.device import Agent

        return Agent(self.folder, on_event=on_event)


THE_DEVICE = DeviceOptions()


def open_task(agent: Agent, task: str, *, server: str | None) -> str:
    """Return a task's id; ``latest`` is the newest one that is open."""
    if task != "latest":
        return checked_task(task)
    tasks = agent.tasks("open", server=server, at_most=1)
    if not tasks:
        raise NotFound("no task is open that could be the latest")
    return str(tasks[0]["task"])


def own_deal(agent: Agent, task: str) -> Deal:
    """Return the device's deal about a task; ``latest`` is about the newest task."""
    if task != "latest":
        return agent.deal_of(checked_task(task))
    deals = agent.deals.deals()
    if not deals:
        raise NotFound("the device has no deal yet; fedbourse device join makes one")
    return deals[-1]


def market_of(agent: Agent, deal: Deal) -> KnownMarket:
    """Return the market of a deal."""
    return next(each for each in agent.deals.markets() if each.key == deal.market)


def guarded_text(data: str | None, *, separate_cap: bool) -> str:
    """Return which data the folder guards, and what is remembered of it."""
    if data is None:
        return "none: an application must bring it, and nothing remembers which"
    if separate_cap:
        return f"{data}, under a cap of its own beside that of any other folder"
    return f"{data}, remembered: another folder over the same data is refused"


def lifetime_document(cap: float, *, samples: int = EXAMPLE_SAMPLES) -> dict[str, Any]:
    """Return a lifetime cap with its epsilons, as if every task asked for ``samples`` records."""
    losses = PrivacyLoss.of(cap, samples=samples).document("lifetime_")
    return {"lifetime_cap": cap, "lifetime_samples": samples, **losses}


def lifetime_text(document: dict[str, Any]) -> str:
    """Return a lifetime cap and its epsilons in words."""
    return (
        f"{document['lifetime_cap']:.6g} rho, which is {losses_text(document, 'lifetime_')} (in "
        f"tasks of {document['lifetime_samples']:,} records), at delta 1e-5"
    )


def deal_document(agent: Agent, entry: SpendEntry) -> dict[str, Any]:
    """Return one deal: what was sold, for whom, what it cost and what it brought."""
    deal, spent = entry.deal, float(entry.spent)
    sold_loss = PrivacyLoss.of(entry.budget, samples=entry.samples)
    spent_loss = PrivacyLoss.of(spent, samples=entry.samples)
    return {
        "task": deal.task,
        "goal": deal.card.goal,
        "market": market_of(agent, deal).server,
        "owner": deal.owner,
        "buyer": deal.buyer,
        "state": deal.state,
        "outcome": deal.outcome,
        "value_reported": deal.strategy.report_value,
        "budget": entry.budget,
        "samples": entry.samples,
        **sold_loss.document(),
        "rounds": deal.card.rounds,
        "delivered": entry.delivered,
        "receipts": entry.receipts,
        "spent": spent,
        **spent_loss.document("spent_"),
        "reserved": float(entry.reserved),
        "payment_micro": deal.payment,
        "earned_micro": entry.earned_micro,
        "held_micro": entry.held_micro,
        "released_micro": entry.released_micro,
        "forfeited_micro": entry.forfeited_micro,
        "evidence": evidence_document(deal, entry.budget),
    }


def evidence_document(deal: Deal, budget: float) -> dict[str, Any] | None:
    """Return what a deal's evidence means for its pay, and for the budget where one is sold."""
    held = held_pay(deal.card)
    if held is None:
        return None
    judging = held.judging(budget) if budget else ""
    return {**asdict(held), "too_small": held.is_too_small(budget), "judging": judging}


def held_facts(money: dict[str, Any]) -> dict[str, str]:
    """Return what of the pay is held and what of it was lost, where there is any."""
    held, lost = money["held_micro"], money["forfeited_micro"]
    facts = {}
    if held:
        facts["held"] = (
            f"{credits_text(held)} credits of it, as the last receipts say; "
            f"{credits_text(money['released_micro'])} are released"
        )
    if lost:
        facts["forfeited"] = (
            f"{credits_text(lost)} credits besides, which were held and went to the market's fund"
        )
    return facts


@contextmanager
def stopped_by_signals(agent: Agent) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end what the agent does; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # the program around it hears signals
        return

    def stop(number: int, _frame: object) -> None:
        agent.stop.set()
        again = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, again)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
