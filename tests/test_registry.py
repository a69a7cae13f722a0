"""Choices by name: our own, an application's, and those of installed packages."""

from __future__ import annotations

import sys
import textwrap

import pytest

from fedbourse.errors import InvalidCost, InvalidInput
from fedbourse.registry import Choice, Registry


def registry(**options):
    return Registry(
        "size",
        Choice("small", "Small", "fits everywhere", 1),
        Choice("grown", "Grown", "as large as you say", 2, options="METRES"),
        **options,
    )


def test_a_name_stands_for_a_value_and_a_wrong_one_is_told_what_is_right():
    sizes = registry(error=InvalidCost)
    assert (sizes["small"], sizes.choose("grown"), list(sizes)) == (1, 2, ["small", "grown"])
    for wrong in ("huge", "", None, 7, ["small"]):
        with pytest.raises(InvalidCost, match="size must be one of small, grown:METRES; found"):
            sizes.choose(wrong)
    assert sizes.description("small") == "fits everywhere"
    for lookup in (sizes.__getitem__, sizes.description):
        with pytest.raises(KeyError):
            lookup("huge")


def test_an_application_adds_a_choice_but_replaces_none():
    sizes = registry()
    sizes.add(Choice("huge", "Huge", "fits nowhere", 3))
    assert (sizes.choose("huge"), len(sizes)) == (3, 3)
    with pytest.raises(InvalidInput, match="there is a size 'small' already"):
        sizes.add(Choice("small", "Other", "another one", 4))
    assert sizes["small"] == 1


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package that offers a choice, as pip leaves it on the disk."""

    def install(entry, code):
        (tmp_path / "big_sizes.py").write_text(textwrap.dedent(code))
        info = tmp_path / "big_sizes-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: big-sizes\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[fedbourse.sizes]\n{entry}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "big_sizes", raising=False)

    return install


CODE = """
    from fedbourse.registry import Choice
    HUGE = Choice("huge", "Huge", "fits nowhere", 3)
    WRONG = 7
"""


def test_an_installed_package_adds_a_choice_only_where_that_is_allowed(installed):
    installed("huge = big_sizes:HUGE", CODE)
    assert registry(group="sizes").choose("huge") == 3
    assert [each.name for each in registry(group="sizes").choices] == ["small", "grown", "huge"]
    assert "huge" not in registry()  # models and queries: a device runs no code of strangers


def test_help_lists_our_own_choices_and_loads_no_package(installed):
    installed("huge = big_sizes:NOTHING", CODE)
    own = "small (fits everywhere), grown:METRES (as large as you say)"
    assert registry().explained == own
    assert registry(group="sizes").explained == f"{own}, or one that an installed package adds"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("huge = big_sizes:NOTHING", "cannot be loaded"),
        ("huge = big_sizes:WRONG", "must be a fedbourse.Choice; found 7"),
    ],
)
def test_a_broken_package_is_named_each_time(installed, entry, problem):
    installed(entry, CODE)
    sizes = registry(group="sizes")
    for _ in range(2):
        with pytest.raises(InvalidInput, match=f"the installed size .*big_sizes.*{problem}"):
            len(sizes)
