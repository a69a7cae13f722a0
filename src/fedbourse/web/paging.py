"""Lists in pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Page = TypeVar("Page")


def page(
    kind: Callable[[Sequence[Item], Any], Page],
    items: Sequence[Item],
    limit: int,
    attribute: str,
) -> Page:
    """Return a page of a list, with this attribute of its last item where more may follow."""
    return kind(items, getattr(items[-1], attribute) if len(items) == limit else None)
