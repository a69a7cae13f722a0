"""``fedbourse account ...``: money in, money out, and what was moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from fedbourse.cli.server_options import (
    NO_OPTIONS,
    Json,
    ServerOptions,
    account_path,
    amount_micro,
    moment,
    pages,
    print_facts,
    print_json,
    print_line,
    print_table,
)
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from fedbourse.wire.connection import Connection

account_app = App(name="account", help="Put money in, take it out, and see what was moved.")


@account_app.command
def deposit(
    reference: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False
) -> None:
    """Credit a payment that the market's operator has received, once.

    Examples:

        fedbourse account deposit bank-0017

        fedbourse account deposit bank-0017 --token-file acme.token --json

    Parameters
    ----------
    reference
        What was written on the payment.
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        done = connection.post("/v1/deposits", {"reference": reference})
    if as_json:
        print_json(done)
        return
    amount = f"{credits_text(done['amount_micro'])} credits for {done['party']}"
    if done["claimed_before"]:
        amount += f" were claimed before, on {moment(done['claimed_ms'])} UTC; nothing was added"
    print_line(
        f"{done['reference']}: {amount}; the account holds "
        f"{credits_text(done['balance_micro'])} credits"
    )


@account_app.command
def withdraw(
    credits: str,
    /,
    *,
    to: Annotated[str, Parameter(allow_leading_hyphen=True)],
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """Take money out of your account.

    Examples:

        fedbourse account withdraw 12.5 --to "IBAN DE02 1203 0000 0000 2020 51"

    Parameters
    ----------
    credits
        How much, in credits with at most six decimals.
    to
        Where the money goes, in words that the operator understands.
    as_json
        Print one JSON document.
    """
    body = {"amount_micro": amount_micro(credits), "destination": to}
    with server.connect() as connection:
        done = connection.post("/v1/withdrawals", body)
    if as_json:
        print_json(done)
        return
    print_line(
        f"pay-out {done['id']}: {credits_text(done['amount_micro'])} credits are on their way, "
        f"and {done['party']} has {credits_text(done['balance_micro'])} left; see how far it is "
        "with fedbourse account payouts"
    )


@account_app.command
def balance(
    party: str | None = None, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False
) -> None:
    """Say how much an account holds.

    Examples:

        fedbourse account balance

        fedbourse account balance buyer:acme --json

    Parameters
    ----------
    party
        Whose account, such as buyer:acme, or escrow:TASK; by default your own.
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        held = connection.get(account_path(party or own_party(connection)))
    if as_json:
        print_json(held)
        return
    facts = {held["party"]: f"{credits_text(held['balance_micro'])} credits"}
    if held["leaving_micro"]:
        facts["on its way out"] = f"{credits_text(held['leaving_micro'])} credits"
    print_facts(facts)


@account_app.command
def statement(
    party: str | None = None, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False
) -> None:
    """List every transfer from and to an account, in the order in which they were made.

    Examples:

        fedbourse account statement

        fedbourse account statement escrow:018f0c3e9a5b7d2c4e6f8a1b --json

    Parameters
    ----------
    party
        Whose account, such as buyer:acme, or escrow:TASK; by default your own.
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        account = party or own_party(connection)
        entries = list(pages(connection, f"{account_path(account)}/statement", "entries"))
    if as_json:
        print_json({"party": account, "entries": entries})
    else:
        _print_statement(account, entries)


@account_app.command
def payouts(
    party: str | None = None, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False
) -> None:
    """List an account's pay-outs and where each of them is, newest first.

    Examples:

        fedbourse account payouts

        fedbourse account payouts owner:ann --token-file operator.token --json

    Parameters
    ----------
    party
        Whose, such as owner:ann; by default your own.
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        account = party or own_party(connection)
        path = f"{account_path(account)}/payouts"
        found = list(pages(connection, path, "payouts", cursor="before"))
    if as_json:
        print_json({"party": account, "payouts": found})
    else:
        print_payouts(found)


def print_payouts(payouts: list[dict[str, Any]]) -> None:
    """Print pay-outs with their states."""
    print_table(
        ("requested (UTC)", "pay-out", "whose", "credits", "state", "since (UTC)", "where to, why"),
        [
            (
                moment(payout["at_ms"], seconds=False),
                payout["id"],
                payout["party"],
                credits_text(payout["amount_micro"]),
                payout["state"],
                moment(payout["changed_ms"], seconds=False),
                payout["destination"] + (f" ({payout['note']})" if payout["note"] else ""),
            )
            for payout in payouts
        ],
        left="where to, why",
    )


def own_party(connection: Connection) -> str:
    """Return who the caller is to the market."""
    return str(connection.get("/v1/me")["party"])


def _print_statement(account: str, entries: list[dict[str, Any]]) -> None:
    rows = []
    total = 0
    for entry in entries:
        comes = entry["target"] == account
        amount = entry["amount"] if comes else -entry["amount"]
        total += amount
        other = entry["source"] if comes else entry["target"]
        rows.append(
            (
                moment(entry["at_ms"], seconds=False),
                other,
                f"{'+' if comes else ''}{credits_text(amount)}",
                credits_text(total),
                entry["memo"],
            )
        )
    print_table(
        ("time (UTC)", "from or to", "credits", "balance", "what for"), rows, left="what for"
    )
