"""Parameters whose gradients are reduced, and the parcels in which these travel."""

from __future__ import annotations

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


class Slot:
    """A parameter."""

    __slots__ = (
        "dtype",
        "filled",
        "hook",
        "late",
        "left",
        "name",
        "native",
        "param",
        "parcel",
        "sent",
        "sparse",
        "view",
    )

    def __init__(self, param: torch.Tensor, name: str, passes: int) -> None:
        self.param = param
        self.name = name
        self.left = passes  # Backward passes until its gradient is complete.
        self.sent = False  # Since the last synchronize().
        self.late = False  # Its gradient did not come in a step, and may not come again.
        self.filled = False  # With zeros, at the end of a pass of this step.
        self.sparse = 0  # Dimensions of its gradient that are sparse.
        self.hook: Any = None
        self.parcel: Parcel | None = None  # None: travels alone.
        self.native: _horo.Reduction | None = None
        self.dtype: torch.dtype | None = None  # That it is made for.
        # The place of its gradient in a bucket.
        self.view: torch.Tensor | None = None

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


class Parcel:
    """Gradients that are handed in together."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = list(slots)
        self.missing = len(self.slots)
        for slot in self.slots:
            slot.parcel = self

    def take(self, slot: Slot, gradient: torch.Tensor) -> None:
        """A gradient has come."""

    def finish(self, compression: Any, tensor: torch.Tensor, context: Any) -> None:
        """Of what was sent as a whole, which a group is not."""

    def send(self, gradients: Gradients) -> None:
        gradients.send([slot for slot in self.slots if slot.sent], together=True)
