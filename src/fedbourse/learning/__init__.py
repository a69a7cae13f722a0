"""Private training (Algorithm 1): data, models, rounds, engines."""

from fedbourse.learning.aggregation import AGGREGATIONS, Aggregate, aggregate
from fedbourse.learning.data import load
from fedbourse.learning.engines import Engine, LocalEngine, Updates
from fedbourse.learning.models import MODELS, Model, model_named
from fedbourse.learning.partition import Federation, partition
from fedbourse.learning.records import Records
from fedbourse.learning.rounds import RoundResult, Run, train
from fedbourse.learning.sources import Source

__all__ = [
    "AGGREGATIONS",
    "MODELS",
    "Aggregate",
    "Engine",
    "Federation",
    "LocalEngine",
    "Model",
    "Records",
    "RoundResult",
    "Run",
    "Source",
    "Updates",
    "aggregate",
    "load",
    "model_named",
    "partition",
    "train",
]
