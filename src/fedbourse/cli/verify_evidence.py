"""What an auditor's ``fedbourse verify`` fetches to recompute evidence, a round at a time.

Models and updates of a task may be larger than memory. Those of two rounds are on disk at once, and
one update of them in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO

from fedbourse.errors import NotAllowed, NotFound, ProtocolError, Unauthenticated

if TYPE_CHECKING:
    from fedbourse.protocol.connection import Connection

_ENDED = ("completed", "cancelled")


@contextmanager
def evidence_records(
    connection: Connection, records: Mapping[str, Any]
) -> Iterator[dict[str, Any] | None]:
    """Yield what evidence of a task is recomputed from; None where the caller may not see it."""
    task, path = records["task"], f"/v1/tasks/{records['task']['task']}"
    if records["card"].get("evidence") is None or task["state"] not in _ENDED:
        yield None
        return
    with KeptRounds(connection, path) as rounds:
        try:
            evidence = {
                "reference": _reference(connection, path, records["card"]["evidence"]),
                "findings": _findings(connection, path),
                "rounds": rounds,
            }
            if any(event["kind"] == "round" for event in records["events"]):
                rounds[0]  # an owner may read the rest, but no other device's updates
        except (NotAllowed, NotFound, Unauthenticated):
            evidence = None
        yield evidence


def _reference(connection: Connection, path: str, evidence: Mapping[str, Any]) -> bytes | None:
    """Return the reference file; None where the buyer kept it, and has not revealed it."""
    try:
        return connection.get_bytes(f"{path}/reference")
    except NotFound:
        if evidence.get("source") == "gradients":
            return None
        raise


def _findings(connection: Connection, path: str) -> list[dict[str, Any]]:
    from fedbourse.protocol.bounds import auditor_records

    allowance = auditor_records()
    return list(connection.pages(f"{path}/evidence", "findings", allowance=allowance))


class KeptRounds:
    """The rounds that a market kept, by number; they are fetched in order, as they are asked for.

    Asking for a round lets go of all but the one before it.
    """

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection, self._path = connection, path
        self._files = ExitStack()
        self._fetched: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> KeptRounds:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def __getitem__(self, number: int) -> dict[str, Any]:
        if number not in self._fetched:
            for old in [each for each in self._fetched if each < number - 1]:
                self._fetched.pop(old)["updates"].close()
            self._fetched[number] = self._fetch(number)
        return self._fetched[number]

    def _fetch(self, number: int) -> dict[str, Any]:
        from fedbourse.protocol.bounds import kept_round

        allowance = kept_round()
        path = f"{self._path}/rounds/{number}/kept"
        model = self._connection.get(path, allowance=allowance)
        file = self._files.enter_context(TemporaryFile())  # noqa: SIM115 - closed in the end
        updates = _UpdatesOnDisk(file)
        for each in self._connection.pages(f"{path}/updates", "updates", allowance=allowance):
            updates.add(each)
        if not isinstance(model, dict):
            raise ProtocolError(f"a kept round must be an object; found {model!r:.60}")
        return model | {"updates": updates}


class _UpdatesOnDisk(Mapping[str, str]):
    """Vectors by owner, in base64."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[str, tuple[int, int]] = {}

    def add(self, update: Mapping[str, Any]) -> None:
        """Write an update to the end of the file."""
        owner, vector = update.get("owner"), update.get("vector")
        if not isinstance(owner, str) or not isinstance(vector, str) or not vector.isascii():
            raise ProtocolError(
                f"a kept update must have an owner and a vector; found {owner!r:.60}"
            )
        start = self._file.seek(0, 2)
        self._places[owner] = start, self._file.write(vector.encode())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __getitem__(self, owner: str) -> str:
        start, length = self._places[owner]
        self._file.seek(start)
        return self._file.read(length).decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
