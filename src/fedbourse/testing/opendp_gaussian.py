"""OpenDP's discrete Gaussian: the reference for ours, in tests and benchmarks."""

from __future__ import annotations

from typing import Any


def opendp_gaussian(dimension: int, sigma: float) -> Any:
    """Return OpenDP's measurement: call it on whole numbers; ``map(distance)`` is what it costs."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"), size=dimension)
    return make_gaussian(domain, l2_distance(T="f64"), scale=sigma)
