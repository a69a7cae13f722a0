"""``fedbourse demo-network``: a whole trade over the network, on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.output import OUTPUT, PEOPLE, Blocks, Output, epsilon_columns, print_note, table
from fedbourse.privacy.loss import NOTES
from fedbourse.units import credits_text


def demo_network(
    *,
    out: Annotated[Path, Parameter(group=OUTPUT)] = Path("demo-network"),
    output: Output = PEOPLE,
) -> None:
    """Carry out a trade between real processes: a market, five devices and a buyer.

    They talk over this machine's own network only, and train on real flights. One device is killed
    in mid-training and started again, one is killed and never comes back. In the end the books are
    recomputed by an auditor and by every device that lives. It takes about a minute.

    For example:

        fedbourse demo-network

        fedbourse demo-network --out build/network --json

    Parameters
    ----------
    out
        A new folder for all that they keep: the market, each device, and the log of each.
    """
    from fedbourse.demos.network import network_demo

    started = time.monotonic()

    def on_step(sentence: str) -> None:
        print_note(f"{time.monotonic() - started:5.1f} s  {sentence}")

    output.show(network_demo(out, on_step=on_step), lambda facts: _in_words(facts, out))


def _in_words(facts: dict[str, Any], out: Path) -> Blocks:
    yield table(
        facts["devices"],
        {
            "<device": "{device}",
            "value": "{value:g}",
            "budget rho": "{budget:.6f}",
            **epsilon_columns(),
            "promised": "{payment_micro:credits}",
            "earned": "{earned_micro:credits}",
            "delivered": lambda device: f"{device['delivered']}/{facts['rounds']}",
            "<state": _state,
        },
    )
    money, verified = facts["money_micro"], facts["verified"]
    yield ""
    yield {
        "task": f"{facts['task']}, {facts['state']}",
        "accuracy": f"{facts['accuracy']:.1%} on {facts['validation_records']} records of the "
        f"buyer's own; {facts['chance']:.1%} by guessing",
        "money": f"held {credits_text(money['held'])} = earned {credits_text(money['earned'])} "
        f"+ to the fund {credits_text(money['fund'])} + refunded "
        f"{credits_text(money['refunded'])} + in escrow {credits_text(money['escrow'])}",
        "verified": f"by the auditor: {verified['task']} checks of the task and "
        f"{verified['books']} of the books are right; by {len(verified['devices'])} devices: "
        f"all of theirs",
        "epsilon": f"at delta 1e-5; the whole owner is {NOTES['whole owner']}",
        "folder": out,
        "seconds": facts["seconds"],
    }


def _state(device: dict[str, Any]) -> str:
    if not device["returned"]:
        return "killed, never came back"
    return f"{device['state']}, killed and came back" if device["killed"] else device["state"]
