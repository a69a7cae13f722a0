"""``fedbourse device ledger`` and ``verify``: what was sold and earned, and whether it is so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedbourse.cli.device_options import (
    EXAMPLE_SAMPLES,
    THE_DEVICE,
    DeviceOptions,
    OwnTask,
    deal_document,
    held_facts,
    lifetime_document,
    lifetime_text,
    market_of,
    own_deal,
)
from fedbourse.cli.output import PEOPLE, Blocks, Column, Output, epsilon_columns, table
from fedbourse.cli.verify import Checked, show_checks, task_records
from fedbourse.privacy.loss import NOTES, PrivacyLoss, losses_text
from fedbourse.privacy.zcdp import DELTA
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from fedbourse.device import Agent


def ledger(
    task: str | None = None,
    /,
    *,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """Show what was spent, for whom, and what was earned, against the lifetime cap.

    It works without the market, and while `fedbourse device run` is running.

    For example:

        fedbourse device ledger

        fedbourse device ledger latest --json

    Parameters
    ----------
    task
        One task's id, or latest: shows its receipts too.
    """
    with device.looking() as agent:
        only = None if task is None else own_deal(agent, task).name
        document = _ledger(agent, only)
    output.show(document, _ledger_blocks)


def _ledger(agent: Agent, only: str | None) -> dict[str, Any]:
    ledger = agent.ledger()
    deals = []
    for entry in ledger.entries:
        if only in (None, entry.deal.name):
            deals.append(deal_document(agent, entry))
            if only is not None:
                deals[-1]["updates"] = _updates(agent, only)
    return {
        "value": agent.settings.value,
        **lifetime_document(ledger.lifetime_cap, samples=ledger.samples_max or EXAMPLE_SAMPLES),
        "spent": float(ledger.spent),
        **ledger.loss.document("spent_"),
        "reserved": float(ledger.reserved),
        "left": agent.left,
        "earned_micro": ledger.earned_micro,
        "held_micro": ledger.held_micro,
        "released_micro": ledger.released_micro,
        "forfeited_micro": ledger.forfeited_micro,
        "delta": DELTA,
        "deals": deals,
        "elsewhere": [
            {
                "task": account.terms.task,
                "budget": account.terms.rho,
                "spent": float(account.spent),
                "delivered": account.charged,
                "rounds": account.terms.rounds,
                "samples": account.terms.samples,
                **PrivacyLoss.of(float(account.spent), samples=account.terms.samples).document(
                    "spent_"
                ),
            }
            for account in ledger.elsewhere
            if only is None
        ],
        "refusals": [
            {
                "at_ms": each.at_ms,
                "task": each.deal.partition("/")[2],
                "round": each.round,
                "reason": each.reason,
                "sentence": each.sentence,
            }
            for each in ledger.refusals
            if only in (None, each.deal)
        ],
    }


def _updates(agent: Agent, name: str) -> list[dict[str, Any]]:
    """Return every update that may have been sent, with its receipt."""
    deal = agent.deals.deal(name)
    assert deal is not None
    return [
        {"round": each.round, "hash": each.hash, "receipt": each.receipt}
        for each in agent.deals.delivered(deal)
    ]


def _ledger_blocks(ledger: dict[str, Any]) -> Blocks:
    spent = {"spent rho": "{spent:.6f}", **epsilon_columns("spent_")}
    if ledger["deals"]:
        yield table(
            ledger["deals"],
            {
                "task": "{task}",
                "<buyer": "{buyer}",
                "<state": "{state}",
                "sold rho": "{budget:.6f}",
                "delivered": "{receipts}/{rounds}",
                **spent,
                "earned": "{earned_micro:credits}",
                **(_HELD if any(deal["evidence"] for deal in ledger["deals"]) else {}),
            },
        )
        yield ""
    for deal in ledger["deals"]:
        if deal.get("updates"):  # of one task
            yield table(deal["updates"], _UPDATES | (_HELD_SO_FAR if deal["evidence"] else {}))
            yield ""
    if ledger["elsewhere"]:
        yield table(
            ledger["elsewhere"],
            {
                "outside of markets": "{task}",
                "sold rho": "{budget:.6f}",
                "delivered": "{delivered}/{rounds}",
                **spent,
            },
        )
        yield ""
    share = ledger["spent"] / ledger["lifetime_cap"]
    yield {
        "earned": f"{credits_text(ledger['earned_micro'])} credits, by the receipts here",
        **held_facts(ledger),
        "spent": f"{ledger['spent']:.6g} rho, {share:.1%} of the cap's rho; "
        f"{losses_text(ledger, 'spent_')}",
        "promised": f"{ledger['reserved']:.6g} rho, not spent yet",
        "left": f"{ledger['left']:.6g} rho of the lifetime cap",
        "lifetime cap": lifetime_text(ledger),
        **NOTES,
        "refused": f"{len(ledger['refusals'])} times" if ledger["refusals"] else "nothing",
    }
    if ledger["refusals"]:
        yield ""
        yield table(
            ledger["refusals"],
            {
                "at (UTC)": "{at_ms:second}",
                "task": "{task}",
                "round": "{round}",
                "<reason": "{reason}",
                "<why": "{sentence}",
            },
        )


def _earned(update: dict[str, Any]) -> str:
    receipt = update["receipt"]
    return credits_text(receipt["receipt"]["earned_micro"]) if receipt else "no receipt"


def _signature(update: dict[str, Any]) -> str:
    receipt = update["receipt"]
    return f"{receipt['market_signature'][:12]}..." if receipt else "-"


def _held(update: dict[str, Any]) -> str:
    receipt = update["receipt"]
    return credits_text(receipt["receipt"]["held_micro"]) if receipt else ""


_HELD: dict[str, Column] = {
    "held": "{held_micro:credits}",
    "released": "{released_micro:credits}",
    "forfeited": "{forfeited_micro:credits}",
}
"""Of earned, held and released add up; what is forfeited comes on top."""
_HELD_SO_FAR: dict[str, Column] = {"held of it": _held}
_UPDATES: dict[str, Column] = {
    "round": "{round}",
    "update": "{hash:.12}...",
    "earned so far": _earned,
    "signed by the market": _signature,
}


def verify(
    task: OwnTask, /, *, device: DeviceOptions = THE_DEVICE, output: Output = PEOPLE
) -> None:
    """Compare the device's own records of a task with the market's, and recompute both.

    What the device holds (card, terms, updates, receipts, earnings) must be what the market says,
    and the market's log, totals, payments and your own allocation must follow from each other.
    Shows also when the folder is an old copy, which has forgotten spend: the market has later
    receipts.
    Ends with exit code 15 if something differs.

    For example:

        fedbourse device verify latest

        fedbourse device verify 018f0c3e9a5b7d2c4e6f8a1b --json
    """
    from fedbourse.market.audit import verify_task
    from fedbourse.protocol import bounds
    from fedbourse.protocol.connection import Connection

    checks: list[Checked] = []
    with device.looking() as agent:
        deal = own_deal(agent, task)
        for check in agent.verify(deal.task):
            checks.append(replace(check, name=f"device's {check.name.removeprefix('own ')}"))
        market = market_of(agent, deal)
        with Connection(
            market.server,
            key=agent.folder.key,
            market_key=market.signing_key,
            ca_file=market.ca_file,
            document_bytes_max=bounds.DEVICE_DOCUMENT_BYTES_MAX,
        ) as line:
            checks += verify_task(**task_records(line, deal.task, bounds.owner_records()))
    show_checks(deal.task, checks, output)
