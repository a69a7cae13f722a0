"""``fedbourse demo-network``: a whole trade over the network, on this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.server_options import (
    OUTPUT,
    Json,
    plain,
    print_facts,
    print_json,
    print_line,
    print_table,
)
from fedbourse.privacy.loss import EPSILON_HEADS, NOTES, epsilon_text
from fedbourse.units import credits_text

_HEADS = ("device", "value", "budget rho")


def demo_network(
    *,
    out: Annotated[Path, Parameter(group=OUTPUT)] = Path("demo-network"),
    as_json: Json = False,
) -> None:
    """Carry out a trade between real processes: a market, five devices and a buyer.

    They talk over this machine's own network only, and train on real flights. One device is killed
    in mid-training and started again, one is killed and never comes back. In the end the books are
    recomputed by an auditor and by every device that lives. It takes about a minute.

    Examples:

        fedbourse demo-network

        fedbourse demo-network --out build/network --json

    Parameters
    ----------
    out
        A new folder for all that they keep: the market, each device, and what each said.
    as_json
        Print one JSON document.
    """
    from fedbourse.bootstrap.network_demo import network_demo

    started = time.monotonic()

    def on_step(sentence: str) -> None:
        said = f"{time.monotonic() - started:5.1f} s  {sentence}"
        print(plain(said), file=sys.stderr, flush=True)

    facts = network_demo(out, on_step=on_step)
    if as_json:
        print_json(facts)
    else:
        _print(facts, out)


def _print(facts: dict[str, Any], out: Path) -> None:
    print_table(
        (*_HEADS, *EPSILON_HEADS, "promised", "earned", "answered", "state"),
        (
            (
                device["device"],
                f"{device['value']:g}",
                f"{device['budget']:.6f}",
                epsilon_text(device["epsilon_one_record"]),
                epsilon_text(device["epsilon_whole_owner"]),
                credits_text(device["payment_micro"]),
                credits_text(device["earned_micro"]),
                f"{device['answered']}/{facts['rounds']}",
                _state(device),
            )
            for device in facts["devices"]
        ),
        left="device,state",
    )
    money, verified = facts["money_micro"], facts["verified"]
    print_line("")
    print_facts(
        {
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
    )


def _state(device: dict[str, Any]) -> str:
    if not device["returned"]:
        return "killed, never came back"
    return f"{device['state']}, killed and came back" if device["killed"] else device["state"]
