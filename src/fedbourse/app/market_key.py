"""The market's key in its folder, and its rotation.

A new key is on disk before the database records it, and replaces the old one after that; a process
that is killed in between finds both, and goes on.
"""

from __future__ import annotations

import os
from pathlib import Path

from fedbourse.app.machine import only_server, sync_folder
from fedbourse.errors import CannotWrite, InvalidFile
from fedbourse.market.commands.key_rotation import current_key, rotate_key
from fedbourse.market.ports import Store
from fedbourse.market.service import Market
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.protocol.rotation import Rotation
from fedbourse.storage import SqlStore

KEY_FILE = "market.key"
_NEW = "market.key.new"


def market_key(folder: Path, store: Store) -> SigningKey:
    """Return the market's key; make one where the market is new."""
    path = folder / KEY_FILE
    with store.read() as tx:
        is_new, expected = not tx.tokens(limit=1), current_key(tx.rotations())
    if not path.exists():
        if not is_new:
            # Devices have pinned the key: another one would lock them all out.
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
        return _replace_key(folder, key)
    raise InvalidFile(
        f"{path} holds the key {key.public}, and the market has signed with {expected} since; put "
        "that one there"
    )


def rotate_market_key(folder: Path, database_url: str) -> Rotation:
    """Make another key for a market that is not being served, signed over by the old one."""
    if not (folder / KEY_FILE).exists():
        raise InvalidFile(f"{folder} holds no {KEY_FILE}: there is no key to replace")
    with only_server(folder), SqlStore(database_url) as store:
        old, new, draft = market_key(folder, store), SigningKey.generate(), folder / _NEW
        # One may be left of a rotation that was killed before the database recorded it.
        draft.unlink(missing_ok=True)
        new.save(draft)
        with store.begin() as tx:
            rotation = rotate_key(Market(old), tx, new)
        _replace_key(folder, old)
    return rotation


def _replace_key(folder: Path, old: SigningKey) -> SigningKey:
    """Put the new key in place; the old one stays beside it, under its id."""
    path, archive = folder / KEY_FILE, folder / f"market-{key_id(old.public)}.key"
    try:
        if not archive.exists():
            os.link(path, archive)
        (folder / _NEW).replace(path)
        sync_folder(folder)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None
    return SigningKey.load(path)
