"""Merkle trees: a root that vouches for leaves and their order, and proofs of single ones.

A settlement stores the nodes of its tree from the tops of blocks of leaves upwards. A proof is then
made of one block of leaves and one stored node for each height above it, however many leaves there
are. At 10^5 leaves blocks of 2, 128 and 1024 were measured: 100,011, 1568 and 199 rows, which made
a settlement take 12 %, 0 % and 0 % longer, and a proof 3.6, 3.6 and 10 ms (over all leaves 1.4 s).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

BLOCK_HEIGHT = 7
_BLOCK = 1 << BLOCK_HEIGHT
"""How many leaves are hashed together: nodes below the top of a block are not stored."""

Place = tuple[int, int]
"""Where a node of a tree is: its height above the leaves, and its number from the left."""


def root(leaves: Iterable[str]) -> str:
    """Return the root of the Merkle tree over these leaves, in this order."""
    tree = Root()
    tree.add(leaves)
    return tree.hex()


class Root:
    """The root over leaves that come little by little: it holds a few hundred hashes at most."""

    def __init__(self) -> None:
        self._last: list[bytes] = []
        """The hashes of leaves that fill no block yet."""
        self._blocks = 0
        self._full: list[bytes] = []
        """The tops of full trees of blocks, the largest first."""

    @property
    def leaves(self) -> int:
        """How many leaves came so far."""
        return self._blocks * _BLOCK + len(self._last)

    def add(self, leaves: Iterable[str]) -> None:
        """Add leaves after those that came before."""
        for item in leaves:
            self._last.append(_hash(b"\x00", bytes.fromhex(item)))
            if len(self._last) == _BLOCK:
                self._close_block()

    def hex(self) -> str:
        """Return the root over all leaves so far."""
        tops = [*self._full, _top(self._last)] if self._last or not self._full else self._full[:]
        while len(tops) > 1:
            right = tops.pop()
            tops[-1] = _hash(b"\x01", tops[-1] + right)
        return tops[0].hex()

    def _close_block(self) -> None:
        top, before = _top(self._last), self._blocks
        self._keep(top)
        while before & 1:  # two trees of one size become one
            top, before = _hash(b"\x01", self._full.pop() + top), before >> 1
        self._full.append(top)
        self._blocks += 1
        self._last = []

    def _keep(self, top: bytes) -> None:
        """Do what there is to do with the top of a block: nothing, where only the root counts."""


class Tree(Root):
    """A root whose nodes can be stored: it holds one hash for each block of leaves."""

    def __init__(self) -> None:
        super().__init__()
        self._tops: list[bytes] = []

    def nodes(self) -> Iterator[tuple[Place, str]]:
        """Yield the tops of blocks and all nodes above them, the root last."""
        level = [*self._tops, _top(self._last)] if self._last or not self._tops else self._tops
        height = BLOCK_HEIGHT
        yield from _numbered(height, level)
        while len(level) > 1:
            level, height = _above(level), height + 1
            yield from _numbered(height, level)

    def _keep(self, top: bytes) -> None:
        self._tops.append(top)


def block_of(position: int) -> range:
    """Return the positions of the leaves that share a block with this one, some past the last."""
    first = position // _BLOCK * _BLOCK
    return range(first, first + _BLOCK)


def neighbours(position: int, *, leaves: int) -> tuple[list[Place | None], Place]:
    """Return which stored nodes lead from a leaf's block to the root, and where the root is.

    None stands for a neighbour that a tree of so many leaves does not have.
    """
    height, path = BLOCK_HEIGHT, list[Place | None]()
    while (width := -(-leaves >> height)) > 1:
        neighbour = position >> height ^ 1
        path.append((height, neighbour) if neighbour < width else None)
        height += 1
    return path, (height, 0)


def stored_proof(
    block: Sequence[str], position: int, *, leaves: int, nodes: Mapping[Place, str]
) -> tuple[str, ...]:
    """Return what ``proof`` returns, of the leaves of one block and stored nodes."""
    within = proof(block, position % _BLOCK)
    if leaves > _BLOCK:  # a block with few leaves moves up as it is
        within += ("",) * (BLOCK_HEIGHT - len(within))
    path, _ = neighbours(position, leaves=leaves)
    return within + tuple(nodes[place] if place else "" for place in path)


def proof(leaves: Sequence[str], position: int) -> tuple[str, ...]:
    """Return the neighbours that lead from one leaf to the root; an empty one stands for none."""
    level = [_hash(b"\x00", bytes.fromhex(item)) for item in leaves]
    path = []
    while len(level) > 1:
        neighbour = position ^ 1
        path.append(level[neighbour].hex() if neighbour < len(level) else "")
        level, position = _above(level), position // 2
    return tuple(path)


def proves(path: Sequence[str], *, leaf: str, position: int, leaves: int, root: str) -> bool:
    """Say whether the path leads from the leaf at this position, of so many leaves, to the root."""
    if not 0 <= position < leaves:
        return False
    here = _hash(b"\x00", bytes.fromhex(leaf))
    for neighbour in path:
        if leaves == 1 or bool(neighbour) == (position ^ 1 >= leaves):
            return False  # a tree of this size has another shape
        if neighbour:
            other = bytes.fromhex(neighbour)
            here = _hash(b"\x01", other + here if position & 1 else here + other)
        position, leaves = position // 2, (leaves + 1) // 2
    return leaves == 1 and here.hex() == root


def _numbered(height: int, level: list[bytes]) -> Iterator[tuple[Place, str]]:
    return (((height, number), node.hex()) for number, node in enumerate(level))


def _top(level: list[bytes]) -> bytes:
    """Return the top of the tree over hashes of leaves."""
    while len(level) > 1:
        level = _above(level)
    return level[0] if level else _hash(b"\x02", b"")


def _above(level: list[bytes]) -> list[bytes]:
    """Hash neighbours in pairs; one without a neighbour moves up as it is."""
    pairs = zip(level[::2], level[1::2], strict=False)
    above = [_hash(b"\x01", left + right) for left, right in pairs]
    return above + level[-1:] if len(level) % 2 else above


def _hash(kind: bytes, content: bytes) -> bytes:
    # The kind keeps a leaf from passing for a pair of hashes.
    return hashlib.sha256(kind + content).digest()
