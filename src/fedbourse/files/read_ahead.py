"""Reading in threads, a bounded number of rows ahead of whoever takes them, in order."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fedbourse.game.spans import cores
from fedbourse.game.stream import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Item = TypeVar("Item")

THREADS = 4
"""More than these decode faster than one reader looks at what they decode."""


@dataclass(frozen=True)
class Piece:
    """Some rows of a file, not read yet."""

    rows: int
    read: Callable[[], list[Any]]
    """Returns them as Arrow batches."""


def in_order(pieces: Iterator[Piece]) -> Iterator[Any]:
    """Yield the batches of all pieces, which several threads read ahead."""
    threads = min(cores(), THREADS)
    waiting: deque[tuple[int, Future[list[Any]]]] = deque()
    ahead = 0
    with ThreadPoolExecutor(threads) as pool:
        try:
            for piece in pieces:
                waiting.append((piece.rows, pool.submit(piece.read)))
                ahead += piece.rows
                while ahead > 2 * threads * ROWS:
                    rows, first = waiting.popleft()
                    yield from first.result()
                    ahead -= rows
            while waiting:
                yield from waiting.popleft()[1].result()
        finally:
            for _, future in waiting:
                future.cancel()


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield all items, the next of which a thread gets ready while one is looked at."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
