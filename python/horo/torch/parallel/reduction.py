"""Drives the library's reducer from autograd: what Python alone can do for it.

The reducer is C++ and decides everything: buckets, their order, when one is handed in, what is divided by what. Its
hooks sit on the parameters themselves, without a frame of Python for each gradient. Here is the rest: tensors over the
buckets, when a backward pass begins and ends, gradients that do not lie as their parameter does, hooks in Python.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from horo import _horo
from horo.torch.parallel import flats, graph, hooks, sparse
from horo.torch.parallel.members import Members
from horo.torch.parallel.parameters import Parameters
from horo.torch.parallel.precision import Precision
from horo.torch.tensors import strides_of, tensor_reader
from horo.world import interruptibly

_REDUCED = _horo.OUTCOMES["reduced"]
_WITHOUT_PLACE = _horo.OUTCOMES["without_place"]


class Options(NamedTuple):
    first_limits: list[int]
    rebuilt_limits: list[int]
    find_unused: bool = False
    static_graph: bool = False
    views: bool = False
    skip_unused: bool = False
    small_bucket_last: bool = False


def _weakly(method: Callable) -> Callable:
    """The reducer keeps its callbacks, and who they belong to keeps the reducer."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> None:
        target = reference()
        if target is not None:
            target(*arguments)

    return call


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()


class Reduction:
    """The gradients of one module on one group. Made by all members together."""

    def __init__(
        self, parameters: Parameters, members: Members, options: Options, dtype: torch.dtype | None = None
    ) -> None:
        self.parameters = parameters
        self.members = members
        self.options = options
        self._carrier = (
            flats.Flats(parameters, members, dtype, views=options.views)
            if flats.are_needed(parameters.tensors)
            else None
        )
        self.native: _horo.Reducer = interruptibly(
            lambda: _horo.Reducer(members.group, tensor_reader(), self._descriptions(dtype), **options._asdict())
        )
        self.divisor = 0.0  # 0: the number of members.
        self.precision: Precision | None = None
        self.graph_is_static = True  # As far as seen: every iteration left the same parameters unused.
        self.awaited: list[torch.futures.Future] = []  # By the end of the backward pass.
        self._dtype = dtype
        self._find_unused = options.find_unused
        self._static = options.static_graph
        self._may_rebuild = bool(options.rebuilt_limits) and (options.static_graph or not options.find_unused)
        self._open = False  # A backward pass is to be reduced, or is being reduced.
        self._begun = False  # It has come to an output.
        self._queued = False  # Its end will be heard of.
        self._ending = False  # It is the end.
        self._unused: set[int] = set()
        self._unused_known = False
        self._marks: list[weakref.ref[graph.Mark]] = []
        self._odd: list[int] = []
        self._hook: hooks.PythonHook | None = None
        self._handles: list[Any] = []
        weakref.finalize(self, _remove, self._handles)
        self.native.on_bucket(_weakly(self._take_bucket))
        self.native.on_launched(_weakly(self._all_launched))
        self.native.on_odd(_weakly(self._take_odd))
        self._lay_out()
        for number, one in enumerate(parameters.tensors):
            self._handles.append(one.register_post_accumulate_grad_hook(self.native.hook(number)))

    def _descriptions(self, dtype: torch.dtype | None) -> list[tuple]:
        described = self.parameters.descriptions(dtype)
        if self._carrier is None:
            return described
        return [(*one[:-1], True) for one in described]  # Handed to this side one by one, as sparse ones are.

    # ---- Tensors over the buckets

    def _lay_out(self) -> None:
        native, tensors = self.native, self.parameters.tensors
        self.buckets: list[list[int]] = native.buckets()
        self._flats: list[torch.Tensor | None] = []
        if self._carrier is not None:
            self._order = [numbers[0] for numbers in self.buckets]
            limits = self.options.rebuilt_limits if self.rebuilt else self.options.first_limits
            self.buckets = self._carrier.plan(self._order, limits)
            return
        self._views: list[torch.Tensor | None] = [None] * len(tensors)
        for bucket, numbers in enumerate(self.buckets):
            first = tensors[numbers[0]]
            if self.parameters.sparse[numbers[0]]:
                self._flats.append(None)
                continue
            kind = first.dtype if self._dtype is None or not first.is_floating_point() else self._dtype
            flat = torch.from_numpy(native.memory(bucket)).view(kind)
            self._flats.append(flat)
            for number in numbers:
                offset = native.slot(number)[1] // kind.itemsize
                one = tensors[number]
                self._views[number] = flat.as_strided(one.shape, strides_of(one), offset)
        if self.options.views:
            native.set_views(self._views)

    def view(self, number: int) -> torch.Tensor:
        """A gradient in its bucket."""
        view = self._views[number]
        assert view is not None, "a sparse gradient has no place in a bucket"
        return view

    def remove_hooks(self) -> None:
        _remove(self._handles)

    # ---- One iteration

    def prepare_forward(self) -> bool:
        """True when the buckets were made anew."""
        self._queued = False
        if self._open and self._begun:
            if self._find_unused and not self.native.under_way():
                # It came to an output here but to no parameter, and other ranks wait for those.
                self._finish(rest_is_unused=True)
            self._open = False
        if not self._may_rebuild:
            return self.native.prepare_forward()
        # The ranks agree on new buckets, once: a wait that signals do not end by themselves.
        rebuilt = interruptibly(self.native.prepare_forward)
        self._may_rebuild = not self.rebuilt
        if rebuilt or (self._carrier is not None and not self._may_rebuild):
            self._lay_out()
        return rebuilt

    def prepare_backward(self, outputs: Iterable[torch.Tensor], *, synchronize: bool) -> None:
        """After a forward pass. Several may come before one backward pass."""
        outputs = list(outputs)
        unused: list[tuple[int, int]] = []
        if synchronize and self._find_unused and not self._static:
            used = graph.reached(outputs, self.parameters.numbers)
            missing = set(range(len(self.parameters))) - used
            if self._open and not self._begun:
                missing &= self._unused
            elif missing != self._unused and self._unused_known:
                self.graph_is_static = False
            self._unused, self._unused_known = missing, True
            unused = [(number, self._address(number)) for number in sorted(missing)]
        self._arm(unused, synchronize=synchronize)
        if not synchronize:
            return
        before = self._marks if self._open and not self._begun else []
        self._open, self._begun = True, False
        self._marks = [one for one in before if one() is not None] + graph.watch(outputs, self._begin)

    def _arm(self, unused: list[tuple[int, int]], *, synchronize: bool = True) -> None:
        if self._hook is not None:
            self._hook.reset()
        if self._carrier is not None:
            self._carrier.reset()
        self._odd.clear()
        self.native.prepare_backward(synchronize, unused)

    def _address(self, number: int) -> int:
        """Of what a parameter's gradient holds from passes before; 0: nothing."""
        param = self.parameters.tensors[number]
        gradient = param.grad
        if gradient is None or gradient.is_sparse:
            return 0
        if self._carrier is None and gradient.stride() != strides_of(param):
            param.grad = gradient = torch.empty_strided(gradient.shape, strides_of(param)).copy_(gradient)
        return gradient.data_ptr()

    def _begin(self, first: bool) -> None:
        """A backward pass has come to an output."""
        if not self._open:
            if not first:
                return  # A second time through the same graph; the hooks of the parameters will say so.
            # Another forward pass's, whose backward pass comes after one was reduced.
            self._arm([])
            self._open = True
        self._begun = True
        self._queue()

    def _all_launched(self) -> None:
        self._queue()

    def _queue(self) -> None:
        # For the pass that is going on. Behind an output this is the outermost one; in a reentrant checkpoint it is
        # an inner one, by whose end everything has been handed in.
        if not self._queued and not self._ending:
            self._queued = True
            graph.at_end_of_backward(self._end)

    def _end(self) -> None:
        self._queued = False
        if not self._open:
            return
        if self.native.all_launched():
            self._finish()
        elif not self.native.under_way():
            return  # torch.autograd.grad(), which is not for parameters.
        elif self._find_unused:
            self._finish(rest_is_unused=True)
        elif self._static or not graph.any_left(self._marks):
            self._finish()
        # Otherwise the rest may come with the backward pass of another output.

    def _finish(self, *, rest_is_unused: bool = False) -> None:
        self._open = self._begun = False
        self._ending = True
        hook = self._hook
        try:
            if rest_is_unused:
                self.native.ready_all()
            if self._carrier is not None and self.options.skip_unused:
                self.native.end_backward()
                self._carrier.launch_rest(hook)
            if hook is not None:
                self.native.end_backward()
                hook.deliver(self.native, self.members, self._carrier)
            outcomes = self.native.finish()
        except Exception as error:
            raise error from (hook.problem if hook is not None else None)
        finally:
            self._ending = False
            if self.precision is not None:
                self.precision.leave()
        if self._carrier is not None:
            self._carrier.place(outcomes)
        else:
            self._place(outcomes)
            self._reduce_sparse()
        for future in self.awaited:
            future.wait()
        self.awaited.clear()

    def _place(self, outcomes: list[int]) -> None:
        """Gives parameters their gradients, where the reducer could not write them."""
        tensors = self.parameters.tensors
        if max(outcomes) != _REDUCED:
            for number, outcome in enumerate(outcomes):
                if outcome == _WITHOUT_PLACE:
                    view = self.view(number)
                    tensors[number].grad = view if self.options.views else view.to(tensors[number].dtype, copy=True)
        for number in self._odd:
            tensors[number].grad.detach().copy_(self.view(number))
        if self.options.views and self._unused:
            for number in self._unused:
                if outcomes[number] == _REDUCED:
                    tensors[number].grad = self.view(number)

    def _reduce_sparse(self) -> None:
        if not any(self.parameters.sparse):
            return
        taken = () if self._hook is None else self._hook.sparse
        for number, is_sparse in enumerate(self.parameters.sparse):
            if is_sparse and number not in taken:
                sparse.average(self.parameters.tensors[number], self.members, self.divisor)

    def help(self, *, keep: bool) -> None:
        """One iteration of a rank that has no more data: its gradients are zeros. With `keep` it has those of its last
        batch again afterwards, otherwise the averages."""
        kept = [one.grad for one in self.parameters.tensors]
        for one in self.parameters.tensors:
            one.grad = None
        self._arm([])
        try:
            self._finish(rest_is_unused=True)
        finally:
            if keep:
                for one, gradient in zip(self.parameters.tensors, kept, strict=True):
                    one.grad = gradient

    def fail(self, why: str) -> None:
        """Raises on all members: here now, there at the end of their backward pass."""
        self._arm([])
        self.native.fail(why)
        self.native.finish()

    # ---- What the reducer calls

    def _take_odd(self, number: int, param: torch.Tensor) -> None:
        """A gradient that is not as its parameter was when it was wrapped, or not as it lies."""
        gradient = param.grad
        name = self.parameters.names[number]
        if gradient.is_sparse:
            gradient = param.grad = gradient.to_dense()
        view = self.view(number)
        same_kind = gradient.dtype == view.dtype or self.precision is not None
        if not (same_kind and gradient.is_cpu and gradient.shape == view.shape):
            raise ValueError(
                f"the gradient of parameter '{name}' is {gradient.dtype} {tuple(gradient.shape)} on "
                f"{gradient.device}, but the parameter was {view.dtype} {tuple(view.shape)} on the CPU when the "
                "module was wrapped; wrap it anew"
            )
        view.copy_(gradient.detach())
        if self.options.views:
            param.grad = view
        else:
            self._odd.append(number)
        self.native.ready(number, view.data_ptr())

    def _take_bucket(self, bucket: int) -> None:
        if self._carrier is not None:
            self._carrier.take(self._order[bucket], self._hook)
            return
        if self._hook is None:
            return  # Sparse ones are reduced at the end.
        numbers = self.buckets[bucket]
        tensors = [self.parameters.tensors[number] for number in numbers]
        flat = self._flats[bucket]
        if flat is None:
            flat = sparse.gradient_of(tensors[0])
            self._hook.sparse.add(numbers[0])
            gradients = [flat]
        else:
            gradients = [self.view(number) for number in numbers]
        given = hooks.GradBucket(bucket, len(self.buckets), flat, gradients, tensors)
        self._hook.call(given, self.parameters.names[numbers[0]])

    # ---- Settings

    def set_hook(self, hook: hooks.BuiltinHook, state: hooks.PowerSGDState | None) -> None:
        if self._carrier is not None:
            self._carrier.set_hook(hook)
            return
        if state is None:
            self.native.set_hook(hook.name)
            return
        self.native.set_hook(
            hook.name,
            rank=state.matrix_approximation_rank,
            start_iteration=state.start_powerSGD_iter,
            min_compression_rate=state.min_compression_rate,
            error_feedback=state.use_error_feedback,
            warm_start=state.warm_start,
            seed=state.random_seed,
        )

    def set_python_hook(self, state: Any, hook: Callable) -> None:
        self._hook = hooks.PythonHook(state, hook)
        if self._carrier is None:
            self.native.set_hook("caller")

    def set_divisor(self, divisor: float) -> None:
        """0: the number of members."""
        self.divisor = divisor
        if self._carrier is not None:
            self._carrier.divisor = divisor
        self.native.set_divisor(divisor)

    def set_static_graph(self) -> None:
        self._static = True
        self._may_rebuild = bool(self.options.rebuilt_limits)
        self.native.set_static_graph()

    def _install_post_backward_futures(self, futures: list[torch.futures.Future]) -> None:
        """torch's name: a hook for buffers has them waited for at the end of the backward pass."""
        self.awaited.extend(futures)

    @property
    def rebuilt(self) -> bool:
        return self.native.statistics()["rebuilt"]

    @property
    def finished(self) -> bool:
        return not self._open
