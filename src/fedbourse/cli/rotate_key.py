"""``fedbourse rotate-key``: another key for a market, which the old one vouches for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fedbourse.cli.server_options import Json, moment, print_facts, print_json


def rotate_key(
    *,
    folder: Path = Path("market"),
    database: Annotated[str | None, Parameter(env_var="FEDBOURSE_DATABASE")] = None,
    as_json: Json = False,
) -> None:
    """Replace the market's key by a new one (for its operator; the market must be stopped).

    The old key signs the statement that the new one takes its place, and so does the new one. The
    market publishes it, and devices that know the old key follow by themselves. Deals go on; terms
    and receipts that were signed with the old key still count. Sessions of browsers end.

    The old key is kept in the folder under another name: it is needed only to go back to a backup
    from before.

    Examples:

        fedbourse rotate-key

        fedbourse rotate-key --folder /srv/market --json

    Parameters
    ----------
    folder
        The market's folder.
    database
        As for serve: by default the SQLite file in the folder.
    as_json
        Print one JSON document.
    """
    from fedbourse.bootstrap.machine import MarketSettings
    from fedbourse.bootstrap.market_key import rotate_market_key

    settings = MarketSettings(folder=folder, database=database)
    rotation = rotate_market_key(settings.folder, settings.database_url)
    if as_json:
        print_json(asdict(rotation))
        return
    print_facts(
        {"old key": rotation.old, "new key": rotation.new, "from": f"{moment(rotation.at_ms)} UTC"}
    )
