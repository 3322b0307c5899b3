"""Training with different numbers of batches: a rank that has no more helps the others until all are done."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING

from torch.distributed.algorithms.join import JoinHook

if TYPE_CHECKING:
    from horo.torch.parallel.module import DistributedDataParallel

_MANY_ITERATIONS = 1000


class Plan:
    """What an iteration does, on all members, and by whom: agreed at the beginning of a forward pass."""

    def __init__(self, everybody: list[list[int]]) -> None:
        self.active = [member for member, (active, _, _) in enumerate(everybody) if active]
        self.synchronizes = any(one[1] for one in everybody)
        self.buffers = any(one[2] for one in everybody)

    @property
    def source(self) -> int:
        """Whose buffers count. Rank 0 may have no more data, and old ones."""
        return self.active[-1]


class UnevenInputs:
    """What DistributedDataParallel.join() returns."""

    def __init__(
        self, ddp: DistributedDataParallel, *, divide_by_initial_world_size: bool, throw_on_early_termination: bool
    ) -> None:
        self._ddp = ddp
        self._by_initial_size = divide_by_initial_world_size
        self._throws = throw_on_early_termination
        self._helped = 0

    # ---- A rank that has data

    def agree(self, *, synchronizes: bool, buffers: bool) -> Plan:
        """Called by the forward pass."""
        members = self._ddp.reducer.members
        plan = Plan(members.exchange_numbers([1, int(synchronizes), int(buffers)]))
        if self._throws and len(plan.active) < members.size:
            raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        self._set_divisor(plan)
        return plan

    def _set_divisor(self, plan: Plan) -> None:
        self._ddp.reducer.set_divisor(0.0 if self._by_initial_size else float(len(plan.active)))

    # ---- A rank that has none

    def help(self, *, keep: bool = True) -> bool:
        """One iteration of the others. False when nobody has data any more. With `keep` gradients stay as they are."""
        ddp = self._ddp
        plan = Plan(ddp.reducer.members.exchange_numbers([0, 0, 0]))
        if not plan.active:
            return False
        if self._throws:
            raise RuntimeError(f"Rank {ddp.reducer.members.rank} exhausted all inputs.")
        self._helped += 1
        if self._helped == _MANY_ITERATIONS:
            warnings.warn(
                f"rank {ddp.reducer.members.rank} has had no more data for {_MANY_ITERATIONS} iterations and helps the "
                "others; share the data more evenly",
                stacklevel=2,
            )
        self._set_divisor(plan)
        if plan.synchronizes:
            ddp.reducer.prepare_forward()
        if plan.buffers:
            ddp.sync_buffers(plan.source)
        ddp.require_forward_param_sync = plan.synchronizes
        if plan.synchronizes:
            ddp.reducer.help(keep=keep)
        return True

    def end(self, *, is_last: bool) -> None:
        """All ranks get the model of one that was among the last with data."""
        ddp = self._ddp
        last = ddp.reducer.members.exchange_numbers([int(is_last)])
        ddp.broadcast_model(max(member for member, one in enumerate(last) if one[0]), buffers=ddp.forward_sync_buffers)
        ddp.reducer.set_divisor(0.0)

    # ---- A context

    def __enter__(self) -> None:
        self._ddp.uneven = self
        self._helped = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                while self.help():
                    pass
                self.end(is_last=self._helped == 0)
        finally:
            self._ddp.uneven = None
            if kind is not None or self._throws:
                self._ddp.reducer.set_divisor(0.0)


class UnevenInputsHook(JoinHook):
    """The same inside torch's Join context, with others."""

    def __init__(self, ddp: DistributedDataParallel, *, divide_by_initial_world_size: bool) -> None:
        self._uneven = ddp.uneven = UnevenInputs(
            ddp, divide_by_initial_world_size=divide_by_initial_world_size, throw_on_early_termination=False
        )

    def main_hook(self) -> None:
        self._uneven.help(keep=False)  # An optimizer in the same context may step next, with a share of the parameters.

    def post_hook(self, is_last_joiner: bool) -> None:
        self._uneven.end(is_last=is_last_joiner)
        self._uneven._ddp.uneven = None
