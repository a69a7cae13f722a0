"""Signed heads of logs in files, and how ``fedbourse verify`` holds them against a market."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fedbourse.cli.files import check_writable, read_bytes, write_bytes
from fedbourse.encoding.strict_json import read_json
from fedbourse.errors import InvalidFile, InvalidInput, NotFound, ProtocolError
from fedbourse.market.audit import Check, SeenHead, verify_head
from fedbourse.market.heads import MARKET_LOG, Head

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from fedbourse.protocol.connection import Connection

_FILE_BYTES_MAX = 16 * 2**20
_AT_ONCE = 1000
"""How many links are fetched with one request: as many as a market gives."""


class SeenHeads:
    """Heads that were kept, and those that the market shows now."""

    def __init__(self, seen: Sequence[SeenHead], stored: Sequence[SeenHead]) -> None:
        self._seen, self._stored = (*seen, *stored), stored
        self._present: list[SeenHead] = []

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
        checks, keys = [], {each.public_key for each in self._seen}
        rotations: object = None
        for of in logs:
            present = _present(connection, of)
            heads = [each.head for each in self._seen if each.head.of == of]
            heads += [read] if read is not None and read.of == of else []
            first = min((head.length for head in heads), default=0)
            links = list(_links(connection, of, first=first, present=present))
            if rotations is None and present is not None and keys - {present.public_key}:
                rotations = _rotations(connection)
            checks.append(
                verify_head(
                    of, seen=heads, keys=keys, present=present, links=links, rotations=rotations
                )
            )
            if present is not None:
                self._present.append(present)
        return checks

    def save(self, path: Path) -> None:
        """Store the heads that the market showed; those of other logs stay."""
        heads = {each.head.of: each for each in (*self._stored, *self._present)}
        document = {"heads": [heads[of].document for of in sorted(heads)]}
        write_bytes(path, json.dumps(document, indent=1).encode() + b"\n")


def _read(path: Path) -> list[SeenHead]:
    """Return the heads in a file, each signed with the key beside it."""
    content = read_bytes(path, at_most=_FILE_BYTES_MAX)
    try:
        document = read_json(content)
        listed = document.get("heads") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise InvalidInput("it has no list of heads")
        heads = [SeenHead.of(each) for each in listed]
    except InvalidInput as error:
        raise InvalidFile(f"{path} is not a file that --save-seen wrote: {error}") from None
    for each in heads:
        if not each.is_signed_with(each.public_key):
            raise InvalidFile(
                f"{path} holds a head of {each.head.of} that is not signed with the key beside "
                "it: the file was changed"
            )
    return heads


def _present(connection: Connection, of: str) -> SeenHead | None:
    try:
        document = connection.get(_path(of, "/head"))
    except NotFound:
        return None
    try:
        return SeenHead.of(document)
    except InvalidInput as error:
        where = connection.server_url
        raise ProtocolError(f"{where} sends an invalid document: {error}") from None


def _rotations(connection: Connection) -> object:
    """Return the market's statements that a key took another's place, as it shows them."""
    document = connection.get("/v1/market")
    return document.get("rotations") or () if isinstance(document, dict) else ()


def _links(
    connection: Connection, of: str, *, first: int, present: SeenHead | None
) -> Iterator[dict[str, Any]]:
    """Yield the links from the first one that was not seen, up to those that are claimed."""
    last = 0 if present is None else present.head.length
    while first < last:
        parameters = {"after": first - 1, "limit": min(_AT_ONCE, last - first)}
        page = connection.get(_path(of, "" if of == MARKET_LOG else "/events"), parameters)[
            "events"
        ]
        if not page:
            return
        yield from page
        first += len(page)


def _path(of: str, rest: str) -> str:
    return f"/v1/log{rest}" if of == MARKET_LOG else f"/v1/tasks/{of}{rest}"
