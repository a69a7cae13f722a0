"""Defences undone, one at a time: what ``attack.py --undo`` attacks, to see that it would notice.

``python soak/undone.py NAME serve ...`` is ``fedbourse serve ...`` without one defence, for this
machine and for a few seconds. Those of a device are undone within ``attack.py`` itself.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import urlsplit

from fedbourse.app import configuration, http_server
from fedbourse.cli import main
from fedbourse.dashboard import problem_pages
from fedbourse.device import deal, market_client
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.parties import Caller
from fedbourse.market.service import PayoutLimits, taken_by_owner
from fedbourse.market.views import View
from fedbourse.web import app
from fedbourse.web.fair_share import FairShare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Undoing:
    """A defence, the attacker that it stops, and how it is undone."""

    defence: str
    attacker: str
    patch: tuple[object, str, Any]
    """Where, under which name, and what takes its place."""
    through: str = ""
    """What must get through then; empty where honest plans must take longer instead."""

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Do without the defence while the block runs."""
        place, name, other = self.patch
        with mock.patch.object(place, name, other):
            yield


def _everybody_at_once(inner: Any, at_once: int) -> Any:
    return _fair_share(inner, 10_000)


def _path_of(address: str) -> str:
    return urlsplit(address).path


def _without_limits(settings: Any, key: Any) -> Any:
    return replace(_market(settings, key), payout_limits=PayoutLimits())


def _taken_by_anybody(market: Any, tx: Any, caller: Any, task_id: str, command: Any) -> Any:
    return _taken_by_owner(market, tx, replace(caller, device="none"), task_id, command)


def _nothing(*_: object, **__: object) -> None:
    """Check nothing."""


_fair_share, _market = FairShare, configuration.MarketSettings.market
_taken_by_owner = taken_by_owner
_require: tuple[object, str, Callable[..., None]] = (Caller, "require", _nothing)

UNDOINGS: dict[str, Undoing] = {
    "fair-share": Undoing(
        "few requests of one address at once", "buyer", (app, "FairShare", _everybody_at_once)
    ),
    "enrolment-read": Undoing(
        "enrolment tokens are looked up before anything is written", "stranger",
        (View, "check_enrolment", _nothing), "nonces beyond the plans",
    ),
    "page-problems": Undoing(
        "nonsense in a header is no fault of the market's", "stranger",
        (problem_pages, "_path_of", _path_of), "responses of 500",
    ),
    "scopes-buyer": Undoing(
        "scopes: what single owners said is for auditors", "buyer", _require, "budgets shown"
    ),
    "scopes-owner": Undoing(
        "scopes: tokens are for the operator", "owner", _require, "others' records"
    ),
    "device-signature": Undoing(
        "plans are signed by a device", "owner",
        (owner_commands, "taken_by_owner", _taken_by_anybody), "plans without the device",
    ),
    "min-withdrawal": Undoing(
        "a smallest withdrawal", "owner",
        (configuration.MarketSettings, "market", _without_limits), "tiny withdrawals",
    ),
    "head-deadline": Undoing(
        "heads of requests arrive in time", "network",
        (http_server.Patient, "_wait_for_head", _nothing), "half a request: alive after 15 s",
    ),
    "market-signature": Undoing(
        "a device acts on what the market signed", "bad market",
        (market_client.MarketClient, "_check_signed", _nothing), "reads of the data",
    ),
    "min-pay": Undoing(
        "a device signs for no less than the announced price", "bad market",
        (deal, "min_pay", lambda **_: 0), "reads of the data",
    ),
}  # fmt: skip


if __name__ == "__main__":
    with UNDOINGS[sys.argv[1]].undone():
        sys.exit(main(sys.argv[2:]))
