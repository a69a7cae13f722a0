"""Merkle trees: roots, proofs, and proofs of what a database stores of a tree."""

import hashlib
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from fedbourse.market import merkle
from fedbourse.market.merkle import Root, Tree, proof, proves, root, stored_proof
from fedbourse.market.records import Allocation
from fedbourse.market.views import View
from fedbourse.storage.transaction import BaseTransaction
from fedbourse.testing.trading import Trading, caller
from fedbourse.units import MicroCredits

hashes = st.integers(0, 2**64).map(lambda n: hashlib.sha256(str(n).encode()).hexdigest())
trees = st.lists(hashes, min_size=1, max_size=70, unique=True)


def whole_tree(leaves):
    """The root by its definition, with all levels in memory."""
    level = [hashlib.sha256(b"\x00" + bytes.fromhex(each)).digest() for each in leaves]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [hashlib.sha256(b"\x01" + left + right).digest() for left, right in pairs]
        level = above + level[len(above) * 2 :]
    return level[0].hex()


def some_leaves(count):
    return [hashlib.sha256(str(n).encode()).hexdigest() for n in range(count)]


def set_block(monkeypatch, height):
    monkeypatch.setattr(merkle, "BLOCK_HEIGHT", height)
    monkeypatch.setattr(merkle, "_BLOCK", 1 << height)


@pytest.mark.parametrize("height", [0, 1, 2, 4, 12])
def test_leaves_that_come_little_by_little_have_the_root_of_all(height, monkeypatch) -> None:
    set_block(monkeypatch, height)
    leaves = some_leaves(70)
    tree = Root()
    assert tree.hex() == root([])
    for count, each in enumerate(leaves, 1):
        tree.add([each])
        assert (tree.leaves, tree.hex()) == (count, whole_tree(leaves[:count]))
        assert tree.hex() == root(iter(leaves[:count])) == tree.hex()


def test_the_root_over_more_leaves_than_a_block_is_that_of_the_definition() -> None:
    leaves = some_leaves(1300)
    for count in (127, 128, 129, 256, 384, 1300):
        assert root(leaves[:count]) == whole_tree(leaves[:count])


@given(trees, st.data())
def test_every_leaf_is_proved_at_its_place_and_nowhere_else(leaves, data) -> None:
    place = data.draw(st.integers(0, len(leaves) - 1))
    path, top = proof(leaves, place), root(leaves)
    assert proves(path, leaf=leaves[place], position=place, leaves=len(leaves), root=top)
    for other in range(-3, 2 * len(leaves) + 3):
        if other != place:
            assert not proves(
                path, leaf=leaves[place], position=other, leaves=len(leaves), root=top
            )
            if 0 <= other < len(leaves):
                assert not proves(
                    path, leaf=leaves[other], position=place, leaves=len(leaves), root=top
                )


@given(trees, st.data())
def test_a_path_proves_nothing_about_a_tree_of_another_depth(leaves, data) -> None:
    place = data.draw(st.integers(0, len(leaves) - 1))
    path, top = proof(leaves, place), root(leaves)
    for size in range(2 * len(leaves) + 3):
        if max(size - 1, 0).bit_length() != (len(leaves) - 1).bit_length():
            assert not proves(path, leaf=leaves[place], position=place, leaves=size, root=top)


@given(trees, st.data(), hashes)
def test_a_wrong_leaf_path_or_root_is_refused(leaves, data, stranger) -> None:
    place = data.draw(st.integers(0, len(leaves) - 1))
    path, top = proof(leaves, place), root(leaves)
    if stranger not in leaves:
        assert not proves(path, leaf=stranger, position=place, leaves=len(leaves), root=top)
        assert not proves(
            path, leaf=leaves[place], position=place, leaves=len(leaves), root=stranger
        )
    assert not proves(
        (*path, stranger), leaf=leaves[place], position=place, leaves=len(leaves), root=top
    )
    for step in range(len(path)):
        shorter = path[:step] + path[step + 1 :]
        wrong = (*path[:step], stranger, *path[step + 1 :])
        assert not proves(shorter, leaf=leaves[place], position=place, leaves=len(leaves), root=top)
        assert not proves(wrong, leaf=leaves[place], position=place, leaves=len(leaves), root=top)


@given(trees, st.data())
def test_the_root_vouches_for_every_leaf_and_their_order(leaves, data) -> None:
    top = root(leaves)
    assert root([*leaves, leaves[-1]]) != top
    if len(leaves) > 1:
        assert root(leaves[:-1]) != top
        first, second = data.draw(
            st.lists(st.integers(0, len(leaves) - 1), min_size=2, max_size=2, unique=True)
        )
        swapped = list(leaves)
        swapped[first], swapped[second] = leaves[second], leaves[first]
        assert root(swapped) != top


@given(st.lists(hashes, min_size=2, max_size=2, unique=True))
def test_the_root_of_a_pair_is_no_leaf(pair) -> None:
    assert root([root(pair)]) != root(pair)
    assert root([]) != root([hashlib.sha256(b"\x02").hexdigest()])


def test_a_leaf_that_is_no_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="hex"):
        root(["no hash"])


def stored(leaves):
    """Return all nodes that would be stored."""
    tree = Tree()
    tree.add(leaves)
    return dict(tree.nodes())


def proof_of_stored(leaves, position, nodes):
    """Return the proof that is made of one block and of the nodes that it names, and the root."""
    places, top = merkle.neighbours(position, leaves=len(leaves))
    named = {place: nodes[place] for place in [*filter(None, places), top]}
    block = merkle.block_of(position)
    path = stored_proof(leaves[block.start : block.stop], position, leaves=len(leaves), nodes=named)
    return path, nodes[top]


TABLES = ("tasks", "allocations", "nodes")


@pytest.mark.parametrize("height", [0, 1, 2, 3, 7])
def test_a_stored_proof_is_the_proof_over_all_leaves(height, monkeypatch) -> None:
    set_block(monkeypatch, height)
    for count in range(1, 41):
        leaves = some_leaves(count)
        nodes = stored(leaves)
        for place in range(count):
            assert proof_of_stored(leaves, place, nodes) == (proof(leaves, place), root(leaves))


@given(st.integers(100, 3000), st.data())
def test_a_stored_proof_is_the_proof_also_where_leaves_are_many(count, data) -> None:
    leaves = some_leaves(count)
    place = data.draw(st.integers(0, count - 1))
    nodes = stored(leaves)
    assert proof_of_stored(leaves, place, nodes) == (proof(leaves, place), root(leaves))
    assert len(nodes) < count / 32 + 20


def settled_lines(trading, task, count):
    """Store a settlement of so many lines, as one is stored, in place of an earlier one."""
    allocations = [
        Allocation(task, f"owner:{place:06d}", place, 1.0, MicroCredits(1), "", leaf)
        for place, leaf in enumerate(some_leaves(count))
    ]
    tree = Tree()
    tree.add(allocation.leaf for allocation in allocations)
    with trading.store.begin() as tx:
        tx.drop_allocations(task)
        tx.add_allocations(allocations)
        tx.add_nodes(task, tree.nodes())
    return [allocation.leaf for allocation in allocations]


def proved(trading, task, place):
    return trading.shown(View.proof, caller(f"owner:{place:06d}"), task)


def test_the_database_proves_what_all_leaves_prove(store, monkeypatch) -> None:
    set_block(monkeypatch, 2)
    trading = Trading(store)
    trading.fund(10**9)
    task = trading.opened().id
    other = trading.opened().id
    settled_lines(trading, other, 40)
    for count in (40, 33, 17, 16, 15, 9, 5, 4, 3, 2, 1):
        leaves = settled_lines(trading, task, count)
        for place in sorted({0, 1, count // 2, count - 2, count - 1} & set(range(count))):
            assert proved(trading, task, place) == {
                "leaf": leaves[place],
                "position": place,
                "path": list(proof(leaves, place)),
                "root": root(leaves),
            }


def test_a_proof_reads_few_rows_however_many_lines_there_are(store, kind, monkeypatch) -> None:
    trading = Trading(store)
    trading.fund(10**9)
    task = trading.opened().id
    leaves = settled_lines(trading, task, 5000)
    rows, run = [], BaseTransaction._run

    def counted(tx, statement, values=None):
        found = run(tx, statement, values).freeze()
        rows.append(len(found.data))
        return found()

    monkeypatch.setattr(BaseTransaction, "_run", counted)
    with executed() as statements:
        for place in (0, 1, 127, 128, 2500, 4991, 4999):
            rows.clear()
            assert proved(trading, task, place)["path"] == list(proof(leaves, place))
            assert len(rows) == 5
            assert sum(rows) <= 128 + 7 + 3
    if kind == "sqlite":  # nor does the database look at more rows than it returns
        with store.read() as tx:
            for statement, values in statements:
                plan = tx._connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
                steps = [row.detail for row in plan]
                assert not {f"SCAN {each}" for each in TABLES} & set(steps)
                # All rows of the task are only for the last of them, which is the first one found.
                whole = [each for each in steps if "KEY (task=?)" in each]
                assert not whole or statement.endswith("owner DESC\n LIMIT ? OFFSET ?"), statement


@contextmanager
def executed():
    """Note what is asked of databases meanwhile."""
    found = []

    def note(*arguments):
        _, _, statement, values, _, _ = arguments
        if statement.startswith("SELECT"):
            found.append((statement, values))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)
