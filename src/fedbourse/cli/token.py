"""``fedbourse token ...``: who may call the market, for its operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from cyclopts import App, Parameter

from fedbourse.cli.files import check_writable, write_bytes
from fedbourse.cli.output import OUTPUT, PEOPLE, Column, Output, moment, table
from fedbourse.cli.server_options import NO_OPTIONS, ServerOptions, party_named
from fedbourse.errors import InvalidInput
from fedbourse.units import number, whole_number

ScopeName = Literal["operator", "buyer", "owner", "auditor"]
_OUT_HELP = "Write the token to this new file, which only you can read, instead of showing it."
Out = Annotated[Path | None, Parameter(group=OUTPUT, help=_OUT_HELP)]

token_app = App(name="token", help="Say who may call the market (for its operator).")


@token_app.command
def create(
    *,
    party: str,
    scope: Annotated[list[ScopeName], Parameter(negative=(), consume_multiple=False)],
    days: float | None = None,
    out: Out = None,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Make a token, which is shown this once.

    For example:

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
    """
    body: dict[str, Any] = {"party": party_named(party), "scopes": sorted(set(scope))}
    if days is not None:
        body["days"] = whole_number("days", days, at_least=1)
    output.show(_made(server, "/v1/tokens", body, out), _facts)


@token_app.command
def enrol(
    *,
    owner: str,
    hours: float | None = None,
    out: Out = None,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Make a one-time token, with which one device of an owner may enrol.

    For example:

        fedbourse token enrol --owner owner:ann --out ann.enrolment

        fedbourse token enrol --owner owner:ann --hours 2 --json

    Parameters
    ----------
    owner
        Whose device it will be: owner:NAME.
    hours
        For how many hours it can be used.
    """
    body: dict[str, Any] = {"owner": party_named(owner, kind="owner")}
    if hours is not None:
        body["hours"] = number("hours", hours, above=0)
    output.show(_made(server, "/v1/enrolment-tokens", body, out), _facts)


def _facts(made: dict[str, Any]) -> dict[str, object]:
    token = made["token"] if "token" in made else f"in {made['file']}"
    if "owner" in made:  # to enrol a device
        who = {"owner": made["owner"]}
    else:
        who = {"id": made["id"], "party": made["party"], "scopes": ", ".join(made["scopes"])}
    return {"token": token, **who, "ends": _end(made)}


@token_app.command(name="list")
def list_tokens(*, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE) -> None:
    """List the tokens; the market itself knows their hashes only.

    For example:

        fedbourse token list

        fedbourse token list --json
    """
    tokens = server.listed("/v1/tokens", "tokens")
    columns: dict[str, Column] = {
        "id": "{id}",
        "<party": "{party}",
        "<scopes": lambda token: ", ".join(token["scopes"]),
        "made (UTC)": "{created_ms:minute}",
        "ends (UTC)": _end,
    }
    output.show({"tokens": tokens}, lambda _: table(tokens, columns))


@token_app.command
def revoke(
    token: str,
    /,
    *,
    last: Annotated[bool, Parameter(negative=())] = False,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """End a token at once.

    For example:

        fedbourse token revoke 01a1e294b2785315ece3

    Parameters
    ----------
    token
        The token's id, as `fedbourse token list` shows it; never the token itself.
    last
        End it also if it is the last one of an operator: nobody can make or revoke a token then.
    """
    if token.startswith(("fbt_", "fbe_")) or not token:
        kind = "a token itself" if token else "none"  # it must not get into any log
        raise InvalidInput(
            f"TOKEN must be a token's id, as fedbourse token list shows it; found {kind}"
        )
    with server.connect() as connection:
        ended = connection.delete(
            f"/v1/tokens/{quote(token, safe='')}", {"last": "true"} if last else None
        )
    output.show(
        ended, lambda end: f"token {end['id']} is revoked since {moment(end['revoked_ms'])} UTC"
    )


def _made(server: ServerOptions, path: str, body: object, out: Path | None) -> dict[str, Any]:
    """Ask for a token; it goes to the file, where there is one, and nowhere else."""
    if out is not None:
        check_writable(out, new=True)
    made: dict[str, Any] = server.post(path, body)
    if out is not None:
        write_bytes(out, f"{made.pop('token')}\n".encode(), private=True)
        made["file"] = str(out)
    return made


def _end(token: dict[str, Any]) -> str:
    if token.get("revoked_ms") is not None:
        return "revoked"
    return moment(token["expires_ms"], seconds=False)
