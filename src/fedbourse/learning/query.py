"""The queries that a task may ask owners, and why there is only one.

Noise is sized for an update that moves by at most 2L/m when one record is exchanged. That holds for
the mean of m gradients, each clipped to norm L, at one and the same model (Algorithm 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from fedbourse.errors import InvalidInput


@dataclass(frozen=True)
class Query:
    """A computation that devices know how to do."""

    name: str
    asks: str
    sensitivity: str
    """How far one record can move the update, in words."""


QUERIES = {
    "gradient": Query(
        name="gradient",
        asks="the mean of your records' gradients at this model, each clipped to norm L",
        sensitivity="2L/m: one record of m is exchanged, and no gradient is longer than L",
    ),
}

_REFUSED = {
    "local-steps": (
        "after the first of several local steps one record moves the model that all other records' "
        "gradients are taken at, so the update may move by far more than 2L/m"
    ),
    "minibatch": (
        "a mean over b < m records moves by 2L/b; the gain from hiding which records were drawn "
        "is not part of the terms that owners are paid for"
    ),
}


def query_named(name: str) -> Query:
    """Return a query; those that would cost more privacy than they say are refused with the reason.

    >>> query_named("gradient").sensitivity
    '2L/m: one record of m is exchanged, and no gradient is longer than L'
    """
    if name in QUERIES:
        return QUERIES[name]
    reason = f": {_REFUSED[name]}" if name in _REFUSED else ""
    raise InvalidInput(f"query must be one of {', '.join(QUERIES)}; found {name!r:.60}{reason}")
