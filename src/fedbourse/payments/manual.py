"""Money in and out by hand: two files that the operator reads and writes.

``received.jsonl`` is kept by the operator, one line for each payment that arrived:
``{"reference": "bank-0017", "party": "buyer:acme", "credits": "12.5"}``. ``payouts.jsonl`` is
written by the market, one line for each payment that the operator has to make.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedbourse.encoding.strict_json import read_json
from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput, NotFound
from fedbourse.market.commands.accounts import AMOUNT_MICRO_MAX
from fedbourse.market.commands.payouts import Payout
from fedbourse.market.parties import party
from fedbourse.units import MicroCredits, credits_text, micro_credits

RECEIVED, PAYOUTS = "received.jsonl", "payouts.jsonl"
_SETTLED_NS = 2 * 10**9
"""After so long a change of a file shows in its time, however coarse the clock of the disk is."""
_ITEMS = ("reference", "party", "credits")
_CREDITS = re.compile(r"[0-9]{1,10}(\.[0-9]{1,6})?")


class ManualPayments:
    """Payments that somebody enters and carries out by hand: ``market.ports.Payments``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"{folder} cannot be created: {error.strerror}") from None
        self._received: tuple[object, dict[str, tuple[int, str, MicroCredits]]] = None, {}
        """What came in, and the version of the file that says so."""
        self._paid: set[str] = set()
        self._paid_size = 0
        """The length of the file of payouts that these ids were read from."""

    def received(self, reference: str) -> tuple[str, MicroCredits]:
        """Return for whom money with this reference came in, and how much; or ``NotFound``."""
        payment = self._all_received().get(reference)
        if payment is None:
            raise NotFound(f"no payment with the reference {reference!r:.110} has come in")
        _, account, amount = payment
        return account, amount

    def _all_received(self) -> dict[str, tuple[int, str, MicroCredits]]:
        """Return every payment that came in; the file is read again only where it has changed."""
        try:
            with (self._folder / RECEIVED).open("rb") as file:
                status = os.fstat(file.fileno())
                version = status.st_ino, status.st_size, status.st_mtime_ns
                if version == self._received[0]:
                    return self._received[1]
                content = file.read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InvalidFile(f"{RECEIVED} cannot be read: {error.strerror}") from None
        # A line that cannot be read could be about any payment, so it stops them all.
        payments: dict[str, tuple[int, str, MicroCredits]] = {}
        for number, line in _lines(content):
            name, account, amount = _payment(number, line)
            first = payments.setdefault(name, (number, account, amount))
            if first[1:] != (account, amount):
                raise InvalidFile(
                    f"{RECEIVED}, lines {first[0]} and {number} differ about one reference; "
                    "a payment has one line"
                )
        if time.time_ns() - status.st_mtime_ns > _SETTLED_NS:
            self._received = version, payments
        return payments

    def pay(self, payout: Payout) -> None:
        """Write a payment down for the operator to make, once for each id."""
        document = {
            "id": payout.id,
            "party": payout.party,
            "credits": credits_text(payout.amount),
            "destination": payout.destination,
            "at_ms": payout.at_ms,
        }
        line = json.dumps(document, ensure_ascii=False).encode() + b"\n"
        with self._payouts() as number:
            size = self._read_paid(number)
            if payout.id in self._paid:
                return
            try:
                _write_all(number, line, at=size)
                os.fsync(number)
            except OSError:
                os.ftruncate(number, size)  # half a line helps nobody
                raise
            self._paid.add(payout.id)
            self._paid_size = size + len(line)

    def has_paid(self, payout: str) -> bool:
        """Say whether a payment was written down under this id."""
        with self._payouts() as number:
            self._read_paid(number)
            return payout in self._paid

    @contextmanager
    def _payouts(self) -> Iterator[int]:
        """Open the file of payouts, for one thread of one process at a time."""
        path = self._folder / PAYOUTS
        try:
            is_new = not path.exists()
            number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(number, fcntl.LOCK_EX)
                if is_new:
                    _sync_folder(self._folder)
                yield number
            finally:
                os.close(number)  # the lock ends with it
        except OSError as error:
            raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None

    def _read_paid(self, number: int) -> int:
        """Read which payouts are in the file, repair its end, and return its length."""
        size = os.fstat(number).st_size
        if size == self._paid_size:
            return size
        content = (self._folder / PAYOUTS).read_bytes()
        whole = _repaired(content)
        if whole != content:
            os.ftruncate(number, min(len(whole), size))
            _write_all(number, whole[size:], at=size)
            os.fsync(number)
        self._paid = {_id(position, line) for position, line in _lines(whole)}
        self._paid_size = len(whole)
        return len(whole)


def _repaired(content: bytes) -> bytes:
    """Return the content of a file with its last line ended.

    A line that a crash cut short was never handed over, and is dropped; one that lacks only its
    line end stays.
    """
    if not content or content.endswith(b"\n"):
        return content
    start = content.rfind(b"\n") + 1
    try:
        _id(0, content[start:])
    except CannotWrite:
        return content[:start]
    return content + b"\n"


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the lines that are not blank, with their numbers."""
    content = content.removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield number, line.strip()


def _payment(number: int, line: bytes) -> tuple[str, str, MicroCredits]:
    """Read a line of what came in; errors do not quote it, for the operator alone may see it."""
    try:
        document = read_json(line)
    except InvalidInput as error:
        raise InvalidFile(f"{RECEIVED}, line {number}: {error}") from None
    if not isinstance(document, dict) or not set(_ITEMS) <= set(document) <= {*_ITEMS, "note"}:
        raise InvalidFile(
            f"{RECEIVED}, line {number} must be an object with reference, party and credits, and "
            "nothing else but a note"
        )
    name, account, written = (document[item] for item in _ITEMS)
    if not isinstance(name, str) or not name:
        raise InvalidFile(f"{RECEIVED}, line {number}: the reference must be a text")
    try:
        account = party(account)
    except InvalidInput:
        raise InvalidFile(
            f"{RECEIVED}, line {number}: the party must be buyer:NAME, owner:NAME, auditor:NAME or "
            "operator:NAME"
        ) from None
    amount = 0
    if isinstance(written, str) and _CREDITS.fullmatch(written):
        amount = micro_credits(written)
    if not 0 < amount <= AMOUNT_MICRO_MAX:
        raise InvalidFile(
            f"{RECEIVED}, line {number}: the credits must be a decimal number above 0 in quotes, "
            'with at most six decimals, such as "12.5"'
        )
    return name, account, MicroCredits(amount)


def _id(number: int, line: bytes) -> str:
    try:
        document: Any = read_json(line)
    except InvalidInput:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("id"), str):
        raise CannotWrite(
            f"{PAYOUTS}, line {number} is not a payout, so nobody knows what was paid; "
            "restore the file as it was"
        )
    return str(document["id"])


def _write_all(number: int, content: bytes, *, at: int) -> None:
    while content:
        written = os.pwrite(number, content, at)
        content, at = content[written:], at + written


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
