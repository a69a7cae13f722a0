"""``fedbourse rotate-key``: another key for a market, which the old one vouches for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fedbourse.cli.output import PEOPLE, Output, moment


def rotate_key(
    *,
    folder: Path = Path("market"),
    database: Annotated[str | None, Parameter(env_var="FEDBOURSE_DATABASE")] = None,
    output: Output = PEOPLE,
) -> None:
    """Replace the market's key by a new one (for its operator; the market must be stopped).

    The old key signs the statement that the new one takes its place, and so does the new one. The
    market publishes it, and devices that know the old key follow by themselves. Deals go on; terms
    and receipts that were signed with the old key still count. Sessions of browsers end.

    The old key is kept in the folder under another name: it is needed only to go back to a backup
    from before.

    For example:

        fedbourse rotate-key

        fedbourse rotate-key --folder /srv/market --json

    Parameters
    ----------
    folder
        The market's folder.
    database
        As for serve: by default the SQLite file in the folder.
    """
    from fedbourse.app.configuration import MarketSettings
    from fedbourse.app.market_key import rotate_market_key

    settings = MarketSettings(folder=folder, database=database)
    rotation = rotate_market_key(settings.folder, settings.database_url)
    output.show(
        asdict(rotation),
        lambda keys: {
            "old key": keys["old"],
            "new key": keys["new"],
            "from": f"{moment(keys['at_ms'])} UTC",
        },
    )
