"""``fedbourse serve``: the market as a service."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.server_options import plain, print_json
from fedbourse.units import micro_credits, whole_number

if TYPE_CHECKING:
    from typing import Any

    from fedbourse.bootstrap.demo_market import DemoReady
    from fedbourse.bootstrap.market import Ready

_MARKET, _NETWORK, _OUTPUT = (
    Group.create_ordered(name) for name in ("Market", "Network", "Output")
)


def serve(
    *,
    folder: Annotated[Path | None, Parameter(group=_MARKET)] = None,
    demo: Annotated[bool, Parameter(negative=(), group=_MARKET)] = False,
    database: Annotated[str | None, Parameter(group=_MARKET, env_var="FEDBOURSE_DATABASE")] = None,
    new_operator_token: Annotated[bool, Parameter(negative=(), group=_MARKET)] = False,
    fund_pays_to: Annotated[
        str | None, Parameter(group=_MARKET, env_var="FEDBOURSE_FUND_PAYS_TO")
    ] = None,
    least_withdrawal: Annotated[
        str, Parameter(group=_MARKET, env_var="FEDBOURSE_LEAST_WITHDRAWAL")
    ] = "0.01",
    payouts_per_day: Annotated[
        Whole, Parameter(group=_MARKET, env_var="FEDBOURSE_PAYOUTS_PER_DAY")
    ] = 10,
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
    access_log: Annotated[bool, Parameter(negative=(), group=_OUTPUT)] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), group=_OUTPUT)] = False,
) -> None:
    """Serve a market until it is stopped (Ctrl-C, or SIGTERM).

    Everything it keeps lies in one folder: its key, its database (one SQLite file), the operator's
    first token, and the payments that came in and are to go out. Once it answers, it prints one
    line: its address, its public key, and where the operator's token lies. The address is also that
    of the dashboard.

    Examples:

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
        Fill the market with made-up tasks, people and play money, to look at on this machine: a
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
    least_withdrawal
        The smallest withdrawal, in credits: each costs you a payment.
    payouts_per_day
        How often each account may withdraw within 24 hours.
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
    as_json
        Print the line as a JSON document.
    """
    from fedbourse.bootstrap.market import MarketSettings, serve_market

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
        least_withdrawal_micro=micro_credits(least_withdrawal),
        payouts_per_day=whole_number("payouts_per_day", payouts_per_day, at_least=1),
        demo=demo,
    )
    if fund_pays_to is not None:
        settings = replace(settings, fund_pays_to=fund_pays_to)
    if demo:
        from fedbourse.bootstrap.demo_market import serve_demo

        said = _say_demo_json if as_json else _say_demo
        serve_demo(settings, on_ready=said, on_step=_say_step)
        return
    serve_market(settings, on_ready=_say_json if as_json else _say)


def _say(ready: Ready) -> None:
    token = ready.operator_token
    said = f"the operator's token is in {token}" if token else "an operator holds a token already"
    line = f"fedbourse market at {ready.url}, public key {ready.public_key}; {said}"
    print(plain(line), flush=True)


def _say_json(ready: Ready) -> None:
    print_json(_document(ready))


def _document(ready: Ready) -> dict[str, Any]:
    return {
        "url": ready.url,
        "public_key": ready.public_key,
        "folder": str(ready.folder),
        "operator_token_file": ready.operator_token and str(ready.operator_token),
        "pid": os.getpid(),
    }


def _say_demo(ready: DemoReady) -> None:
    from fedbourse.bootstrap.demo_market import PARTIES

    url, folder = ready.market.url, ready.market.folder
    print(plain(f"fedbourse demonstration at {url} (open it in a browser), in {folder}"))
    print("All in it is made up: people, data, tasks. Its money is play money.")
    print(f"To sign in at {url}/sign-in, as")
    for kind, token in ready.tokens.items():
        print(plain(f"  {kind:9} {PARTIES[kind]:14} {token}"))
    print(plain(f"Records of the buyer's own, to judge a model by on its page: {ready.records}"))
    print("Ctrl-C ends it; the same command goes on where it was.", flush=True)


def _say_demo_json(ready: DemoReady) -> None:
    made = {"demo": True, "tokens": ready.tokens, "records": str(ready.records)}
    print_json(_document(ready.market) | made)


def _say_step(sentence: str) -> None:
    print(plain(f"- {sentence}"), file=sys.stderr, flush=True)
