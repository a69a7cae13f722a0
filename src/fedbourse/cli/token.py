"""``fedbourse token ...``: who may call the market, for its operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from cyclopts import App, Parameter

from fedbourse.cli.server_options import (
    NO_OPTIONS,
    OUTPUT,
    Json,
    ServerOptions,
    check_writable,
    moment,
    pages,
    party_named,
    print_facts,
    print_json,
    print_line,
    print_table,
    write_bytes,
)
from fedbourse.errors import InvalidInput
from fedbourse.units import number, whole_number

ScopeName = Literal["operator", "buyer", "owner", "auditor"]
Out = Annotated[Path | None, Parameter(group=OUTPUT)]

token_app = App(name="token", help="Say who may call the market (for its operator).")


@token_app.command
def create(
    *,
    party: str,
    scope: Annotated[list[ScopeName], Parameter(negative=(), consume_multiple=False)],
    days: float | None = None,
    out: Out = None,
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """Make a token, which is shown this once.

    Examples:

        fedbourse token create --party buyer:acme --scope buyer --out acme.token

        fedbourse token create --party auditor:kay --scope auditor --days 30 --json

    Parameters
    ----------
    party
        Whose it is: buyer:NAME, owner:NAME, auditor:NAME or operator:NAME. This is also the name
        of its account.
    scope
        What it may do: as a buyer, an owner, an auditor (reads everything) or an operator. May be
        given several times.
    days
        After how many days it ends; without it, when it is revoked.
    out
        Write the token to this new file, which only you can read, instead of showing it.
    as_json
        Print one JSON document.
    """
    body: dict[str, Any] = {"party": party_named(party), "scopes": sorted(set(scope))}
    if days is not None:
        body["days"] = whole_number("days", days, at_least=1)
    made = _made(server, "/v1/tokens", body, out)
    if as_json:
        print_json(made)
        return
    print_facts(
        {
            "token": made.get("token", f"in {out}"),
            "id": made["id"],
            "party": made["party"],
            "scopes": ", ".join(made["scopes"]),
            "ends": _end(made),
        }
    )


@token_app.command
def enrol(
    *,
    owner: str,
    hours: float | None = None,
    out: Out = None,
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """Make a one-time token, with which one device of an owner may enrol.

    Examples:

        fedbourse token enrol --owner owner:ann --out ann.enrolment

        fedbourse token enrol --owner owner:ann --hours 2 --json

    Parameters
    ----------
    owner
        Whose device it will be: owner:NAME.
    hours
        For how many hours it can be used.
    out
        Write the token to this new file, which only you can read, instead of showing it.
    as_json
        Print one JSON document.
    """
    body: dict[str, Any] = {"owner": party_named(owner, kind="owner")}
    if hours is not None:
        body["hours"] = number("hours", hours, above=0)
    made = _made(server, "/v1/enrolment-tokens", body, out)
    if as_json:
        print_json(made)
        return
    print_facts(
        {
            "token": made.get("token", f"in {out}"),
            "owner": made["owner"],
            "ends": _end(made),
        }
    )


@token_app.command(name="list")
def list_tokens(*, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """List the tokens; the market itself knows their hashes only.

    For example:

        fedbourse token list

        fedbourse token list --json

    Parameters
    ----------
    as_json
        Print one JSON document.
    """
    with server.connect() as connection:
        tokens = list(pages(connection, "/v1/tokens", "tokens"))
    if as_json:
        print_json({"tokens": tokens})
        return
    print_table(
        ("id", "party", "scopes", "made (UTC)", "ends (UTC)"),
        (
            (
                token["id"],
                token["party"],
                ", ".join(token["scopes"]),
                moment(token["created_ms"], seconds=False),
                _end(token),
            )
            for token in tokens
        ),
        left="party,scopes",
    )


@token_app.command
def revoke(
    token: str,
    /,
    *,
    last: Annotated[bool, Parameter(negative=())] = False,
    server: ServerOptions = NO_OPTIONS,
    as_json: Json = False,
) -> None:
    """End a token at once.

    Examples:

        fedbourse token revoke 01a1e294b2785315ece3

    Parameters
    ----------
    token
        The token's id, as `fedbourse token list` shows it; never the token itself.
    last
        End it also if it is the last one of an operator: nobody can make or revoke a token then.
    as_json
        Print one JSON document.
    """
    if token.startswith(("fbt_", "fbe_")) or not token:
        found = "a token itself" if token else "none"  # it must not get into any log
        raise InvalidInput(
            f"TOKEN must be a token's id, as fedbourse token list shows it; found {found}"
        )
    with server.connect() as connection:
        ended = connection.delete(
            f"/v1/tokens/{quote(token, safe='')}", {"last": "true"} if last else None
        )
    if as_json:
        print_json(ended)
    else:
        print_line(f"token {ended['id']} is revoked since {moment(ended['revoked_ms'])} UTC")


def _made(server: ServerOptions, path: str, body: object, out: Path | None) -> dict[str, Any]:
    """Ask for a token; it goes to the file, where there is one, and nowhere else."""
    if out is not None:
        check_writable(out, new=True)
    with server.connect() as connection:
        made: dict[str, Any] = connection.post(path, body)
    if out is not None:
        write_bytes(out, f"{made.pop('token')}\n".encode(), private=True)
        made["file"] = str(out)
    return made


def _end(token: dict[str, Any]) -> str:
    if token.get("revoked_ms") is not None:
        return "revoked"
    expires_ms = token["expires_ms"]
    return "-" if expires_ms is None else moment(expires_ms, seconds=False)
