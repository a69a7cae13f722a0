"""Reading in threads, in order, a bounded number of rows ahead of the consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from fedbourse.game.array_spans import cores
from fedbourse.game.outofcore.stream import ROWS

Item = TypeVar("Item")

THREADS = 4
"""More decode faster than one consumer can use."""


@dataclass(frozen=True)
class Piece:
    """Some rows of a file, not read yet."""

    rows: int
    read: Callable[[], list[Any]]
    """Returns them as Arrow batches."""


def in_order(pieces: Iterator[Piece]) -> Iterator[Any]:
    """Yield the batches of all pieces, read ahead by several threads."""
    threads = min(cores(), THREADS)
    queue: deque[tuple[int, Future[list[Any]]]] = deque()
    ahead = 0
    with ThreadPoolExecutor(threads) as pool:
        try:
            for piece in pieces:
                queue.append((piece.rows, pool.submit(piece.read)))
                ahead += piece.rows
                while ahead > 2 * threads * ROWS:
                    rows, first = queue.popleft()
                    yield from first.result()
                    ahead -= rows
            while queue:
                yield from queue.popleft()[1].result()
        finally:
            for _, future in queue:
                future.cancel()


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield all items; a thread prepares the next one while one is in use."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(next, items, None)
        while (item := future.result()) is not None:
            future = pool.submit(next, items, None)
            yield item
