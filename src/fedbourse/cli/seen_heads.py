"""Signed heads of logs in files, and how ``fedbourse verify`` holds them against a market."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fedbourse.cli.server_options import check_writable, read_bytes, write_bytes
from fedbourse.errors import InvalidFile, InvalidInput, NotFound, Unreachable
from fedbourse.market.heads import MARKET_LOG
from fedbourse.market.verify import SignedHead, verify_head
from fedbourse.wire.json_body import read_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from fedbourse.market.heads import Head
    from fedbourse.market.verify import Check
    from fedbourse.wire.connection import Connection

_FILE_BYTES_MAX = 16 * 2**20
_AT_ONCE = 1000
"""How many links are fetched with one request: as many as a market gives."""


class SeenHeads:
    """Heads that were kept, and those that the market shows now."""

    def __init__(self, seen: Sequence[SignedHead], stored: Sequence[SignedHead]) -> None:
        """Compare with all of these heads; ``stored`` are those that a file is to keep."""
        self._seen, self._stored = (*seen, *stored), stored
        self._present: list[SignedHead] = []

    @classmethod
    def read(cls, seen: Sequence[Path], save_seen: Path | None) -> SeenHeads:
        """Read the files that were named, and that to store in where there is one."""
        stored = [] if save_seen is None or not save_seen.exists() else _read(save_seen)
        if save_seen is not None:
            check_writable(save_seen)
        return cls([head for path in seen for head in _read(path)], stored)

    @property
    def logs(self) -> list[str]:
        """The market's log, and those of the tasks that the files know."""
        return [MARKET_LOG, *sorted({each.head.of for each in self._seen} - {MARKET_LOG})]

    def compare(
        self, connection: Connection, logs: Iterable[str], *, read: Head | None = None
    ) -> list[Check]:
        """Compare logs with the heads that were seen of them, those from all files at once.

        ``read`` is where a log ended that was just read from its beginning.
        """
        checks = []
        for of in logs:
            own = [each for each in self._seen if each.head.of == of]
            present = _present(connection, of)
            seen = [each.head for each in own]
            seen += [read] if read is not None and read.of == of else []
            first = min((head.length for head in seen), default=0)
            links = list(_links(connection, of, first=first, present=present))
            keys = {each.public_key for each in own}
            checks.append(verify_head(of, seen=seen, keys=keys, present=present, links=links))
            if present is not None:
                self._present.append(present)
        return checks

    def save(self, path: Path) -> None:
        """Store the heads that the market showed; those of other logs stay."""
        kept = {each.head.of: each for each in (*self._stored, *self._present)}
        document = {"heads": [kept[of].document for of in sorted(kept)]}
        write_bytes(path, json.dumps(document, indent=1).encode() + b"\n")


def _read(path: Path) -> list[SignedHead]:
    """Return the heads in a file, each signed with the key beside it."""
    content = read_bytes(path, at_most=_FILE_BYTES_MAX)
    try:
        document = read_json(content)
        listed = document.get("heads") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise InvalidInput("it has no list of heads")
        heads = [SignedHead.of(each) for each in listed]
    except InvalidInput as error:
        raise InvalidFile(f"{path} is not a file that --save-seen wrote: {error}") from None
    for each in heads:
        if not each.is_signed_with(each.public_key):
            raise InvalidFile(
                f"{path} holds a head of {each.head.of} that is not signed with the key beside "
                "it: the file was changed"
            )
    return heads


def _present(connection: Connection, of: str) -> SignedHead | None:
    try:
        document = connection.get(_path(of, "/head"))
    except NotFound:
        return None
    try:
        return SignedHead.of(document)
    except InvalidInput as error:
        where = connection.server_url
        raise Unreachable(f"{where} does not answer like a market: {error}") from None


def _links(
    connection: Connection, of: str, *, first: int, present: SignedHead | None
) -> Iterator[dict[str, Any]]:
    """Yield the links from the first one that was not seen, up to those that are claimed."""
    last = 0 if present is None else present.head.length
    while first < last:
        asked = {"after": first - 1, "limit": min(_AT_ONCE, last - first)}
        page = connection.get(_path(of, "" if of == MARKET_LOG else "/events"), asked)["events"]
        if not page:
            return
        yield from page
        first += len(page)


def _path(of: str, rest: str) -> str:
    return f"/v1/log{rest}" if of == MARKET_LOG else f"/v1/tasks/{of}{rest}"
