"""``fedbourse account ...`` and ``payout ...``: money in, money out, and what was moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from fedbourse.cli.output import PEOPLE, Output, moment, table
from fedbourse.cli.server_options import (
    NO_OPTIONS,
    ServerOptions,
    account_path,
    amount_micro,
    own_party,
    pages,
    payout_path,
)
from fedbourse.units import amount_text, credits_text

if TYPE_CHECKING:
    from rich.table import Table

_ACCOUNT_HELP = "Whose account, such as buyer:acme, or escrow:TASK; by default your own."
Account = Annotated[str | None, Parameter(help=_ACCOUNT_HELP)]

account_app = App(name="account", help="Put money in, take it out, and see what was moved.")


@account_app.command
def deposit(
    reference: str, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE
) -> None:
    """Credit a payment that the market's operator has received, once.

    For example:

        fedbourse account deposit bank-0017

        fedbourse account deposit bank-0017 --token-file acme.token --json

    Parameters
    ----------
    reference
        What was written on the payment.
    """
    output.show(server.post("/v1/deposits", {"reference": reference}), _deposited)


def _deposited(done: dict[str, Any]) -> str:
    amount = f"{amount_text(done['amount_micro'])} for {done['party']}"
    if done["claimed_before"]:
        amount += f" were claimed before, on {moment(done['claimed_ms'])} UTC; nothing was added"
    return f"{done['reference']}: {amount}; the account holds {amount_text(done['balance_micro'])}"


@account_app.command
def withdraw(
    credits: str,
    /,
    *,
    to: Annotated[str, Parameter(allow_leading_hyphen=True)],
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Take money out of your account.

    For example:

        fedbourse account withdraw 12.5 --to "IBAN DE02 1203 0000 0000 2020 51"

    Parameters
    ----------
    credits
        How much, in credits with at most six decimals.
    to
        Where the money goes, in words that the operator understands.
    """
    body = {"amount_micro": amount_micro(credits), "destination": to}
    output.show(
        server.post("/v1/withdrawals", body),
        lambda done: (
            f"pay-out {done['id']}: {amount_text(done['amount_micro'])} are on their way, "
            f"and {done['party']} has {credits_text(done['balance_micro'])} left; see how far it "
            "is with fedbourse account payouts"
        ),
    )


@account_app.command
def balance(
    party: Account = None, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE
) -> None:
    """Say how much an account holds.

    For example:

        fedbourse account balance

        fedbourse account balance buyer:acme --json
    """
    with server.connect() as connection:
        held = connection.get(account_path(party or own_party(connection)))
    output.show(held, _balance)


def _balance(held: dict[str, Any]) -> dict[str, str]:
    facts = {held["party"]: amount_text(held["balance_micro"])}
    if held["leaving_micro"]:
        facts["on its way out"] = amount_text(held["leaving_micro"])
    return facts


@account_app.command
def statement(
    party: Account = None, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE
) -> None:
    """List every transfer from and to an account, in the order in which they were made.

    For example:

        fedbourse account statement

        fedbourse account statement escrow:018f0c3e9a5b7d2c4e6f8a1b --json
    """
    with server.connect() as connection:
        account = party or own_party(connection)
        entries = list(pages(connection, f"{account_path(account)}/statement", "entries"))
    output.show({"party": account, "entries": entries}, _statement)


def _statement(document: dict[str, Any]) -> Table:
    rows, balance = [], 0
    for entry in document["entries"]:
        comes = entry["credit"] == document["party"]
        amount = entry["amount"] if comes else -entry["amount"]
        balance += amount
        other = entry["debit"] if comes else entry["credit"]
        signed = f"{'+' if comes else ''}{credits_text(amount)}"
        rows.append(entry | {"other": other, "credits": signed, "balance": balance})
    return table(
        rows,
        {
            "time (UTC)": "{at_ms:minute}",
            "from or to": "{other}",
            "credits": "{credits}",
            "balance": "{balance:credits}",
            "<what for": "{memo}",
        },
    )


@account_app.command
def payouts(
    party: str | None = None, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE
) -> None:
    """List an account's pay-outs and where each of them is, newest first.

    For example:

        fedbourse account payouts

        fedbourse account payouts owner:ann --token-file operator.token --json

    Parameters
    ----------
    party
        Whose, such as owner:ann; by default your own.
    """
    with server.connect() as connection:
        account = party or own_party(connection)
        path = f"{account_path(account)}/payouts"
        listed = list(pages(connection, path, "payouts", cursor="before"))
    output.show({"party": account, "payouts": listed}, payouts_table)


def payouts_table(document: dict[str, Any]) -> Table:
    """Return pay-outs with their states."""
    return table(
        document["payouts"],
        {
            "requested (UTC)": "{at_ms:minute}",
            "pay-out": "{id}",
            "whose": "{party}",
            "credits": "{amount_micro:credits}",
            "state": "{state}",
            "since (UTC)": "{changed_ms:minute}",
            "<where to, why": lambda payout: (
                payout["destination"] + (f" ({payout['note']})" if payout["note"] else "")
            ),
        },
    )


PayoutId = Annotated[str, Parameter(help="The pay-out's id.")]

payout_app = App(name="payout", help="See which pay-outs are on their way, and say how they ended.")


@payout_app.command(name="list")
def list_payouts(*, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE) -> None:
    """List the pay-outs that are neither confirmed nor returned, oldest first.

    For example:

        fedbourse payout list --token-file market/operator.token
    """
    output.show({"payouts": server.listed("/v1/payouts", "payouts")}, payouts_table)


@payout_app.command
def confirm(
    payout: PayoutId, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE
) -> None:
    """Say that a pay-out that was sent has arrived.

    For example:

        fedbourse payout confirm 01a3185c50005b4a3f2e9e8b
    """
    done = server.post(f"{payout_path(payout)}/confirm", {})
    output.show(done, lambda done: _amount(done, f"of {done['party']} have arrived"))


@payout_app.command(name="return")
def give_back(
    payout: PayoutId,
    /,
    *,
    reason: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Give a pay-out up, and move its money back to the account that it came from.

    One that was sent is yours to return only when its money has come back to you.

    For example:

        fedbourse payout return 01a3185c50005b4a3f2e9e8b --reason "the bank does not know the IBAN"

    Parameters
    ----------
    reason
        Why, in up to 200 characters; its party reads it.
    """
    done = server.post(f"{payout_path(payout)}/return", {"reason": reason})
    output.show(done, lambda done: _amount(done, f"are back with {done['party']}"))


def _amount(payout: dict[str, Any], what: str) -> str:
    return f"pay-out {payout['id']}: {amount_text(payout['amount_micro'])} {what}"
