"""The collectives of the back end, each in terms of one ordered operation on addresses."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from horo import _horo
from horo.torch.c10d import sparse
from horo.torch.c10d.memory import Place, dtype_of, place_of
from horo.torch.c10d.reduction import reduction_of
from horo.torch.c10d.work import Work, error_of

Tensor = torch.Tensor
_KINDS = _horo.KINDS


def as_list(tensors: Any) -> list[Any]:
    """torch's groups take one tensor where they take a list."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


class Collectives:
    """What the process group does with its ordered group. Mixed into it."""

    _group: _horo.Group | None
    _timeout: timedelta
    _rank: int
    _size: int

    def _start(self) -> None:
        self._sequence = 0
        self._coalescing = threading.local()

    def _members(self) -> _horo.Group:
        if self._group is None:
            raise RuntimeError("this process group of the back end horo was destroyed")
        return self._group

    def _seconds(self, given: timedelta | None) -> float:
        limit = given if given is not None and given > timedelta(0) else self._timeout
        return limit.total_seconds()

    def _work(self, requests: list[_horo.Request], results: list[Any], places: Sequence[Place], opts: Any) -> Work:
        steps = [place.back for place in places if place.back is not None]

        def finish() -> None:
            for step in steps:
                step()

        is_async = getattr(opts, "asyncOp", True)
        device = places[0].memory.device if places and places[0].memory.is_cuda else None
        work = Work(requests, results, finish if steps else None, is_async, device)
        together = getattr(self._coalescing, "works", None)
        if together is not None:
            together.append(work)
        return work

    def _submit(
        self,
        kind: str,
        source: Place | None,
        target: Place | None,
        opts: Any,
        **arguments: Any,
    ) -> _horo.Request:
        place = source or target
        if place is not None:
            arguments = {**place.arguments, **arguments}
        self._sequence += 1
        memory = [one.memory for one in (source, target) if one is not None]
        try:
            return self._members().submit(
                _KINDS[kind],
                source.address if source is not None else 0,
                target.address if target is not None else 0,
                memory,
                timeout=self._seconds(getattr(opts, "timeout", None)),
                **arguments,
            )
        except RuntimeError as error:
            raise error_of(error) from None

    # Reductions

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        opts = _options(c10d.AllreduceOptions, opts, timeout)
        tensors = as_list(tensors)
        if any(tensor.is_sparse for tensor in tensors):
            return sparse.allreduce(self, tensors, opts)
        requests, places = [], []
        for tensor in tensors:
            reduction = reduction_of(opts.reduceOp, tensor, "allreduce")
            place = place_of([tensor], "allreduce", read=True, write=True)
            dtype_of(tensor, "allreduce")
            requests.append(self._submit("allreduce", place, place, opts, count=place.counts[0], **reduction.arguments))
            places.append(place)
        return self._work(requests, tensors, places, opts)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> Work:
        if isinstance(opts, int):
            opts, root = c10d.ReduceOptions(), opts
            opts.rootRank = root
            if op is not None:
                opts.reduceOp = op
        opts = _options(c10d.ReduceOptions, opts, timeout)
        tensors = as_list(tensors)
        requests, places = [], []
        for tensor in tensors:
            reduction = reduction_of(opts.reduceOp, tensor, "reduce")
            at_root = self._rank == opts.rootRank
            place = place_of([tensor], "reduce", read=True, write=at_root)
            dtype_of(tensor, "reduce")
            target = place if at_root else None
            requests.append(
                self._submit(
                    "reduce", place, target, opts, count=place.counts[0], root=opts.rootRank, **reduction.arguments
                )
            )
            places.append(place)
        return self._work(requests, tensors, places, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        opts = _options(c10d.ReduceScatterOptions, opts, timeout)
        outputs = as_list(outputs)
        if inputs and isinstance(inputs[0], Tensor):
            inputs = [inputs]
        requests, places = [], []
        for output, parts in zip(outputs, inputs, strict=True):
            if len(parts) != self._size:
                raise ValueError(f"reduce_scatter takes {self._size} tensors, one for each rank, not {len(parts)}")
            self._reduce_scatter(output, list(parts), opts, requests, places)
        return self._work(requests, outputs, places, opts)

    def _reduce_scatter(
        self, output: Tensor, inputs: list[Tensor], opts: Any, requests: list[_horo.Request], places: list[Place]
    ) -> None:
        reduction = reduction_of(opts.reduceOp, output, "reduce_scatter")
        source = place_of(inputs, "reduce_scatter", read=True, write=False)
        target = place_of([output], "reduce_scatter", read=False, write=True)
        dtype_of(output, "reduce_scatter")
        _same_dtype(source, target, "reduce_scatter")
        counts = source.counts
        if len(inputs) == 1:
            if counts[0] != target.counts[0] * self._size:
                raise ValueError(
                    f"reduce_scatter of {counts[0]} elements to {self._size} ranks needs an output of "
                    f"{counts[0] / self._size:g}, not of {target.counts[0]}"
                )
            counts = target.counts * self._size
        elif counts[self._rank] != target.counts[0]:
            raise ValueError(
                f"reduce_scatter: the output has {target.counts[0]} elements, this rank's input {counts[self._rank]}"
            )
        requests.append(self._submit("reducescatter", source, target, opts, counts=counts, **reduction.arguments))
        places.append(target)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        opts = _options(c10d.ReduceScatterOptions, opts, None)
        requests, places = [], []
        for output, source in zip(outputs, inputs, strict=True):
            self._reduce_scatter(output, [source], opts, requests, places)
        return self._work(requests, list(outputs), places, opts)

    # Moves

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        if isinstance(opts, int):
            opts, root = c10d.BroadcastOptions(), opts
            opts.rootRank = root
        opts = _options(c10d.BroadcastOptions, opts, timeout)
        tensors = as_list(tensors)
        requests, places = [], []
        for tensor in tensors:
            at_root = self._rank == opts.rootRank
            place = place_of([tensor], "broadcast", read=at_root, write=not at_root)
            count = place.counts[0] * place.element
            requests.append(self._submit("broadcast", place, place, opts, count=count, root=opts.rootRank))
            places.append(place)
        return self._work(requests, tensors, places, opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        opts = _options(c10d.AllgatherOptions, opts, timeout)
        inputs = as_list(inputs)
        if outputs and isinstance(outputs[0], Tensor):
            outputs = [outputs]
        requests, places = [], []
        for parts, source in zip(outputs, inputs, strict=True):
            if len(parts) != self._size:
                raise ValueError(f"allgather takes {self._size} tensors for its results, not {len(parts)}")
            self._allgather(list(parts), source, opts, requests, places)
        return self._work(requests, [list(parts) for parts in outputs], places, opts)

    def _allgather(
        self, outputs: list[Tensor], input: Tensor, opts: Any, requests: list[_horo.Request], places: list[Place]
    ) -> None:
        source = place_of([input], "allgather", read=True, write=False)
        target = place_of(outputs, "allgather", read=False, write=True)
        _same_dtype(source, target, "allgather")
        counts = target.counts
        if len(outputs) == 1 and self._size > 1:
            counts = source.counts * self._size
            if sum(counts) != target.counts[0]:
                raise ValueError(
                    f"allgather of {source.counts[0]} elements from each of {self._size} ranks needs an output of "
                    f"{sum(counts)}, not of {target.counts[0]}"
                )
        elif counts[self._rank] != source.counts[0]:
            raise ValueError(
                f"allgather: the input has {source.counts[0]} elements, this rank's output {counts[self._rank]}"
            )
        counts = [count * source.element for count in counts]
        requests.append(self._submit("allgather", source, target, opts, counts=counts))
        places.append(target)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        opts = _options(c10d.AllgatherOptions, opts, None)
        requests, places = [], []
        for output, source in zip(outputs, inputs, strict=True):
            self._allgather([output], source, opts, requests, places)
        return self._work(requests, list(outputs), places, opts)

    def allgather_coalesced(self, output_lists: Any, inputs: Sequence[Tensor], opts: Any = None) -> Work:
        """output_lists[rank][i] is input i of that rank."""
        opts = _options(c10d.AllgatherOptions, opts, None)
        requests, places = [], []
        for index, source in enumerate(inputs):
            self._allgather([of_rank[index] for of_rank in output_lists], source, opts, requests, places)
        return self._work(requests, [list(of_rank) for of_rank in output_lists], places, opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        opts = _rooted(c10d.GatherOptions, opts, timeout)
        inputs = as_list(inputs)
        if outputs and isinstance(outputs[0], Tensor):
            outputs = [outputs]
        source = place_of(inputs[:1], "gather", read=True, write=False)
        target, counts = None, source.counts * self._size
        if self._rank == opts.rootRank:
            parts = list(outputs[0])
            if len(parts) != self._size:
                raise ValueError(f"gather takes {self._size} tensors for its results, not {len(parts)}")
            target = place_of(parts, "gather", read=False, write=True)
            _same_dtype(source, target, "gather")
            counts = target.counts
        counts = [count * source.element for count in counts]
        request = self._submit("gather", source, target, opts, counts=counts, root=opts.rootRank)
        return self._work([request], list(outputs), [target] if target is not None else [], opts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        opts = _rooted(c10d.ScatterOptions, opts, timeout)
        outputs = as_list(outputs)
        if inputs and isinstance(inputs[0], Tensor):
            inputs = [inputs]
        target = place_of(outputs[:1], "scatter", read=False, write=True)
        source, counts = None, target.counts * self._size
        if self._rank == opts.rootRank:
            parts = list(inputs[0])
            if len(parts) != self._size:
                raise ValueError(f"scatter takes {self._size} tensors, one for each rank, not {len(parts)}")
            source = place_of(parts, "scatter", read=True, write=False)
            _same_dtype(source, target, "scatter")
            counts = source.counts
        counts = [count * target.element for count in counts]
        request = self._submit("scatter", source, target, opts, counts=counts, root=opts.rootRank, **target.arguments)
        return self._work([request], outputs, [target], opts)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        opts = _options(c10d.AllToAllOptions, opts, timeout)
        source = place_of([input], "all_to_all_single", read=True, write=False)
        target = place_of([output], "all_to_all_single", read=False, write=True)
        _same_dtype(source, target, "all_to_all_single")
        sent = self._split(input, input_splits, source.element)
        received = self._split(output, output_splits, target.element)
        request = self._submit("alltoall", source, target, opts, counts=sent, receive_counts=received)
        return self._work([request], [output], [target], opts)

    def _split(self, tensor: Tensor, splits: Sequence[int], element: int) -> list[int]:
        """Elements for each rank."""
        if not splits:
            if tensor.numel() > 0 and tensor.size(0) % self._size != 0:
                raise RuntimeError(
                    f"Tensor's dim 0 ({tensor.size(0)}) does not divide equally across {self._size} ranks"
                )
            return [tensor.numel() // self._size * element] * self._size
        if len(splits) != self._size:
            raise RuntimeError(f"Number of tensor splits not equal to group size: {len(splits)} and {self._size}")
        rows = tensor.size(0) if tensor.dim() > 0 else 1
        if sum(splits) != rows:
            raise RuntimeError(f"Split sizes doesn't match total dim 0 size: they add up to {sum(splits)}, not {rows}")
        row = tensor.numel() // rows if rows > 0 else 0
        return [split * row * element for split in splits]

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        opts = _options(c10d.AllToAllOptions, opts, timeout)
        for tensors in (outputs, inputs):
            if len(tensors) != self._size:
                raise ValueError(f"alltoall takes {self._size} tensors, one for each rank, not {len(tensors)}")
        source = place_of(inputs, "alltoall", read=True, write=False)
        target = place_of(outputs, "alltoall", read=False, write=True)
        _same_dtype(source, target, "alltoall")
        sent = [count * source.element for count in source.counts]
        received = [count * target.element for count in target.counts]
        request = self._submit("alltoall", source, target, opts, counts=sent, receive_counts=received)
        return self._work([request], list(outputs), [target], opts)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        opts = _options(c10d.BarrierOptions, opts, timeout)
        return self._work([self._submit("barrier", None, None, opts)], [], [], opts)

    # The names that torch had for some of them before 2.13.

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Several at once: they run one after the other anyway, and are waited for together.

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._coalescing.works = []

    def _end_coalescing(self, device: torch.device | None = None) -> Work:
        works, self._coalescing.works = self._coalescing.works, None
        requests = [request for work in works for request in work.requests]

        def finish() -> None:
            for work in works:
                work.wait()

        return Work(requests, [result for work in works for result in work._results], finish)


def _same_dtype(source: Place, target: Place, what: str) -> None:
    if source.memory.dtype != target.memory.dtype:
        raise RuntimeError(f"{what} from {source.memory.dtype} to {target.memory.dtype}: both have to be the same")


def _options(kind: Any, given: Any, timeout: timedelta | None) -> Any:
    """Options of a kind, from what torch's groups take in their place."""
    if isinstance(given, timedelta):
        given, timeout = None, given
    if given is None or isinstance(given, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        options = kind()
        if given is not None:
            options.reduceOp = given
    else:
        options = given
    if timeout is not None:
        options.timeout = timeout
    return options


def _rooted(kind: Any, given: Any, timeout: timedelta | None) -> Any:
    if isinstance(given, int):
        options = kind()
        options.rootRank = given
        given = options
    return _options(kind, given, timeout)
