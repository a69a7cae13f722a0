"""The chain of events, and Merkle trees over hashes of what lies outside it."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.market import log
from fedbourse.market.log import Root, is_intact, leaf, next_event, proof, proves, root


def whole_tree(leaves):
    """The root by its definition, with all levels in memory."""
    level = [hashlib.sha256(b"\x00" + bytes.fromhex(each)).digest() for each in leaves]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [hashlib.sha256(b"\x01" + left + right).digest() for left, right in pairs]
        level = above + level[len(above) * 2 :]
    return level[0].hex()


@pytest.mark.parametrize("block", [1, 2, 4, 16, 4096])
def test_leaves_that_come_little_by_little_have_the_root_of_all(block, monkeypatch) -> None:
    monkeypatch.setattr(log, "_BLOCK", block)
    leaves = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(70)]
    tree = Root()
    assert tree.hex() == root([])
    for count, each in enumerate(leaves, 1):
        tree.add([each])
        assert (tree.leaves, tree.hex()) == (count, whole_tree(leaves[:count]))
        assert tree.hex() == root(iter(leaves[:count])) == tree.hex()


def test_the_root_over_more_leaves_than_a_block_is_that_of_the_definition() -> None:
    leaves = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(13_000)]
    for count in (4095, 4096, 4097, 8192, 12_288, 13_000):
        assert root(leaves[:count]) == whole_tree(leaves[:count])


hashes = st.integers(0, 2**64).map(lambda n: hashlib.sha256(str(n).encode()).hexdigest())
trees = st.lists(hashes, min_size=1, max_size=70, unique=True)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e300, 1e300), st.text()
)
bodies = st.dictionaries(st.text(max_size=5), scalars, max_size=4)


@given(st.lists(st.tuples(st.text(max_size=9), bodies), max_size=8), hashes)
def test_each_event_holds_the_hash_of_the_one_before(said, card) -> None:
    after = (-1, card)
    for number, (kind, body) in enumerate(said):
        event = next_event("t", kind, body, at_ms=number, after=after)
        assert is_intact(event)
        assert (event.sequence, event.previous) == (number, after[1])
        after = event.sequence, event.hash


@given(bodies, bodies, hashes, hashes)
def test_an_event_that_was_changed_is_not_intact(body, other, before, elsewhere) -> None:
    event = next_event("t", "kind", body, at_ms=5, after=(3, before))
    changes = {"task": "u", "sequence": 5, "kind": "other", "at_ms": 6, "hash": elsewhere}
    if elsewhere != before:
        changes["previous"] = elsewhere
    if repr(sorted(other.items())) != repr(sorted(body.items())):
        changes["body"] = other
    for name, value in changes.items():
        assert not is_intact(replace(event, **{name: value}))


def test_an_event_does_not_change_with_the_dictionary_it_was_made_of() -> None:
    body = {"a": 1}
    event = next_event("t", "kind", body, at_ms=0, after=(-1, "c"))
    body["a"] = 2
    assert is_intact(event)


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


@given(bodies, st.text(max_size=40), st.text(max_size=40))
def test_a_leaf_hides_behind_its_salt(document, salt, other) -> None:
    assert leaf(salt, document) == leaf(salt, dict(reversed(list(document.items()))))
    assert (leaf(salt, document) == leaf(other, document)) == (salt == other)


def test_a_leaf_that_is_no_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="hex"):
        root(["no hash"])
