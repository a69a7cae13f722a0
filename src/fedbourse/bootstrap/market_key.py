"""The market's key in its folder: made where the market is new, and replaced by another one.

A new key is on the disk before the database says that it counts, and takes the old one's place
after that; whoever is killed in between finds both, and goes on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fedbourse.bootstrap.machine import only_server
from fedbourse.errors import CannotWrite, InvalidFile
from fedbourse.market.rotation import current_key, rotate_key
from fedbourse.market.service import Market
from fedbourse.storage import SqlStore
from fedbourse.wire.keys import SigningKey, key_id

if TYPE_CHECKING:
    from pathlib import Path

    from fedbourse.market.ports import Store
    from fedbourse.wire.rotation import Rotation

KEY_FILE = "market.key"
_NEW = "market.key.new"


def market_key(folder: Path, store: Store) -> SigningKey:
    """Return the market's key, made where the market is new."""
    path = folder / KEY_FILE
    with store.read() as unit:
        is_new, expected = not unit.tokens(limit=1), current_key(unit.rotations())
    if not path.exists():
        if not is_new:
            # Devices have pinned the key, so that another one would shut them all out.
            raise InvalidFile(
                f"the database belongs to a market whose key is not in {folder}; put its "
                f"{KEY_FILE} there, or name another database"
            )
        SigningKey.generate().save(path)
    key = SigningKey.load(path)
    if expected in (None, key.public):
        return key
    draft = folder / _NEW
    if draft.exists() and SigningKey.load(draft).public == expected:
        return _put_in_place(folder, key)
    raise InvalidFile(
        f"{path} holds the key {key.public}, and the market has signed with {expected} since; put "
        "that one there"
    )


def rotate_market_key(folder: Path, database_url: str) -> Rotation:
    """Make another key for a market that is not being served, and state it with the old one."""
    if not (folder / KEY_FILE).exists():
        raise InvalidFile(f"{folder} holds no {KEY_FILE}, so that there is no key to replace")
    with only_server(folder), SqlStore(database_url) as store:
        old, new, draft = market_key(folder, store), SigningKey.generate(), folder / _NEW
        draft.unlink(missing_ok=True)  # of one who was killed before the database knew of it
        new.save(draft)
        with store.begin() as unit:
            rotation = rotate_key(Market(old), unit, new)
        _put_in_place(folder, old)
    return rotation


def _put_in_place(folder: Path, old: SigningKey) -> SigningKey:
    """Let the new key be the market's; the old one is kept beside it, under its id."""
    path, kept = folder / KEY_FILE, folder / f"market-{key_id(old.public)}.key"
    try:
        if not kept.exists():
            os.link(path, kept)
        (folder / _NEW).replace(path)
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None
    return SigningKey.load(path)
