"""Heads of logs that somebody kept, held against the log as the market shows it now.

Only what came after the earliest of the heads is read. Each link holds the hash of the one before,
so that a log which goes on from a head has the same past as when the head was signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import InvalidInput, Unauthenticated
from fedbourse.market import log
from fedbourse.market.audit.records import Check, Differs, run
from fedbourse.market.heads import MARKET_LOG, Head
from fedbourse.protocol.keys import verified
from fedbourse.protocol.messages import log_head_message
from fedbourse.protocol.rotation import keys_since

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fedbourse.market.audit.records import Document

_TASK = re.compile(r"[0-9a-f]{24}")


@dataclass(frozen=True)
class SeenHead:
    """A head as a market signed it."""

    head: Head
    at_ms: int
    public_key: str
    signature: str

    @classmethod
    def of(cls, document: object) -> SeenHead:
        """Read a document of the service's, or of a file; its signature is not checked."""
        try:
            content: Any = document
            head = content["head"]
            of, length, hash, at_ms = (head[name] for name in ("of", "length", "hash", "at_ms"))
            key, signature = content["public_key"], content["signature"]
        except (LookupError, TypeError):
            raise InvalidInput("a signed head of a log is expected; found something else") from None
        if not all(isinstance(text, str) for text in (of, hash, key, signature)):
            raise InvalidInput("the names and hashes of a signed head must be texts")
        if of != MARKET_LOG and not _TASK.fullmatch(of):
            raise InvalidInput(f"a head is of market, or of a task by its id; found {of!a:.60}")
        if not all(type(number) is int and number >= 0 for number in (length, at_ms)):
            raise InvalidInput("the length and the time of a signed head must be whole numbers")
        return cls(Head(of, length, hash), at_ms, key, signature)

    @property
    def document(self) -> dict[str, Any]:
        """Return the head as it is kept."""
        return {
            "head": self._message,
            "public_key": self.public_key,
            "signature": self.signature,
        }

    def is_signed_with(self, key: str) -> bool:
        """Say whether the head is what this key signed."""
        return verified(key, canonical(self._message), self.signature)

    @property
    def _message(self) -> dict[str, Any]:
        head = self.head
        return log_head_message(of=head.of, length=head.length, hash=head.hash, at_ms=self.at_ms)


@dataclass(frozen=True)
class _Comparison:
    of: str
    seen: Sequence[Head]
    keys: Collection[str]
    present: SeenHead | None
    links: Sequence[Document]
    rotations: object

    @property
    def signed(self) -> str:
        """When the present head was signed: nothing keeps a market from showing an old one."""
        at_ms = 0 if self.present is None else self.present.at_ms
        return f"{datetime.fromtimestamp(at_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def verify_head(
    of: str,
    *,
    seen: Sequence[Head],
    keys: Collection[str],
    present: SeenHead | None,
    links: Sequence[Document],
    rotations: object = (),
) -> Check:
    """Check that a log extends every head of it that was seen; without any, from its beginning.

    ``keys`` are those that signed what was seen, of this log or another. ``present`` is the head
    that the market shows now, None where it knows of no such log. ``links`` are the events of a
    task, or those that opened tasks, after the shortest head that was seen. ``rotations`` are the
    market's statements that a key took another's place, as it shows them.
    """
    name = "market's log" if of == MARKET_LOG else f"log of {of}"
    return run(name, _check_extends, _Comparison(of, seen, keys, present, links, rotations))


def _check_extends(comparison: _Comparison) -> str:
    present = _checked_present(comparison)
    hashes: dict[int, str] = {}
    for head in comparison.seen or [_beginning(comparison)]:
        if hashes.setdefault(head.length, head.hash) != head.hash:
            raise Differs(
                f"forked: the market signed two heads of {head.length} links that have different "
                "hashes, so that not everybody was shown the same log"
            )
    if present.length < max(hashes):
        raise Differs(f"shortened: the log had {max(hashes)} links, and has {present.length} now")
    length, hash = min(hashes.items())
    first = length
    for document in comparison.links:
        if length == present.length:
            break
        hash = _followed(comparison.of, document, length=length, hash=hash)
        length += 1
        if hashes.get(length, hash) != hash:
            raise _rewritten(length)
    if length < present.length:
        raise Differs(f"shortened: link {length} of {present.length} that are claimed is not shown")
    if hash != present.hash:
        raise _rewritten(length)
    if not comparison.seen:
        return f"{length} links, each holding the hash of the one before"
    return f"extends what was seen: {first} links then, {length} now, signed {comparison.signed}"


def _beginning(comparison: _Comparison) -> Head:
    """Return the head that any log extends: the first event of a task follows its card."""
    first = "" if comparison.of == MARKET_LOG else next(iter(comparison.links))["previous"]
    return Head(comparison.of, 0, first)


def _checked_present(comparison: _Comparison) -> Head:
    """Return the head that the market shows now, if it is of the right log and rightly signed."""
    if comparison.present is None:
        raise Differs("vanished: the market signed a head of this log, and now shows you none")
    for key in sorted(comparison.keys) or [comparison.present.public_key]:
        if not comparison.present.is_signed_with(_last_key(key, comparison.rotations)):
            raise Differs(
                f"signed by another key: what was seen was signed with {key}, and what the market "
                f"shows now with {comparison.present.public_key!a:.60}, for which it does not "
                "vouch, or not at all"
            )
    if comparison.present.head.of != comparison.of:
        raise Differs(f"the market shows a head of {comparison.present.head.of!a:.60} instead")
    return comparison.present.head


def _last_key(seen: str, rotations: object) -> str:
    """Return the key that a market signs with now, if it signed with this one before."""
    try:
        return (seen, *keys_since(seen, rotations))[-1]
    except Unauthenticated as error:
        raise Differs(f"signed by another key: {error}") from None


def _followed(of: str, document: Document, *, length: int, hash: str) -> str:
    """Return the hash of the next link, if it follows the one with this hash."""
    link = log.Event(**document)
    if not isinstance(link.body, Mapping):
        raise Differs(f"link {length} has no body")
    number, previous = link.sequence, link.previous
    if of == MARKET_LOG:
        number, previous = link.body["opening"], link.body["previous_opening"]
    elif link.task != of:
        raise Differs(f"link {length} is an event of task {link.task!a:.60}")
    if number != length:
        raise Differs(f"shortened: link {length} is not shown, but {number!a:.20} instead")
    if previous != hash:
        raise _rewritten(length)
    if not log.is_intact(link):
        raise Differs(f"rewritten: link {length} is not what its hash says")
    return link.hash


def _rewritten(length: int) -> Differs:
    return Differs(f"rewritten: the first {length} links are not those that were seen")
