"""JSON from strangers: what is accepted is exact, what is refused gets one sentence."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.encoding.strict_json import DEPTH_MAX, read_json
from fedbourse.errors import InvalidInput

HOSTILE = {
    "nan": b'{"a": NaN}',
    "infinity": b"[Infinity]",
    "minus infinity": b"-Infinity",
    "overflow": b'{"a": 1e999}',
    "minus overflow": b"[-1e999]",
    "10^4 digits": b"1" * 10_000,
    "minus 10^4 digits": b'{"a": -' + b"9" * 10_000 + b"}",
    "10^6 digits": b"7" * 1_000_000,
    "19 digits": b"1" * 19,
    "long fraction": b"0." + b"1" * 10_000,
    "deep lists": b"[" * 21 + b"]" * 21,
    "deep objects": b'{"a":' * 21 + b"1" + b"}" * 21,
    "very deep": b"[" * 500_000 + b"]" * 500_000,
    "open and deep": b"[" * 500_000,
    "duplicate keys": b'{"a": 1, "a": 2}',
    "inner duplicate": b'[{"x": {"a": 1, "b": 1, "a": 1}}]',
    "duplicate by escape": b'{"a": 1, "\\u0061": 2}',
    "latin-1": b'"\xe9"',
    "utf-16": '"a"'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "half a surrogate": b'{"a": "\\ud800"}',
    "half a surrogate in a key": b'{"\\udfff": 1}',
    "nul": b'["\\u0000"]',
    "empty": b"",
    "blank": b"  ",
    "two documents": b"{} {}",
    "comma": b"[1,]",
    "single quotes": b"{'a': 1}",
    "control character": b'"\x01"',
    "leading zero": b"01",
    "plus": b"+1",
    "hex": b"0x10",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_gets_one_sentence(name):
    with pytest.raises(InvalidInput) as refused:
        read_json(HOSTILE[name])
    sentence = str(refused.value)
    assert 0 < len(sentence) < 300
    assert "\n" not in sentence
    assert sentence.encode()


def test_the_deepest_allowed_and_the_longest_number_pass():
    assert read_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    assert read_json(b"-" + b"9" * 18) == -(10**18 - 1)


DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**18 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_characters="\x00", codec="utf-8")), inner)
    ),
    max_leaves=15,
)


@given(DOCUMENTS, st.booleans())
def test_every_proper_document_is_read_as_it_was_written(document, ascii_only):
    assert read_json(json.dumps(document, ensure_ascii=ascii_only).encode()) == document


@given(st.binary() | st.text(alphabet='[]{}":,\\u0dD81e9-.NaInfity ').map(str.encode))
def test_anything_else_is_read_or_refused(content):
    try:
        document = read_json(content)
    except InvalidInput:
        return
    json.dumps(document, allow_nan=False).encode()
    assert not (isinstance(document, float) and math.isinf(document))
