"""The chain of events, and salted hashes of what lies outside it."""

import hashlib
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fedbourse.market.log import is_intact, leaf, next_event

hashes = st.integers(0, 2**64).map(lambda n: hashlib.sha256(str(n).encode()).hexdigest())
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


@given(bodies, st.text(max_size=40), st.text(max_size=40))
def test_a_leaf_hides_behind_its_salt(document, salt, other) -> None:
    assert leaf(salt, document) == leaf(salt, dict(reversed(list(document.items()))))
    assert (leaf(salt, document) == leaf(other, document)) == (salt == other)
