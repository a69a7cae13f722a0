"""``fedbourse device ledger`` and ``verify``: what was sold and earned, and whether it is so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedbourse.cli.device_options import (
    EXAMPLE_SAMPLES,
    THE_DEVICE,
    DeviceOptions,
    deal_document,
    lifetime_document,
    lifetime_text,
    market_of,
    own_deal,
)
from fedbourse.cli.server_options import (
    Json,
    moment,
    print_facts,
    print_json,
    print_line,
    print_table,
)
from fedbourse.cli.verify import Checked, show_checks, task_records
from fedbourse.privacy.loss import EPSILON_HEADS, NOTES, PrivacyLoss, epsilon_text, losses_text
from fedbourse.privacy.zcdp import DELTA
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from fedbourse.agent import Agent

_TASK_HEADS = ("task", "buyer", "state", "sold rho")


def ledger(
    task: str | None = None,
    /,
    *,
    device: DeviceOptions = THE_DEVICE,
    as_json: Json = False,
) -> None:
    """Show what was spent, for whom, and what was earned, against the lifetime cap.

    It works without the market, and while `fedbourse device run` is running.

    Examples:

        fedbourse device ledger

        fedbourse device ledger latest --json

    Parameters
    ----------
    task
        One task's id, or latest: shows its receipts too.
    as_json
        Print one JSON document.
    """
    with device.looking() as agent:
        only = None if task is None else own_deal(agent, task).name
        document = _ledger(agent, only)
    if as_json:
        print_json(document)
    else:
        _print_ledger(document, one=only is not None)


def _ledger(agent: Agent, only: str | None) -> dict[str, Any]:
    found = agent.ledger()
    deals = []
    for entry in found.entries:
        if only in (None, entry.deal.name):
            deals.append(deal_document(agent, entry))
            if only is not None:
                deals[-1]["answers"] = _answers(agent, only)
    return {
        "value": agent.settings.value,
        **lifetime_document(found.lifetime_cap, samples=found.samples_max or EXAMPLE_SAMPLES),
        "spent": float(found.spent),
        **found.loss.document("spent_"),
        "reserved": float(found.reserved),
        "left": agent.left,
        "earned_micro": found.earned_micro,
        "delta": DELTA,
        "deals": deals,
        "elsewhere": [
            {
                "task": account.terms.task,
                "budget": account.terms.rho,
                "spent": float(account.spent),
                "answered": account.charged,
                "rounds": account.terms.rounds,
                "samples": account.terms.samples,
                **PrivacyLoss.of(float(account.spent), samples=account.terms.samples).document(
                    "spent_"
                ),
            }
            for account in found.elsewhere
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
            for each in found.refusals
            if only in (None, each.deal)
        ],
    }


def _answers(agent: Agent, name: str) -> list[dict[str, Any]]:
    """Return every answer that may have left, with its receipt."""
    deal = agent.deals.deal(name)
    assert deal is not None
    return [
        {"round": each.round, "hash": each.hash, "receipt": each.receipt}
        for each in agent.deals.answered(deal)
    ]


def _print_ledger(ledger: dict[str, Any], *, one: bool) -> None:
    if ledger["deals"]:
        print_table(
            (*_TASK_HEADS, "answered", "spent rho", *EPSILON_HEADS, "earned"),
            (
                (
                    deal["task"],
                    deal["buyer"],
                    deal["state"],
                    f"{deal['budget']:.6f}",
                    f"{deal['receipts']}/{deal['rounds']}",
                    f"{deal['spent']:.6f}",
                    epsilon_text(deal["spent_epsilon_one_record"]),
                    epsilon_text(deal["spent_epsilon_whole_owner"]),
                    credits_text(deal["earned_micro"]),
                )
                for deal in ledger["deals"]
            ),
            left="buyer,state",
        )
        print_line("")
    if one:
        _print_answers(ledger["deals"][0])
    if ledger["elsewhere"]:
        print_table(
            ("outside of markets", "sold rho", "answered", "spent rho", *EPSILON_HEADS),
            (
                (
                    each["task"],
                    f"{each['budget']:.6f}",
                    f"{each['answered']}/{each['rounds']}",
                    f"{each['spent']:.6f}",
                    epsilon_text(each["spent_epsilon_one_record"]),
                    epsilon_text(each["spent_epsilon_whole_owner"]),
                )
                for each in ledger["elsewhere"]
            ),
        )
        print_line("")
    share = ledger["spent"] / ledger["lifetime_cap"]
    print_facts(
        {
            "earned": f"{credits_text(ledger['earned_micro'])} credits, by the receipts here",
            "spent": f"{ledger['spent']:.6g} rho, {share:.1%} of the cap's rho; "
            f"{losses_text(ledger, 'spent_')}",
            "promised": f"{ledger['reserved']:.6g} rho, not spent yet",
            "left": f"{ledger['left']:.6g} rho of the lifetime cap",
            "lifetime cap": lifetime_text(ledger),
            **NOTES,
            "refused": f"{len(ledger['refusals'])} times" if ledger["refusals"] else "nothing",
        }
    )
    if ledger["refusals"]:
        print_line("")
        print_table(
            ("at (UTC)", "task", "round", "reason", "why"),
            (
                (
                    moment(each["at_ms"]),
                    each["task"],
                    "-" if each["round"] is None else each["round"],
                    each["reason"],
                    each["sentence"],
                )
                for each in ledger["refusals"]
            ),
            left="reason,why",
        )


def _print_answers(deal: dict[str, Any]) -> None:
    if not deal["answers"]:
        return
    print_table(
        ("round", "answer", "earned so far", "signed by the market"),
        (
            (
                each["round"],
                f"{each['hash'][:12]}...",
                credits_text(each["receipt"]["receipt"]["earned_micro"])
                if each["receipt"]
                else "no receipt",
                f"{each['receipt']['market_signature'][:12]}..." if each["receipt"] else "-",
            )
            for each in deal["answers"]
        ),
    )
    print_line("")


def verify(task: str, /, *, device: DeviceOptions = THE_DEVICE, as_json: Json = False) -> None:
    """Compare the device's own records of a task with the market's, and recompute both.

    What the device holds (card, terms, answers, receipts, earnings) must be what the market says,
    and the market's log, totals, payments and your own line must follow from each other. Shows
    also when the folder is an old copy, which has forgotten spend: the market has later receipts.
    Ends with exit code 15 if something differs.

    Examples:

        fedbourse device verify latest

        fedbourse device verify 018f0c3e9a5b7d2c4e6f8a1b --json

    Parameters
    ----------
    task
        The task's id, or latest, the one that was joined last.
    as_json
        Print one JSON document.
    """
    from fedbourse.market.verify import verify_task
    from fedbourse.wire import bounds
    from fedbourse.wire.connection import Connection

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
    show_checks(deal.task, checks, as_json=as_json)
