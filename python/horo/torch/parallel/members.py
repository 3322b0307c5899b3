"""Who takes part: the ranks of a process set or of a process group "horo", and an ordered group of them.

The group belongs to one model alone. All its members make the same calls in the same order: what is exchanged when the
model is wrapped, the buffers before a forward pass, the buckets of a backward pass.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import torch

from horo import _horo
from horo.process_sets import ProcessSet, global_process_set
from horo.torch.tensors import place_of, stream_of
from horo.world import SLICE_SECONDS, interruptibly, world

_ALLGATHER = _horo.KINDS["allgather"]
_BROADCAST = _horo.KINDS["broadcast"]
_BYTE = _horo.DTYPES["uint8"]
_LENGTH_BYTES = 8
# Tensors of this size are sent from where they are; smaller ones are put together.
_LARGE_BYTES = 1 << 20


def finish(request: _horo.Request, tensor: torch.Tensor | None = None) -> None:
    """Waits so that Ctrl-C ends the waiting; the operation goes on then. For a tensor on a GPU its current stream
    waits, and the thread only until the other ranks have come."""
    stream = None if tensor is None else stream_of(tensor)
    while not request.wait(SLICE_SECONDS, stream):
        pass


def _torch_group(given: Any) -> Any | None:
    """A process group of torch that horo carries; None when there is none."""
    import torch.distributed as dist

    if not dist.is_available():
        return None
    if given is None:
        given = dist.group.WORLD if dist.is_initialized() else None
    return given if hasattr(given, "ordered_group") else None


def resolve(given: Any) -> Any:
    """The process set or the process group that `process_group=` means."""
    if isinstance(given, ProcessSet):
        if not given.included():
            raise ValueError(f"rank {world.runtime.rank()} is not in {given}; only its members wrap the model")
        return given
    if given is None and world.initialized:
        return global_process_set
    found = _torch_group(given)
    if found is not None:
        return found
    if given is None:
        raise RuntimeError(
            "horo.torch.DistributedDataParallel needs a job: call hvd.init() first, or "
            'torch.distributed.init_process_group("horo")'
        )
    name = given.name() if hasattr(given, "name") else type(given).__name__
    raise ValueError(
        f"process_group is {name}, which horo does not carry: give a ProcessSet of horo or a process group of the back "
        'end "horo"; torch\'s own DistributedDataParallel on that group can have its gradients reduced by horo with '
        "register_comm_hook(None, horo.torch.comm_hook)"
    )


class Members:
    """The ordered group, and what is exchanged in it besides gradients."""

    def __init__(self, of: Any) -> None:
        self.of = of
        self._era: int | None = None
        if isinstance(of, ProcessSet):
            runtime, self._era = world.runtime, world.era
            ranks = runtime.set_ranks(of.number())
            self.group: _horo.Group = interruptibly(lambda: runtime.group(ranks))
        else:
            self.group = of.ordered_group(of.native_group.ranks)
        self.rank: int = self.group.rank
        self.size: int = self.group.size

    @property
    def is_default(self) -> bool:
        """Whether these are the members that a model gets without `process_group`."""
        try:
            return resolve(None) is self.of
        except RuntimeError:
            return False

    @property
    def gone(self) -> bool:
        """Whether the job was left, or has other ranks since."""
        return self._era is not None and (not world.initialized or world.era != self._era)

    def exchange(self, value: Any) -> list[Any]:
        """Everybody's value, by rank. Values are small."""
        mine = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        lengths = self.exchange_numbers([len(mine)])
        counts = [one[0] for one in lengths]
        everything = torch.empty(sum(counts), dtype=torch.uint8)
        finish(
            self.group.submit(
                _ALLGATHER, mine.data_ptr(), everything.data_ptr(), (mine, everything), dtype=_BYTE, counts=counts
            )
        )
        return [pickle.loads(bytes(part.tolist())) for part in everything.split(counts)]

    def exchange_numbers(self, numbers: Sequence[int]) -> list[list[int]]:
        """Everybody's numbers, by rank, equally many of each."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        everybody = torch.empty(self.size, len(numbers), dtype=torch.int64)
        finish(
            self.group.submit(
                _ALLGATHER,
                mine.data_ptr(),
                everybody.data_ptr(),
                (mine, everybody),
                dtype=_BYTE,
                counts=[len(numbers) * _LENGTH_BYTES] * self.size,
            )
        )
        return everybody.tolist()

    def gather(self, tensor: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        """The rows of all members, of which each has as many as `rows` says."""
        mine = tensor.contiguous()
        everything = tensor.new_empty((sum(rows), *tensor.shape[1:]))
        width = mine.element_size() * (mine[:1].numel() if len(mine) else everything[:1].numel())
        counts = [width * one for one in rows]
        if sum(counts):
            finish(
                self.group.submit(
                    _ALLGATHER, mine.data_ptr(), everything.data_ptr(), (mine, everything), dtype=_BYTE, counts=counts
                )
            )
        return everything

    def broadcast(self, tensors: Sequence[torch.Tensor], root: int) -> None:
        """The tensors of member `root`, in place, on all members."""
        small: dict[tuple[torch.dtype, str], list[torch.Tensor]] = {}
        for tensor in [one.detach() for one in tensors]:
            if tensor.numel() == 0:
                continue
            if tensor.nbytes >= _LARGE_BYTES and tensor.is_contiguous():
                self._broadcast_bytes(tensor, root)
            else:
                small.setdefault((tensor.dtype, tensor.device.type), []).append(tensor)
        for some in small.values():
            flat = torch.cat([one.reshape(-1) for one in some])
            self._broadcast_bytes(flat, root)
            if self.rank != root:
                pieces = flat.split([one.numel() for one in some])
                for one, piece in zip(some, pieces, strict=True):
                    one.copy_(piece.view(one.shape))

    def _broadcast_bytes(self, tensor: torch.Tensor, root: int) -> None:
        address = tensor.data_ptr()
        device, stream = place_of(tensor)
        finish(
            self.group.submit(
                _BROADCAST,
                address,
                address,
                tensor,
                dtype=_BYTE,
                count=tensor.nbytes,
                root=root,
                device=device,
                stream=stream,
            ),
            tensor,
        )
