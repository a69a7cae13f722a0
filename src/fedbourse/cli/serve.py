"""``fedbourse serve``: the market as a service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from fedbourse.cli.server_options import plain, print_json
from fedbourse.units import whole_number

if TYPE_CHECKING:
    from fedbourse.bootstrap.market import Ready

_MARKET, _NETWORK, _OUTPUT = (
    Group.create_ordered(name) for name in ("Market", "Network", "Output")
)


def serve(
    *,
    folder: Annotated[Path, Parameter(group=_MARKET)] = Path("market"),
    database: Annotated[str | None, Parameter(group=_MARKET, env_var="FEDBOURSE_DATABASE")] = None,
    new_operator_token: Annotated[bool, Parameter(negative=(), group=_MARKET)] = False,
    host: Annotated[str, Parameter(group=_NETWORK)] = "127.0.0.1",
    port: Annotated[float, Parameter(group=_NETWORK)] = 8417,
    workers: Annotated[float, Parameter(group=_NETWORK)] = 1,
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
    line: its address, its public key, and where the operator's token lies.

    Examples:

        fedbourse serve

        fedbourse serve --host 0.0.0.0 --tls-cert market.pem --tls-key market-key.pem

        FEDBOURSE_DATABASE=postgresql://market@db/market fedbourse serve --workers 4

    Parameters
    ----------
    folder
        The market's folder; it is made if need be, for its user alone.
    database
        sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME; by default an SQLite file in
        the folder. A password belongs into FEDBOURSE_DATABASE: everybody on a machine can read
        arguments.
    new_operator_token
        Make another operator's token, in the same file: for when the last one was lost. Revoke
        the lost one.
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
        folder=folder,
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
    )
    serve_market(settings, on_ready=_say_json if as_json else _say)


def _say(ready: Ready) -> None:
    token = ready.operator_token
    said = f"the operator's token is in {token}" if token else "an operator holds a token already"
    line = f"fedbourse market at {ready.url}, public key {ready.public_key}; {said}"
    print(plain(line), flush=True)


def _say_json(ready: Ready) -> None:
    print_json(
        {
            "url": ready.url,
            "public_key": ready.public_key,
            "folder": str(ready.folder),
            "operator_token_file": ready.operator_token and str(ready.operator_token),
            "pid": os.getpid(),
        }
    )
