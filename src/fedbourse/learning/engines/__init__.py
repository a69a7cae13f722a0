"""Ways to ask devices: one contract, several transports."""

from fedbourse.learning.engines.engine import Engine, Updates
from fedbourse.learning.engines.local import LocalEngine

__all__ = ["Engine", "LocalEngine", "Updates"]
