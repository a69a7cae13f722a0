"""A layout is checked once, and is what its document says."""

import json

import pytest

from fedbourse.errors import InvalidInput
from fedbourse.tasks.layout import Column, Layout

GOOD = {"columns": [{"name": "x", "shift": 1.0, "scale": 2.0}, {"name": "y"}], "label": "late"}


def test_a_layout_is_what_its_document_says() -> None:
    layout = Layout((Column("x", 1.0, 2.0), Column("y")), "late", ("no", "yes"))
    assert Layout.of(json.loads(json.dumps(layout.document))) == layout


def test_a_layout_with_ranges_is_what_its_document_says() -> None:
    layout = Layout((Column("x", low=0.0, high=120.0), Column("y", high=5.0)), "age", label_low=1.0)
    assert Layout.of(json.loads(json.dumps(layout.document))) == layout


def test_a_layout_without_ranges_has_the_document_that_it_always_had() -> None:
    """Else the hashes of cards that were published before would no longer be theirs."""
    assert Layout.of(GOOD | {"classes": ["no", "yes"]}).document == {
        "columns": [
            {"name": "x", "shift": 1.0, "scale": 2.0},
            {"name": "y", "shift": 0.0, "scale": 1.0},
        ],
        "label": "late",
        "classes": ["no", "yes"],
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"columns": []}, "needs columns"),
        ({"columns": {}}, "must be lists"),
        ({"columns": ["x"]}, "a column must be an object"),
        ({"columns": [{"name": "x"}, {"name": "x"}]}, "found 'x' twice"),
        ({"columns": [{"name": "late"}]}, "found 'late' twice"),
        ({"columns": [{"name": " "}]}, "a column's name must be 1 to 200 characters"),
        (
            {"columns": [{"name": "x", "scale": 0}]},
            "scale must be a finite number of at least",
        ),
        ({"columns": [{"name": "x", "scale": 1e-51}]}, "scale must be"),
        ({"columns": [{"name": "x", "scale": 1e51}]}, "scale must be"),
        ({"columns": [{"name": "x", "shift": -1e51}]}, "shift must be"),
        ({"columns": [{"name": "x", "shift": 1e51}]}, "shift must be"),
        ({"columns": [{"name": "x", "shift": float("nan")}]}, "shift must be a finite number"),
        ({"columns": [{"name": "x", "unit": 1}]}, "a column must be an object"),
        ({"label": 3}, "the label's column must be"),
        ({"classes": ["a", "a"]}, "found 'a' twice"),
        ({"classes": [""]}, "a class's name must be"),
        ({"classes": [["a"], ["b"]]}, "a class's name must be"),
        ({"classes": ["a", "b\x1f"]}, "a class's name must hold no control characters"),
        ({"columns": [{"name": "x\0"}]}, "a column's name must hold no control characters"),
        ({"label": "\ud800"}, "the label's column must hold no control characters; found U.D800"),
        ({"tea": 1}, "a card's layout must be an object"),
        ({"columns": [{"name": "x", "low": 2, "high": 1}]}, "low must be at most high; found 2 an"),
        ({"columns": [{"name": "x", "low": float("-inf")}]}, "low must be a finite number"),
        ({"columns": [{"name": "x", "high": "9"}]}, "high must be a number; found '9'"),
        ({"label_low": 2, "label_high": 1}, "low must be at most high"),
        ({"label_low": True}, "low must be a number; found True"),
        ({"classes": ["a", "b"], "label_low": 0}, "the layout names classes"),
        ({"classes": ["3", "4", "3.0"]}, "found '3' and '3.0', which a device cannot tell apart"),
        ({"classes": ["True", "true"]}, "found 'True' and 'true'"),
        ({"classes": ["a", "a "]}, "found 'a' and 'a '"),
    ],
)
def test_what_is_no_layout_is_refused(change, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Layout.of(GOOD | change)
