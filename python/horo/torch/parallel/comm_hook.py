"""torch's own DistributedDataParallel with its gradients over horo:

model = torch.nn.parallel.DistributedDataParallel(module)
model.register_comm_hook(None, horo.torch.comm_hook)
"""

# No postponed annotations here: torch compares those of a hook with its types.
from typing import Any

import torch
import torch.distributed as dist

from horo import _horo
from horo.process_sets import ProcessSet, global_process_set
from horo.torch.parallel.members import finish
from horo.torch.tensors import dtype_number, place_of
from horo.world import interruptibly, world


def _future_of(buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """On a GPU it tells the stream that its result is used in when that is there."""
    return torch.futures.Future(devices=[buffer.device]) if buffer.is_cuda else torch.futures.Future()


class _Route:
    """The ordered group that buckets of torch's reducers take, and those under way."""

    def __init__(self, runtime: _horo.Runtime, process_set: ProcessSet) -> None:
        self.era = world.era
        ranks = runtime.set_ranks(process_set.number())
        self.group: _horo.Group = interruptibly(lambda: runtime.group(ranks))
        self.under_way: list[tuple[_horo.Request, torch.futures.Future, torch.Tensor]] = []

    def send(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        future = _future_of(buffer)
        address = buffer.data_ptr()
        device, stream = place_of(buffer)
        request = self.group.submit(
            _horo.KINDS["allreduce"],
            address,
            address,
            buffer,
            dtype=dtype_number(buffer, "allreduce"),
            op=_horo.REDUCTIONS["average"],
            count=buffer.numel(),
            device=device,
            stream=stream,
        )
        self.under_way.append((request, future, buffer))
        return future

    def settle(self) -> None:
        """Waits for all; on a GPU the current stream does, and what the futures tell comes after that. A failure
        becomes that of its future, and torch's reducer raises it."""
        all_of, self.under_way = self.under_way, []
        for request, future, buffer in all_of:
            try:
                finish(request, buffer)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(buffer)


_routes: dict[int, _Route] = {}


def _route_of(process_set: ProcessSet) -> _Route:
    number = process_set.number()
    route = _routes.get(number)
    if route is None or route.era != world.era:
        route = _routes[number] = _Route(world.runtime, process_set)
    return route


def comm_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages the buckets of torch's own DistributedDataParallel over horo, whatever its process group is.

    `state` is None, for all ranks of the job, or the ProcessSet of the ranks of its process group. Buckets travel while
    the backward pass goes on; the last one's hook waits for all of them, since its gradients were the last.
    """
    if state is not None and not isinstance(state, ProcessSet):
        raise TypeError(f"the state of horo.torch.comm_hook is None or a ProcessSet, not {type(state).__name__}")
    route = _route_of(global_process_set if state is None else state)
    future = route.send(bucket.buffer())
    if bucket.is_last():
        route.settle()
    return future
