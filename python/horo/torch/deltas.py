"""Adasum: not gradients are combined but what an optimizer makes of them, the changes of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from horo.torch.gradients import Gradients
from horo.torch.mpi_ops import Adasum, allreduce_async_, synchronize
from horo.torch.parcels import Slot, too_many


class Deltas(Gradients):
    """Every rank steps by itself; the steps are combined, and done from where all ranks were."""

    averages_losses = False
    in_gradients = False

    def arrived(self, slot: Slot) -> None:
        if slot.left <= 0:
            raise too_many(slot)
        slot.left -= 1

    def synchronize(self) -> None:
        """There is nothing to wait for before step()."""

    def check_skipping(self) -> None:
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        self.adopt()
        if not self.works():
            return self.optimizer.step(closure)
        slots = [slot for slot in self.slots.values() if slot.param.requires_grad]
        starts = [slot.param.detach().clone() for slot in slots]
        loss = self.optimizer.step(closure)
        compression = self.settings.compression
        sent = []
        for slot, start in zip(slots, starts, strict=True):
            tensor, context = compression.compress(slot.param.detach() - start)
            handle = allreduce_async_(tensor, name=slot.name, op=Adasum, process_set=self.settings.process_set)
            sent.append((handle, context))
        with torch.no_grad():
            for slot, start, (handle, context) in zip(slots, starts, sent, strict=True):
                slot.param.copy_(start.add_(compression.decompress(synchronize(handle), context)))
        self.reset()
        return loss
