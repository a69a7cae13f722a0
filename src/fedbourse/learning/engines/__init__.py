"""Ways to ask devices: one contract, several transports."""

from fedbourse.learning.engines.engine import Answers, Engine
from fedbourse.learning.engines.local import LocalEngine

__all__ = ["Answers", "Engine", "LocalEngine"]
