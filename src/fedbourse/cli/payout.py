"""``fedbourse payout ...``: the queue of money that is on its way out, for the operator."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from fedbourse.cli.account import print_payouts
from fedbourse.cli.server_options import (
    NO_OPTIONS,
    Json,
    ServerOptions,
    pages,
    payout_path,
    print_json,
    print_line,
)
from fedbourse.units import credits_text

payout_app = App(name="payout", help="See which pay-outs are on their way, and say how they ended.")


@payout_app.command(name="list")
def list_payouts(*, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """List the pay-outs that are neither confirmed nor returned, oldest first.

    For example:

        fedbourse payout list --token-file market/operator.token

    Parameters
    ----------
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        found = list(pages(connection, "/v1/payouts", "payouts"))
    if as_json:
        print_json({"payouts": found})
    else:
        print_payouts(found)


@payout_app.command
def confirm(payout: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """Say that a pay-out that was sent has arrived.

    Examples:

        fedbourse payout confirm 01a3185c50005b4a3f2e9e8b

    Parameters
    ----------
    payout
        The pay-out's id.
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        done = connection.post(f"{payout_path(payout)}/confirm", {})
    if as_json:
        print_json(done)
    else:
        amount = credits_text(done["amount_micro"])
        print_line(f"pay-out {done['id']}: {amount} credits of {done['party']} have arrived")


@payout_app.command(name="return")
def give_back(
    payout: str,
    /,
    *,
    reason: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """Give a pay-out up, and move its money back to the account that it came from.

    One that was sent is yours to return only when its money has come back to you.

    Examples:

        fedbourse payout return 01a3185c50005b4a3f2e9e8b --reason "the bank does not know the IBAN"

    Parameters
    ----------
    payout
        The pay-out's id.
    reason
        Why, in up to 200 characters; its party reads it.
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        done = connection.post(f"{payout_path(payout)}/return", {"reason": reason})
    if as_json:
        print_json(done)
    else:
        amount = credits_text(done["amount_micro"])
        print_line(f"pay-out {done['id']}: {amount} credits are back with {done['party']}")
