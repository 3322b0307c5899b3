"""Parameters whose gradients are reduced, and the parcels in which these travel."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from horo import _horo
from horo.process_sets import ProcessSet

if TYPE_CHECKING:
    from horo.torch.gradients import Gradients


class Settings(NamedTuple):
    compression: Any
    passes: int
    op: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet

    def scales(self) -> tuple[float, float]:
        return 1.0 / self.predivide, self.predivide


class Slot(_horo.Slot):
    """A parameter, and the hook of its gradient. What changes with every gradient is the compiled part's: `left`,
    `sent`, `parcel` (None: travels alone), `native`, and `view`, the place of its gradient in a bucket."""

    __slots__ = ("dtype", "hook", "name", "sparse")
    _torchdynamo_disable = True  # What torch.compiler.disable does, without importing the compiler.

    def __init__(
        self, param: torch.Tensor, name: str, arrivals: _horo.Arrivals, gradients: weakref.ref[Gradients], passes: int
    ) -> None:
        super().__init__(param, arrivals, gradients, passes)
        self.name = name
        self.sparse = 0  # Dimensions of its gradient that are sparse.
        self.hook: Any = None
        self.dtype: torch.dtype | None = None  # That `native` is made for.

    def zeros(self) -> torch.Tensor:
        """A gradient of this parameter that changes nothing."""
        if self.view is not None:
            return self.view.zero_()
        if self.sparse == 0:
            return torch.zeros_like(self.param)
        indices = torch.empty(self.sparse, 0, dtype=torch.int64)
        values = self.param.new_empty(0, *self.param.shape[self.sparse :])
        return torch.sparse_coo_tensor(indices, values, self.param.shape, check_invariants=False)


def too_many(slot: Slot) -> AssertionError:
    return AssertionError(
        "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
        f"backward_passes_per_step to accumulate gradients locally. (Parameter '{slot.name}')"
    )


class Parcel(_horo.Parcel):
    """Gradients that are handed in together, when none is `missing` any more."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        super().__init__(len(slots))
        self.slots = list(slots)
        for slot in self.slots:
            slot.parcel = self

    def take(self, slot: Slot, gradient: torch.Tensor) -> None:
        """A gradient has come."""

    def finish(self, compression: Any, tensor: torch.Tensor, context: Any) -> None:
        """Of what was sent as a whole, which a group is not."""

    def send(self, gradients: Gradients) -> None:
        gradients.send([slot for slot in self.slots if slot.sent], together=True)
