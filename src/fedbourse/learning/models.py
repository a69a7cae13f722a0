"""Models whose gradients, record by record, have a closed form: clipping costs nearly nothing.

In each layer the gradient of one record is an outer product, delta x input, so its norm is
|delta| |input|: no record's gradient is ever written down. A clipped mean is one matrix product of
the deltas, scaled down where a norm exceeds the clip, with the inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.learning.records import row_norms, row_products, whole_products
from fedbourse.registry import Choice, Registry
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import BoolArray, FloatArray
    from fedbourse.learning.partition import Federation
    from fedbourse.learning.records import Records

    Multiply = Callable[[FloatArray, FloatArray], FloatArray]


_STREAM = 0x7374617274  # keeps first weights apart from whatever else is drawn from a seed
_LEAST = 2.0**-900  # far above 2^-1022, below which doubles lose digits


class Model(Protocol):
    """What training needs of a model; its parameters are always one vector."""

    @property
    def dimension(self) -> int:
        """The number of parameters."""

    def start(self, *, seed: int) -> FloatArray:
        """Return the parameters of round 0."""

    def clipped_means(
        self, parameters: FloatArray, federation: Federation, *, clip: float
    ) -> FloatArray:
        """Return, a row an owner, its records' gradients, each clipped, summed and divided by m.

        A row that does not fit counts as zero; m is the federation's divisor. No record may
        change another one's gradient, wherever it stands.
        """

    def loss(self, parameters: FloatArray, records: Records) -> float:
        """Return the mean loss."""

    def accuracy(self, parameters: FloatArray, records: Records) -> float:
        """Return the part of records predicted right; where labels are numbers, R squared."""


class Layer(NamedTuple):
    """One layer's part of every record's gradient: the outer product of delta and input."""

    deltas: FloatArray
    """One row a record; one number a record where the layer has one output."""
    inputs: FloatArray
    input_norms: FloatArray


class _Layered(ABC):
    """A model made of layers, which starts from zero."""

    dimension: int

    def start(self, *, seed: int) -> FloatArray:
        """Return the parameters of round 0."""
        return np.zeros(self.dimension)

    @abstractmethod
    def layers(
        self, parameters: FloatArray, records: Records, multiply: Multiply = row_products
    ) -> list[Layer]:
        """Return the layers' parts of the gradients, in the order of the parameters."""

    def clipped_means(
        self, parameters: FloatArray, federation: Federation, *, clip: float
    ) -> FloatArray:
        """Return each owner's clipped mean."""
        multiply = row_products if federation.on_device else whole_products
        owners = zip(federation.parts, federation.parts_fit, strict=True)
        with np.errstate(all="ignore"):  # a record whose gradient is not finite is left out
            sums = [
                self._clipped_sum(parameters, records, fits, clip, multiply)
                for records, fits in owners
            ]
            means: FloatArray = np.stack(sums) / federation.divisors[:, None]
        return means

    def _clipped_sum(
        self,
        parameters: FloatArray,
        records: Records,
        fits: BoolArray | None,
        clip: float,
        multiply: Multiply,
    ) -> FloatArray:
        """Go block by block, so that the second pass over the records finds them in the cache.

        Reading the records is most of the work.
        """
        total, row = np.zeros(self.dimension), 0
        for block in records.blocks:
            layers, factors = clipped(self.layers(parameters, block, multiply), clip)
            if fits is not None:
                factors = np.where(fits[row : row + len(block)], factors, 0.0)
            row += len(block)
            start = 0
            for layer in layers:
                part = ((factors * layer.deltas.T) @ layer.inputs).ravel()
                total[start : start + len(part)] += part
                start += len(part)
        return total


def clipped(layers: list[Layer], clip: float) -> tuple[list[Layer], FloatArray]:
    """Return the layers, and what multiplies each record's gradient so that none exceeds ``clip``.

    A record whose gradient is not finite counts as 0: were the update refused instead, or not a
    number, that would tell something about the record.
    """
    sizes = [row_norms(layer.deltas) for layer in layers]
    parts = (size * layer.input_norms for size, layer in zip(sizes, layers, strict=True))
    norms = reduce(np.hypot, parts)
    if not np.isfinite(norms.max()):
        finite = np.isfinite(norms)
        layers = [_only(layer, finite) for layer in layers]
        norms = np.where(finite, norms, 0.0)
        sizes = [np.where(finite, size, 0.0) for size in sizes]
    return layers, clip_factors(norms, sizes, clip)


def clip_factors(norms: FloatArray, sizes: list[FloatArray], clip: float) -> FloatArray:
    """Return what multiplies each record's numbers, whose norms are ``sizes``.

    A factor that is tiny, or makes the numbers tiny, counts as 0. All others are normal doubles and
    so are their products, where each operation is right to 2^-53 of its result: an outer product of
    norm ``clip`` (1 + (d + 8) 2^-53) at most comes out, whatever finite numbers went in.
    """
    factors: FloatArray = clip / np.maximum(norms, clip)
    for size in sizes:
        factors[(factors * np.minimum(size, 1.0) < _LEAST) & (size > 0.0)] = 0.0
    return factors


def _only(layer: Layer, rows: BoolArray) -> Layer:
    """Set all rows but these to zero."""
    return Layer(
        *(np.where(rows if part.ndim == 1 else rows[:, None], part, 0.0) for part in layer)
    )


class Logistic(_Layered):
    """Logistic regression for two classes."""

    def __init__(self, features: int, classes: int = 2) -> None:
        if classes != 2:
            raise InvalidData(f"logistic takes two classes; found {classes or 'numbers'}")
        self.dimension = whole_number("features", features, at_least=1)

    def layers(
        self, parameters: FloatArray, records: Records, multiply: Multiply = row_products
    ) -> list[Layer]:
        """Return the one layer: predicted probability less label."""
        from scipy.special import expit

        deltas = expit(multiply(records.features, parameters)) - records.labels
        return [Layer(deltas, records.features, records.norms)]

    def loss(self, parameters: FloatArray, records: Records) -> float:
        """Return the mean logistic loss."""
        from scipy.special import log_expit

        scores = records.features @ parameters
        return float(-np.mean(log_expit(np.where(records.labels == 1, scores, -scores))))

    def accuracy(self, parameters: FloatArray, records: Records) -> float:
        """Return the part of records predicted right."""
        return float(np.mean((records.features @ parameters > 0) == (records.labels == 1)))


class LeastSquares(_Layered):
    """Linear regression; two classes are regressed on as -1 and 1."""

    def __init__(self, features: int, classes: int = 0) -> None:
        if classes not in (0, 2):
            raise InvalidData(f"least-squares takes numbers or two classes; found {classes}")
        self.dimension = whole_number("features", features, at_least=1)
        self._classes = classes

    def layers(
        self, parameters: FloatArray, records: Records, multiply: Multiply = row_products
    ) -> list[Layer]:
        """Return the one layer: prediction less target."""
        deltas = multiply(records.features, parameters) - self._targets(records)
        return [Layer(deltas, records.features, records.norms)]

    def loss(self, parameters: FloatArray, records: Records) -> float:
        """Return half the mean squared error."""
        return float(np.mean((records.features @ parameters - self._targets(records)) ** 2)) / 2

    def accuracy(self, parameters: FloatArray, records: Records) -> float:
        """Return the part of classes predicted right, or R squared."""
        predictions, targets = records.features @ parameters, self._targets(records)
        if self._classes:
            return float(np.mean((predictions > 0) == (targets > 0)))
        spread = float(np.mean((targets - targets.mean()) ** 2))
        return 1.0 - float(np.mean((predictions - targets) ** 2)) / spread if spread else 0.0

    def _targets(self, records: Records) -> FloatArray:
        return 2.0 * records.labels - 1.0 if self._classes else records.labels


class _Classifier(_Layered):
    """A layered model that gives each class a score."""

    @abstractmethod
    def scores(self, parameters: FloatArray, records: Records) -> FloatArray:
        """Return the score of each class, a row a record."""

    def loss(self, parameters: FloatArray, records: Records) -> float:
        """Return the mean cross-entropy."""
        from scipy.special import log_softmax

        logs = log_softmax(self.scores(parameters, records), axis=1)
        return float(-np.mean(logs[np.arange(len(logs)), records.labels.astype(np.int64)]))

    def accuracy(self, parameters: FloatArray, records: Records) -> float:
        """Return the part of records predicted right."""
        return float(np.mean(self.scores(parameters, records).argmax(axis=1) == records.labels))


class Softmax(_Classifier):
    """Logistic regression for any number of classes."""

    def __init__(self, features: int, classes: int) -> None:
        self._shape = _class_count(classes), whole_number("features", features, at_least=1)
        self.dimension = self._shape[0] * self._shape[1]

    def layers(
        self, parameters: FloatArray, records: Records, multiply: Multiply = row_products
    ) -> list[Layer]:
        """Return the one layer: predicted probabilities less the true class."""
        deltas = _class_deltas(self.scores(parameters, records, multiply), records)
        return [Layer(deltas, records.features, records.norms)]

    def scores(
        self, parameters: FloatArray, records: Records, multiply: Multiply = whole_products
    ) -> FloatArray:
        """Return the score of each class, a row a record."""
        return multiply(records.features, parameters.reshape(self._shape))


class OneHiddenLayer(_Classifier):
    """A network with one hidden layer of tanh units and a softmax."""

    def __init__(self, features: int, classes: int, units: int) -> None:
        self._features = whole_number("features", features, at_least=1)
        self._classes = _class_count(classes)
        self._units = whole_number("units", units, at_least=1)
        self._split = self._units * self._features
        self.dimension = self._split + self._classes * (self._units + 1)

    def start(self, *, seed: int) -> FloatArray:
        """Start from small random weights, or all units would stay alike."""
        rng = np.random.default_rng([_STREAM, whole_number("seed", seed, at_least=0)])
        first = rng.standard_normal(self._split) / np.sqrt(self._features)
        return np.concatenate([first, np.zeros(self.dimension - self._split)])

    def layers(
        self, parameters: FloatArray, records: Records, multiply: Multiply = row_products
    ) -> list[Layer]:
        """Return both layers, the error carried back through the second."""
        hidden, scores = self._forward(parameters, records, multiply)
        last = _class_deltas(scores, records)
        weights = parameters[self._split :].reshape(self._classes, -1)[:, :-1]
        first = multiply(last, weights.T) * (1.0 - hidden[:, :-1] ** 2)
        return [
            Layer(first, records.features, records.norms),
            Layer(last, hidden, row_norms(hidden)),
        ]

    def scores(self, parameters: FloatArray, records: Records) -> FloatArray:
        """Return the score of each class, a row a record."""
        return self._forward(parameters, records, whole_products)[1]

    def _forward(
        self, parameters: FloatArray, records: Records, multiply: Multiply
    ) -> tuple[FloatArray, FloatArray]:
        first = parameters[: self._split].reshape(self._units, self._features)
        hidden = np.ones((len(records), self._units + 1))
        np.tanh(multiply(records.features, first), out=hidden[:, :-1])
        return hidden, multiply(hidden, parameters[self._split :].reshape(self._classes, -1))


def _class_count(classes: int) -> int:
    if not classes:
        raise InvalidData("softmax and hidden need labels that are classes; found numbers")
    return whole_number("classes", classes, at_least=2, error=InvalidData)


def _class_deltas(scores: FloatArray, records: Records) -> FloatArray:
    """Return the predicted probabilities less the true class."""
    from scipy.special import log_softmax

    deltas = np.exp(log_softmax(scores, axis=1))
    deltas[np.arange(len(deltas)), records.labels.astype(np.int64)] -= 1.0
    return deltas


MODELS: Registry[type] = Registry(
    "model",
    Choice("logistic", "logistic: two classes", "logistic regression", Logistic),
    Choice("least-squares", "least squares: numbers", "linear regression", LeastSquares),
    Choice("softmax", "softmax: several classes", "logistic regression of classes", Softmax),
    Choice("hidden", "one hidden layer", "tanh units, then softmax", OneHiddenLayer, "UNITS"),
)
"""What devices train, by name. No package adds to it: a device would run a stranger's code."""


def model_named(name: str, *, features: int, classes: int) -> Model:
    """Return the model ``logistic``, ``least-squares``, ``softmax`` or ``hidden:UNITS``."""
    kind, _, units = name.partition(":")
    if kind == "hidden" and units.isdecimal() and len(units) <= 7:
        return OneHiddenLayer(features, classes, int(number("units", int(units), at_most=1e6)))
    if kind in MODELS and kind != "hidden" and not units:
        model: Model = MODELS[kind](features, classes)
        return model
    raise InvalidInput(
        f"model must be one of {', '.join(each.usage for each in MODELS.choices)}; "
        f"found {name!r:.60}"
    )
