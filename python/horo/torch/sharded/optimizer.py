"""An optimizer whose state is divided among the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from horo import _horo
from horo.collectives import Average, reduction
from horo.process_sets import ProcessSet, global_process_set
from horo.torch.functions import allgather_object
from horo.torch.sharded.bucket import Bucket, Member, Piece, allocate, fill_buckets
from horo.torch.sharded.checkpoint import gather_state, take_state
from horo.torch.tensors import dtype_number, stream_of
from horo.world import SLICE_SECONDS, interruptibly, world

# Those that treat every element alone, so that pieces of parameters can be updated as whole ones are.
_ELEMENT_WISE = {
    getattr(torch.optim, name)
    for name in ["ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]
}
_ABSENT, _PRESENT, _SPARSE, _MOVED = range(4)  # What a rank says about a parameter's gradient; the largest counts.
_SCRATCHES = 2


def _wait(request: _horo.Request, tensor: torch.Tensor | None = None) -> None:
    """With a tensor on a GPU: its current stream does."""
    stream = None if tensor is None else stream_of(tensor)
    while not request.wait(SLICE_SECONDS, stream):  # Ctrl-C ends the waiting.
        pass


class ShardedOptimizer(torch.optim.Optimizer):
    """`optimizer_class` with its state divided among the ranks of `process_set` (ZeRO stage 1).

    All ranks make it with the same parameters and settings, at the same point of the program. `step()` reduces the
    gradients, each rank updates its slice of the parameters, and all get all of them: it takes the place of
    `DistributedOptimizer`. Where something else has averaged the gradients (DistributedDataParallel, say), pass
    `reduce_gradients=False`. Results are those of the optimizer itself with averaged gradients.

    `optimizer_class` must treat every element by itself, as torch.optim's SGD, Adam, AdamW and most others do; LBFGS,
    Muon, Adafactor and SparseAdam are refused. A class of your own that does so needs `element_wise=True`.

    The parameters move into memory of the library and keep their values, shapes and strides. `local` is the optimizer
    of this rank's pieces. A parameter whose gradient is None on all ranks is left alone; None on some counts as zeros.
    """

    def __init__(
        self,
        optimizer_class: type[torch.optim.Optimizer],
        params: Iterable[Any],
        *,
        reduce_gradients: bool = True,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        element_wise: bool = False,
        **settings: Any,
    ) -> None:
        if not element_wise and optimizer_class not in _ELEMENT_WISE:
            known = ", ".join(sorted(one.__name__ for one in _ELEMENT_WISE))
            raise ValueError(
                f"{optimizer_class.__name__} is not known to treat every element by itself, so its state cannot be "
                f"divided; known are {known}. If yours does, pass element_wise=True."
            )
        self._runtime, self._era = world.runtime, world.era
        self._process_set = process_set
        self._op = reduction(None, op)
        self._reduces = reduce_gradients
        self._reduced = False
        self._buckets: list[Bucket] = []
        self._scratch: list[torch.Tensor] = []
        self._whole: dict[str, Any] | None = None  # What consolidate_state_dict() has brought here.
        self._make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer] = lambda groups: optimizer_class(
            groups, **settings
        )
        self.local: torch.optim.Optimizer | None = None
        super().__init__(params, {})
        ranks = self._runtime.set_ranks(process_set.number())
        self._group = interruptibly(lambda: self._runtime.group(ranks))
        self._check_parameters()
        self._divide()

    # ---- What is whose

    def _parameters(self) -> list[torch.Tensor]:
        return [param for group in self.param_groups for param in group["params"]]

    def _name(self, number: int) -> str:
        names = [name for group in self.param_groups for name in group.get("param_names", [""] * len(group["params"]))]
        return f"parameter {number}" + (f" ('{names[number]}')" if names[number] else "")

    def _check_parameters(self) -> None:
        """Tells all ranks what is wrong with one of them, before anything is moved."""
        mine = [
            (tuple(one.shape), str(one.dtype), one.device.type, one.is_leaf, one.layout is torch.strided)
            for one in self._parameters()
        ]
        theirs = allgather_object(mine, "sharded_optimizer", self._process_set)
        for rank, other in zip(self._group.ranks, theirs, strict=True):
            if len(other) != len(mine):
                raise ValueError(f"rank {rank} has {len(other)} parameters, rank {world.runtime.rank()} {len(mine)}")
            for number, (one, two) in enumerate(zip(mine, other, strict=True)):
                if one != two:
                    raise ValueError(
                        f"{self._name(number)} differs: {one[0]} {one[1]} on {one[2]} here, "
                        f"{two[0]} {two[1]} on {two[2]} on rank {rank}"
                    )
        for number, (_, dtype, device, _, strided) in enumerate(mine):
            if device not in ("cpu", "cuda") or not strided or dtype.startswith("torch.complex"):
                raise ValueError(
                    f"{self._name(number)}: {dtype} on {device}; real, dense tensors on the CPU or a CUDA device can "
                    "be divided"
                )
        devices = sorted({str(one.device) for one in self._parameters()})
        if len(devices) > 1:
            raise ValueError(f"the parameters are on {' and '.join(devices)}; those of one device can be divided")

    def _divide(self) -> None:
        self._pieces: list[list[Piece]] = []
        for group in self.param_groups:
            self._add_buckets(group)
        self.local = self._make([self._settings_of(index) for index in range(len(self.param_groups))])
        self._make = lambda groups: self.local
        self.defaults = dict(self.local.defaults)
        for mine, its in zip(self.param_groups, self.local.param_groups, strict=True):
            for key, value in its.items():
                if key != "params":
                    mine.setdefault(key, value)

    def _add_buckets(self, group: dict[str, Any]) -> None:
        numbers = {id(param): number for number, param in enumerate(self._parameters())}
        members = [(numbers[id(param)], param) for param in group["params"]]
        buckets = fill_buckets(members, self._runtime, self._group)
        self._buckets += buckets
        self._pieces.append([piece for bucket in buckets for piece in bucket.pieces])

    def _settings_of(self, index: int) -> dict[str, Any]:
        """A parameter group of this rank's pieces."""
        group = {key: value for key, value in self.param_groups[index].items() if key not in ("params", "param_names")}
        return {**group, "params": [piece.values for piece in self._pieces[index]]}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """By all ranks, as the optimizer itself is made."""
        super().add_param_group(param_group)
        if self.local is None:
            return  # Of those that it is made with.
        group = self.param_groups[-1]
        for key, value in self.defaults.items():
            group.setdefault(key, value)
        self._check_parameters()
        self._add_buckets(group)
        self.local.add_param_group(self._settings_of(-1))

    # ---- A step

    def synchronize(self) -> None:
        """Reduces the gradients now, each rank getting its own slice, and not in step(). By all ranks.

        After it, `clip_grad_norm_()` or a look at the gradients of `local.param_groups`; then `step()`.
        """
        if self._reduced:
            return
        self._check_runtime()
        present = self._agree()
        self._reduce([bucket for bucket in self._buckets if any(present[one.number] for one in bucket.members)])
        for bucket in self._buckets:
            for piece in bucket.pieces:
                piece.values.grad = piece.of(bucket.gradient) if present[piece.member.number] else None
        self._reduced = True

    def _check_runtime(self) -> None:
        if world.era != self._era:
            raise ValueError(
                "horo was shut down, or a rank was lost, since this ShardedOptimizer was made; make a new one and load "
                "its state"
            )

    def _agree(self) -> list[bool]:
        """Which parameters have a gradient on some rank."""
        order = [member.number for bucket in self._buckets for member in bucket.members]
        said = [_word(bucket, member) for bucket in self._buckets for member in bucket.members]
        words = torch.tensor(said, dtype=torch.uint8)
        self._allreduce(words, "max")
        present = [False] * len(order)
        for number, word in zip(order, words.tolist(), strict=True):
            if word == _SPARSE:
                raise ValueError(f"the gradient of {self._name(number)} is sparse on some rank, and cannot be divided")
            if word == _MOVED:
                raise ValueError(
                    f"on some rank {self._name(number)} has another shape, dtype or device than when this optimizer "
                    "was made; make it after model.to()"
                )
            present[number] = word == _PRESENT
        return present

    def _allreduce(self, tensor: torch.Tensor, op: str) -> None:
        address = tensor.data_ptr()
        _wait(
            self._group.submit(
                _horo.KINDS["allreduce"],
                address,
                address,
                tensor,
                dtype=dtype_number(tensor, "allreduce"),
                op=_horo.REDUCTIONS[op],
                count=tensor.numel(),
            )
        )

    def _reduce(self, buckets: list[Bucket]) -> None:
        """One bucket is packed while another travels, in two pieces of memory that all share."""
        if not self._reduces:
            for bucket in buckets:
                bucket.take_gradients()
            return
        under_way: list[_horo.Request] = []
        for turn, bucket in enumerate(buckets):
            if turn >= _SCRATCHES:
                _wait(under_way[turn - _SCRATCHES], bucket.flat)
            memory = self._memory(turn % _SCRATCHES, bucket)
            bucket.pack(memory)
            under_way.append(bucket.reduce(memory, self._op))
        for request in under_way[-_SCRATCHES:]:
            _wait(request, buckets[0].flat)

    def _memory(self, which: int, bucket: Bucket) -> torch.Tensor:
        if not self._scratch:
            most = max(one.elements * one.dtype.itemsize for one in self._buckets)
            self._scratch = [allocate(self._runtime, most, bucket.flat.device) for _ in range(_SCRATCHES)]
        size = bucket.elements * bucket.dtype.itemsize
        if self._scratch[which].numel() < size:  # A parameter group came later.
            self._scratch[which] = allocate(self._runtime, size, bucket.flat.device)
        return self._scratch[which][:size].view(bucket.dtype)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """By all ranks: reduces the gradients, unless synchronize() has, and updates the parameters everywhere."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.synchronize()
        for mine, its in zip(self.param_groups, self.local.param_groups, strict=True):
            its.update({key: value for key, value in mine.items() if key not in ("params", "param_names")})
        self.local.step()
        self.local.zero_grad(set_to_none=True)
        for bucket, request in [(bucket, bucket.gather()) for bucket in self._buckets]:
            _wait(request, bucket.flat)
        self._reduced = False
        self._whole = None
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self._reduced = False

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """As torch.nn.utils.clip_grad_norm_(), of the reduced gradients. By all ranks, before step()."""
        self.synchronize()
        pieces = [piece.values for group in self._pieces for piece in group if piece.values.grad is not None]
        largest = norm_type == float("inf")
        parts = [torch.linalg.vector_norm(piece.grad, norm_type, dtype=torch.float64) for piece in pieces]
        total = torch.zeros(1, dtype=torch.float64)
        if parts:
            total[0] = max(parts) if largest else sum(part**norm_type for part in parts)
        self._allreduce(total, "max" if largest else "sum")
        norm = (total[0] if largest else total[0] ** (1.0 / norm_type)).to(torch.float32)
        factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for piece in pieces:
            piece.grad.mul_(factor.to(piece.dtype))
        return norm

    # ---- Checkpoints

    def consolidate_state_dict(self, to: int | None = 0) -> None:
        """By all ranks: brings the state to rank `to` of the process set, or to all (None), for state_dict()."""
        self._check_runtime()
        state = gather_state(self.local, self._buckets, self._process_set, _wait)
        self._whole = state if to is None or to == self._group.rank else None

    def state_dict(self) -> dict[str, Any]:
        """What `optimizer_class` itself would give, after consolidate_state_dict(); each loads the other's."""
        if self._whole is None:
            raise RuntimeError(
                "the state is divided among the ranks: call consolidate_state_dict() on all of them after the last "
                "step(), then state_dict() on the rank that it was brought to"
            )
        plain = super().state_dict()
        plain["state"] = self._whole
        return plain

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """By all ranks, with the whole state. Each keeps its part."""
        super().load_state_dict({**state_dict, "state": {}})
        take_state(self.local, self._buckets, state_dict["state"])
        self._whole = None

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a ShardedOptimizer cannot be copied or pickled; keep its consolidated state_dict()")


def _word(bucket: Bucket, member: Member) -> int:
    if not bucket.fits(member):
        return _MOVED
    gradient = member.param.grad
    if gradient is None:
        return _ABSENT
    return _SPARSE if gradient.layout is not torch.strided else _PRESENT
