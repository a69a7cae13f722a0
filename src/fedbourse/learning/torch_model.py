"""Any torch module as a model, each record's gradient taken and clipped by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fedbourse.errors import InvalidInput, MissingExtra
from fedbourse.game.columns import FloatArray
from fedbourse.learning.models import clip_factors
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records, row_norms
from fedbourse.units import whole_number

if TYPE_CHECKING:
    import torch

    Tensor: TypeAlias = torch.Tensor
    RecordLoss = Callable[[Tensor, Tensor], Tensor]


class TorchModel:
    """A ``torch.nn.Module`` that maps a batch of features to class scores, or to numbers.

    The module works in double precision, like everything that leaves a device. A layer that mixes
    the records of a batch, as batch normalisation does, would let one record move more than its own
    gradient, and is refused. It is for studies: no card can name one, and torch may round a record
    by where it stands in its batch.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        classes: int,
        loss: RecordLoss | None = None,
        at_once: int = 256,
    ) -> None:
        """Take a module, the number of classes (0: numbers), and how many records go at once.

        ``loss`` maps one record's output and label to one number; by default cross-entropy, or half
        the squared error for numbers.
        """
        torch = _torch()
        for layer in module.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._NormBase) and not isinstance(
                layer, torch.nn.modules.instancenorm._InstanceNorm
            ):
                raise InvalidInput(
                    f"{type(layer).__name__} mixes the records of a batch, so that one record "
                    "moves more than its own gradient; use GroupNorm or LayerNorm"
                )
        self._module = module.double().eval()
        self._classes = whole_number("classes", classes, at_least=0)
        self._loss: RecordLoss = loss or (_cross_entropy if self._classes else _squared_error)
        self._at_once = whole_number("at_once", at_once, at_least=1)
        self._shapes = {name: p.shape for name, p in module.named_parameters()}
        self.dimension = sum(p.numel() for p in module.parameters())
        if not self.dimension:
            raise InvalidInput("a model must have parameters; found none")

    def start(self, *, seed: int) -> FloatArray:
        """Return the parameters that the module came with."""
        parameters = [p.detach().numpy().ravel() for p in self._module.parameters()]
        return np.concatenate(parameters).astype(np.float64)

    def clipped_means(
        self, parameters: FloatArray, federation: Federation, *, clip: float
    ) -> FloatArray:
        """Return each owner's mean of clipped gradients."""
        torch = _torch()
        named = self._named(parameters)

        def one(named: dict[str, Tensor], features: Tensor, label: Tensor) -> Tensor:
            output = torch.func.functional_call(self._module, named, (features[None],))
            return self._loss(output[0], label)

        each = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))
        means = np.empty((federation.owners, self.dimension))
        owners = zip(federation.parts, federation.parts_fit, federation.divisors, strict=True)
        for i, (records, fits, divisor) in enumerate(owners):
            total = np.zeros(self.dimension)
            for start in range(0, len(records), self._at_once):
                rows_now = slice(start, start + self._at_once)
                features, labels = self._tensors(records, rows_now)
                parts = each(named, features, labels).values()
                rows = torch.cat([part.reshape(len(labels), -1) for part in parts], dim=1)
                gradients: FloatArray = rows.numpy()
                with np.errstate(all="ignore"):
                    norms = row_norms(gradients)
                # One record without a finite gradient must not spoil the update of all others.
                finite = np.isfinite(norms)
                if fits is not None:
                    finite &= fits[rows_now]
                norms = np.where(finite, norms, 0.0)
                factors = clip_factors(norms, [norms], clip)
                total += factors @ np.where(finite[:, None], gradients, 0.0)
            means[i] = total / divisor
        return means

    def loss(self, parameters: FloatArray, records: Records) -> float:
        """Return the mean loss."""
        torch = _torch()
        _, labels = self._tensors(records, slice(None))
        losses = torch.func.vmap(self._loss)(self._outputs(parameters, records), labels)
        return float(losses.mean())

    def accuracy(self, parameters: FloatArray, records: Records) -> float:
        """Return the part of records predicted right, or R squared."""
        outputs = self._outputs(parameters, records).numpy()
        if self._classes:
            return float(np.mean(outputs.argmax(axis=1) == records.labels))
        spread = float(np.var(records.labels))
        error = float(np.mean((outputs.reshape(-1) - records.labels) ** 2))
        return 1.0 - error / spread if spread else 0.0

    def _outputs(self, parameters: FloatArray, records: Records) -> Tensor:
        torch = _torch()
        features, _ = self._tensors(records, slice(None))
        with torch.no_grad():
            output: Tensor = torch.func.functional_call(
                self._module, self._named(parameters), (features,)
            )
        return output

    def _named(self, parameters: FloatArray) -> dict[str, Tensor]:
        torch = _torch()
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        parts = torch.from_numpy(np.array(parameters)).split(sizes)
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def _tensors(self, records: Records, rows: slice) -> tuple[Tensor, Tensor]:
        torch = _torch()
        labels = records.labels[rows]
        return (
            torch.from_numpy(np.array(records.features[rows])),
            torch.from_numpy(labels.astype(np.int64) if self._classes else np.array(labels)),
        )


def _cross_entropy(output: Tensor, label: Tensor) -> Tensor:
    loss: Tensor = _torch().nn.functional.cross_entropy(output[None], label[None])
    return loss


def _squared_error(output: Tensor, label: Tensor) -> Tensor:
    error: Tensor = (output.reshape(()) - label) ** 2 / 2
    return error


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch models need torch: pip install 'fedbourse[torch]'") from None
    return torch
