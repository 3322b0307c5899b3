"""An optimizer of torch whose gradients are those of all ranks."""

from __future__ import annotations

import contextlib
import copy
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from horo.process_sets import ProcessSet, global_process_set
from horo.torch.buckets import BucketedGradients
from horo.torch.compression import Compression
from horo.torch.deltas import Deltas
from horo.torch.gradients import Gradients
from horo.torch.mpi_ops import Adasum, Average, Sum, allreduce
from horo.torch.parcels import Parcel, Settings
from horo.world import world

# What belongs to the wrapper; everything else is the original's.
_OWN = frozenset({"_original", "_gradients", "_arguments", "_synchronizes"})


class _Distributed:
    """In front of an optimizer's class in a class made of the two. The wrapper has no parameters and no state: what it
    lacks is looked up in the original, and what is set is set there."""

    _original: torch.optim.Optimizer
    _gradients: Gradients | Deltas
    _arguments: dict[str, Any]
    _synchronizes: bool

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:  # Of a wrapper that is not made yet.
            raise AttributeError(name)
        return getattr(self._original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Schedulers and others put functions in the place of methods: each object has its own.
        if name in _OWN or hasattr(_Distributed, name):
            object.__setattr__(self, name, value)
        else:
            setattr(self._original, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            object.__delattr__(self, name)
        else:
            delattr(self._original, name)

    def __repr__(self) -> str:
        return repr(self._original)

    # Whoever reads it may be in no job, and have no horo: it becomes the original.
    def __reduce_ex__(self, protocol: Any) -> Any:
        return operator.getitem, ([self._original], 0)

    def __getstate__(self) -> Any:
        return self._original.__getstate__()

    def __setstate__(self, state: Any) -> None:
        self._original.__setstate__(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        original = copy.deepcopy(self._original, memo)
        old = [param for group in self._original.param_groups for param in group["params"]]
        new = [param for group in original.param_groups for param in group["params"]]
        twins = dict(zip(old, new, strict=True))
        arguments = dict(self._arguments)
        arguments["names"] = {twins[param]: name for param, name in self._parameter_names.items() if param in twins}
        if isinstance(arguments["groups"], list):
            arguments["groups"] = [[twins[param] for param in group] for group in arguments["groups"]]
        memo[id(self)] = copied = _wrap(type(self), original, **arguments)
        return copied

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        return self._gradients.names

    @property
    def backward_passes_per_step(self) -> int:
        return self._gradients.settings.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes add to a gradient before it is reduced."""
        _check_passes(passes)
        self._gradients.set_passes(passes)
        self._arguments["settings"] = self._gradients.settings

    def state_dict(self) -> dict[str, Any]:
        return self._original.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._original.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self._original.add_param_group(param_group)
        self._gradients.adopt()

    def synchronize(self) -> None:
        """Waits until all gradients are those of all ranks. Parameters without a gradient get zeros first."""
        self._gradients.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() in this context reduces nothing: synchronize() was called before."""
        self._gradients.check_skipping()
        self._synchronizes = False
        try:
            yield
        finally:
            self._synchronizes = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step with the gradients of all ranks. A closure's loss is averaged, too, so that optimizers that look at it
        decide the same on all ranks."""
        gradients = self._gradients
        if closure is None or not (gradients.averages_losses and gradients.works()):
            if self._synchronizes and not gradients.synchronized:
                gradients.synchronize()
            return gradients.step(closure)
        if self._synchronizes and not gradients.untouched() and not gradients.synchronized:
            gradients.synchronize()

        def on_all_ranks() -> Any:
            with torch.enable_grad():
                loss = closure()
            if self._synchronizes:
                gradients.synchronize()
            if loss is None:
                return None
            mean = torch.as_tensor(loss, dtype=None if isinstance(loss, torch.Tensor) else torch.float64)
            return allreduce(mean.detach(), name=gradients.loss_name(), process_set=gradients.settings.process_set)

        return gradients.step(on_all_ranks)

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._gradients.outstanding():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        self._original.zero_grad(set_to_none)
        self._gradients.reset()


def _wrap(
    cls: type,
    original: torch.optim.Optimizer,
    *,
    names: dict[torch.Tensor, str],
    settings: Settings,
    groups: Any,
    in_buckets: bool,
) -> Any:
    wrapper = object.__new__(cls)
    wrapper._original = original
    wrapper._arguments = {"names": names, "settings": settings, "groups": groups, "in_buckets": in_buckets}
    wrapper._synchronizes = True
    if settings.op == Adasum and world.runtime.size() > 1:
        wrapper._gradients = Deltas(original, names, settings)
    else:
        if settings.op == Adasum:
            settings = settings._replace(op=Average)
        wrapper._gradients = (BucketedGradients if in_buckets else Gradients)(original, names, settings)
        for members in _parcels(original, wrapper._gradients, groups):
            Parcel(members)
    return wrapper


def _parcels(optimizer: torch.optim.Optimizer, gradients: Gradients, groups: Any) -> list[list[Any]]:
    if groups is None:
        return []
    if isinstance(groups, list):
        return [[gradients.slots[param] for param in group if param.requires_grad] for group in groups]
    slots = [slot for slot in gradients.slots.values() if slot.param.requires_grad]
    slots.sort(key=lambda slot: slot.name)
    count = min(groups, len(slots))
    share, more = divmod(len(slots), max(count, 1))
    parcels, begin = [], 0
    for index in range(count):
        end = begin + share + (index < more)
        parcels.append(slots[begin:end])
        begin = end
    return parcels


def _check_passes(passes: Any) -> None:
    if not isinstance(passes, int) or isinstance(passes, bool) or passes <= 0:
        raise ValueError(f"backward_passes_per_step must be > 0, an integer; it is {passes!r}")


def _names(optimizer: torch.optim.Optimizer, named_parameters: Any) -> dict[torch.Tensor, str]:
    params = [param for group in optimizer.param_groups for param in group["params"]]
    if named_parameters is None:
        return {}
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    seen: set[str] = set()
    twice = sorted({name for name, _ in pairs if name in seen or seen.add(name)})
    if twice:
        raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}")
    names = {param: name for name, param in pairs}
    nameless = [param for param in params if param not in names]
    if nameless:
        shapes = ", ".join(str(tuple(param.shape)) for param in nameless[:5])
        raise ValueError(
            f"named_parameters was specified, but one or more model parameters were not named: {len(nameless)}, of "
            f"shape {shapes}{', ...' if len(nameless) > 5 else ''}. Give the names of all parameters, or none."
        )
    return names


def _check_groups(optimizer: torch.optim.Optimizer, groups: Any) -> Any:
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool) and groups > 0:
        return groups
    if not isinstance(groups, list):
        raise ValueError("groups should be a positive integer or a list of list of torch.Tensor.")
    known = {id(param) for group in optimizer.param_groups for param in group["params"]}
    seen: set[int] = set()
    for group in groups:
        if not isinstance(group, (list, tuple)):
            raise ValueError("groups should be a positive integer or a list of list of torch.Tensor.")
        for param in group:
            if not isinstance(param, torch.Tensor):
                raise ValueError("groups must consist of torch.Tensor.")
            if id(param) in seen:
                raise ValueError("A parameter can only appear once in groups.")
            if id(param) not in known:
                raise ValueError(f"groups has a tensor of shape {tuple(param.shape)} that the optimizer does not have.")
            seen.add(id(param))
    return [list(group) for group in groups if group]


def _check_settings(settings: Settings) -> None:
    if settings.op not in (Average, Sum, Adasum):
        raise ValueError(f"op must be Average, Sum or Adasum; it is {settings.op!r}")
    if settings.predivide != 1.0 and settings.op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if not settings.predivide > 0:
        raise ValueError(f"gradient_predivide_factor must be positive; it is {settings.predivide!r}")
    if not callable(getattr(settings.compression, "compress", None)):
        raise ValueError(f"{settings.compression!r} is no compressor; see Compression")
    if not isinstance(settings.process_set, ProcessSet):
        raise ValueError(f"process_set must be a ProcessSet; it is {settings.process_set!r}")
    _check_passes(settings.passes)


def make(
    module_name: str,
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    gradient_as_bucket_view: bool = False,
) -> Any:
    """DistributedOptimizer() for front ends with another name: the class that it makes says that it is of module
    `module_name`, which libraries look at."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"DistributedOptimizer wraps a torch.optim.Optimizer, not {type(optimizer).__name__}")
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is distributed already; wrap the original")
    settings = Settings(
        compression, backward_passes_per_step, op, float(gradient_predivide_factor), sparse_as_dense, process_set
    )
    _check_settings(settings)
    if num_groups != 0:
        warnings.warn("Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    groups = _check_groups(optimizer, groups)
    if gradient_as_bucket_view and (groups is not None or op == Adasum):
        raise ValueError("gradient_as_bucket_view makes groups of its own: neither groups nor op=Adasum go with it")
    names = _names(optimizer, named_parameters)
    cls = type(type(optimizer).__name__, (_Distributed, type(optimizer)), {"__module__": module_name})
    return _wrap(cls, optimizer, names=names, settings=settings, groups=groups, in_buckets=gradient_as_bucket_view)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    gradient_as_bucket_view: bool = False,
) -> Any:
    """Wraps an optimizer so that it steps with the gradients of all ranks, averaged.

    The wrapper is of a class made of the optimizer's, and shares everything with it: `param_groups`, `state`,
    `defaults`, hooks. Checkpoints of either load into either; schedulers may be built on either. Pickling gives the
    plain optimizer; a deep copy is wrapped again.

    Gradients are reduced while the backward pass goes on, and are averages when `backward()` returns if it has brought
    those of the same parameters on all ranks; else, and with `HORO_WAIT_IN_BACKWARD=0`, only after `synchronize()` or
    `step()`.

    :param named_parameters: pairs of names and parameters, such as `model.named_parameters()`; by the names the ranks
        know which gradients belong together. Without them places in `param_groups` are the names.
    :param compression: how gradients travel, such as `Compression.fp16`.
    :param backward_passes_per_step: so many backward passes add to the gradients before they are reduced.
    :param op: `Average`, `Sum`, or `Adasum`, which combines the changes of the parameters instead of the gradients.
    :param gradient_predivide_factor: gradients are divided by it before and multiplied after the sum; with Average.
    :param num_groups: the older name of an integer `groups`.
    :param groups: how many groups of gradients are reduced together, or the groups themselves, as lists of parameters.
    :param sparse_as_dense: sparse gradients are made dense before they are reduced.
    :param process_set: the ranks that reduce together.
    :param gradient_as_bucket_view: gradients lie in memory that the other ranks of the host can read, in buckets: one
        copy in, none out. `zero_grad(set_to_none=False)` zeroes them there; after `set_to_none=True` the next backward
        pass puts them back there.
    """
    return make(
        "horo.torch.optimizer",
        optimizer,
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        sparse_as_dense,
        process_set,
        gradient_as_bucket_view,
    )
