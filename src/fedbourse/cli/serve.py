"""``fedbourse serve``: the market as a service."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import OUTPUT, PEOPLE, Output, print_note
from fedbourse.units import micro_credits, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.app.server import Ready
    from fedbourse.demos.market import DemoReady

_MARKET, _NETWORK = (Group.create_ordered(name) for name in ("Market", "Network"))


def serve(
    *,
    folder: Annotated[Path | None, Parameter(group=_MARKET)] = None,
    demo: Annotated[bool, Parameter(negative=(), group=_MARKET)] = False,
    database: Annotated[str | None, Parameter(group=_MARKET, env_var="FEDBOURSE_DATABASE")] = None,
    new_operator_token: Annotated[bool, Parameter(negative=(), group=_MARKET)] = False,
    fund_pays_to: Annotated[
        str | None, Parameter(group=_MARKET, env_var="FEDBOURSE_FUND_PAYS_TO")
    ] = None,
    min_withdrawal: Annotated[
        str, Parameter(group=_MARKET, env_var="FEDBOURSE_MIN_WITHDRAWAL")
    ] = "0.01",
    payouts_per_day: Annotated[
        Whole, Parameter(group=_MARKET, env_var="FEDBOURSE_PAYOUTS_PER_DAY")
    ] = 10,
    payments: Annotated[str, Parameter(group=_MARKET, env_var="FEDBOURSE_PAYMENTS")] = "manual",
    host: Annotated[str, Parameter(group=_NETWORK)] = "127.0.0.1",
    port: Annotated[Whole, Parameter(group=_NETWORK)] = 8417,
    workers: Annotated[Whole, Parameter(group=_NETWORK)] = 1,
    tls_cert: Annotated[Path | None, Parameter(group=_NETWORK)] = None,
    tls_key: Annotated[Path | None, Parameter(group=_NETWORK)] = None,
    behind_proxy: Annotated[bool, Parameter(negative=(), group=_NETWORK)] = False,
    proxies: Annotated[str, Parameter(group=_NETWORK)] = "127.0.0.1",
    public_host: Annotated[
        list[str] | None, Parameter(group=_NETWORK, negative=(), consume_multiple=False)
    ] = None,
    access_log: Annotated[bool, Parameter(negative=(), group=OUTPUT)] = False,
    output: Output = PEOPLE,
) -> None:
    """Serve a market until it is stopped (Ctrl-C, or SIGTERM).

    Everything it keeps lies in one folder: its key, its database (one SQLite file), the operator's
    first token, and the payments that came in and are to go out. Once it responds, it prints one
    line: its address, its public key, and where the operator's token lies. The address is also that
    of the dashboard.

    For example:

        fedbourse serve

        fedbourse serve --demo

        fedbourse serve --host 0.0.0.0 --tls-cert market.pem --tls-key market-key.pem

        FEDBOURSE_DATABASE=postgresql://market@db/market fedbourse serve --workers 4

    Parameters
    ----------
    folder
        The market's folder; it is made if need be, for its user alone. Without it: market, and
        with --demo market-demo.
    demo
        Fill the market with simulated tasks, people and play money, to look at on this machine: a
        finished task, one in training and an open one, within a minute.
    database
        sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME; by default an SQLite file in
        the folder. A password belongs into FEDBOURSE_DATABASE: everybody on a machine can read
        arguments.
    new_operator_token
        Make another operator's token, in the same file: for when the last one was lost. Revoke
        the lost one.
    fund_pays_to
        Whom the fund is paid out to, in words: the fund takes the pay of rounds that devices did
        not deliver. Everybody reads it on the market's page, and each task pins it when it opens.
        Without it the money stays in the fund, out of which no command takes any.
    min_withdrawal
        The smallest withdrawal, in credits: each costs you a payment.
    payouts_per_day
        How often each account may withdraw within 24 hours.
    payments
        The payment adapter that brings money in and out: manual, two files that you read and
        write, or one that an installed package adds.
    host
        The address to listen on. One that can be reached from elsewhere needs TLS, or a proxy.
    port
        The port to listen on; 0 picks a free one.
    workers
        How many processes serve; more than one needs PostgreSQL.
    tls_cert
        The certificate, with those that lead to its authority, in PEM.
    tls_key
        The certificate's key, in PEM, without a passphrase.
    behind_proxy
        A proxy in front of the market speaks TLS, and says where requests come from.
    proxies
        The proxy's addresses, with commas between them: nobody else is believed.
    public_host
        HOST or HOST:PORT as devices call the market; may be given several times. Requests signed
        for another market are refused.
    access_log
        Log every request, on standard error.
    """
    from fedbourse.app.server import MarketSettings, serve_market

    settings = MarketSettings(
        folder=folder or Path("market-demo" if demo else "market"),
        database=database,
        host=host,
        port=whole_number("port", port, at_least=0),
        tls_cert=tls_cert,
        tls_key=tls_key,
        workers=whole_number("workers", workers, at_least=1),
        behind_proxy=behind_proxy,
        proxies=proxies,
        public_hosts=tuple(public_host or ()),
        access_log=access_log,
        new_operator_token=new_operator_token,
        min_withdrawal_micro=micro_credits(min_withdrawal),
        payouts_per_day=whole_number("payouts_per_day", payouts_per_day, at_least=1),
        payments=payments,
        demo=demo,
    )
    if fund_pays_to is not None:
        settings = replace(settings, fund_pays_to=fund_pays_to)
    if demo:
        from fedbourse.demos.market import serve_demo

        serve_demo(
            settings,
            on_ready=lambda ready: output.show(_demo_document(ready), _demo_lines),
            on_step=lambda sentence: print_note(f"- {sentence}"),
        )
        return
    serve_market(settings, on_ready=lambda ready: output.show(_document(ready), _line))


def _document(ready: Ready) -> dict[str, Any]:
    return {
        "url": ready.url,
        "public_key": ready.public_key,
        "folder": str(ready.folder),
        "operator_token_file": ready.operator_token and str(ready.operator_token),
        "pid": os.getpid(),
    }


def _line(market: dict[str, Any]) -> str:
    file = market["operator_token_file"]
    token = f"the operator's token is in {file}" if file else "an operator holds a token already"
    return f"fedbourse market at {market['url']}, public key {market['public_key']}; {token}"


def _demo_document(ready: DemoReady) -> dict[str, Any]:
    made = {"demo": True, "tokens": ready.tokens, "records": str(ready.records)}
    return _document(ready.market) | made


def _demo_lines(market: dict[str, Any]) -> Iterator[str]:
    from fedbourse.demos.market import PARTIES

    url, folder = market["url"], market["folder"]
    yield f"fedbourse demonstration at {url} (open it in a browser), in {folder}"
    yield "All in it is made up: people, data, tasks. Its money is play money."
    yield f"To sign in at {url}/sign-in, as"
    for kind, token in market["tokens"].items():
        yield f"  {kind:9} {PARTIES[kind]:14} {token}"
    yield f"Records of the buyer's own, to evaluate a model on its page: {market['records']}"
    yield "Ctrl-C ends it; the same command goes on where it was."
