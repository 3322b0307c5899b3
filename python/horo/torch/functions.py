"""Objects and states from rank to rank."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from horo.basics import rank
from horo.objects import allgather_object, broadcast_object
from horo.process_sets import ProcessSet, global_process_set
from horo.torch.mpi_ops import broadcast_async_, synchronize
from horo.torch.tensors import is_lazy, strides_of


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Gives all ranks the tensors of `root_rank`, in place.

    `params` is a dict such as `model.state_dict()`, or a list of tensors or of (name, tensor), such as
    `list(model.named_parameters())`. Values that are no tensors are replaced in the dict or list.
    """
    give_parameters(params, root_rank, global_process_set)


def give_parameters(params: Any, root_rank: int, process_set: ProcessSet) -> None:
    """broadcast_parameters() among some ranks."""
    if isinstance(params, dict):
        pairs = [(key, str(key), params[key]) for key in sorted(params, key=str)]
    elif isinstance(params, list):
        pairs = [
            (index, *(pair if isinstance(pair, tuple) else (f"parameter.{index}", pair)))
            for index, pair in enumerate(params)
        ]
    else:
        raise ValueError(f"invalid params of type: {type(params)}; give a dict or a list of (name, tensor)")
    objects = {key: value for key, _, value in pairs if not isinstance(value, torch.Tensor)}
    handles = [
        broadcast_async_(value, root_rank, name, process_set)
        for key, name, value in pairs
        if isinstance(value, torch.Tensor)
    ]
    for handle in handles:
        synchronize(handle)
    if objects:
        for key, value in broadcast_object(objects, root_rank, "parameters.objects", process_set).items():
            params[key] = (params[key][0], value) if isinstance(params, list) else value


class _Place(NamedTuple):
    """Stands for a tensor."""

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    on_host: bool


def _strides_on_the_way(tensor: torch.Tensor) -> tuple[int, ...]:
    """Of what a broadcast sends: as it lies if that is without gaps, and the same on all ranks."""
    if tensor.layout is not torch.strided or is_lazy(tensor):
        return torch.empty(tensor.shape, device="meta").stride()
    return strides_of(tensor)


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        shape, strides = tuple(value.shape), _strides_on_the_way(value)
        return _Place(len(tensors) - 1, shape, strides, value.dtype, value.device.type == "cpu")
    if isinstance(value, dict):
        return {key: _without_tensors(one, tensors) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_tensors(one, tensors) for one in value)
    return value


class _Rebuilding:
    """Puts tensors into the places of a value: those that are there already where they fit, else new ones."""

    def __init__(self) -> None:
        self._tensors: dict[int, torch.Tensor] = {}
        self._used: set[int] = set()

    def value(self, value: Any, mine: Any, device: torch.device) -> Any:
        if isinstance(value, _Place):
            return self._tensor(value, mine, device)
        if isinstance(value, dict):
            old = mine if isinstance(mine, dict) else {}
            return {key: self.value(one, old.get(key), device) for key, one in value.items()}
        if type(value) in (list, tuple):
            old = list(mine) if type(mine) is type(value) and len(mine) == len(value) else [None] * len(value)
            return type(value)(self.value(one, was, device) for one, was in zip(value, old, strict=True))
        return value

    def _tensor(self, place: _Place, mine: Any, device: torch.device) -> torch.Tensor:
        fits = isinstance(mine, torch.Tensor) and mine.shape == place.shape and mine.dtype == place.dtype
        fits = fits and _strides_on_the_way(mine) == place.strides
        if not fits or id(mine) in self._used:  # Two places may have shared one tensor here.
            where = "cpu" if place.on_host else device
            mine = torch.empty_strided(place.shape, place.strides, dtype=place.dtype, device=where)
        self._used.add(id(mine))
        self._tensors[place.number] = mine
        return mine

    def tensors(self) -> list[torch.Tensor]:
        """As the root counts them."""
        return [self._tensors[number] for number in range(len(self._tensors))]


def _sizes(optimizer: torch.optim.Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Gives all ranks the state and the options of `root_rank`'s optimizer, whether or not they have a state already.

    `model` is accepted and not needed.
    """
    del model
    give_optimizer_state(optimizer, root_rank, global_process_set)


def give_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, process_set: ProcessSet) -> None:
    """broadcast_optimizer_state() among some ranks."""
    is_root = rank() == root_rank
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    tensors: list[torch.Tensor] = []
    sent = None
    if is_root:
        number = {one: index for index, one in enumerate(parameters)}
        state = {number.get(key, key): value for key, value in optimizer.state.items()}
        groups = [{key: one for key, one in group.items() if key != "params"} for group in optimizer.param_groups]
        sent = (_sizes(optimizer), _without_tensors(state, tensors), _without_tensors(groups, tensors))
    sizes, state, groups = broadcast_object(sent, root_rank, "optimizer.state", process_set)
    problem = None
    if sizes != _sizes(optimizer):
        problem = f"rank {rank()} has parameter groups of {_sizes(optimizer)} parameters, rank {root_rank} of {sizes}"
    problems = [one for one in allgather_object(problem, "optimizer.problems", process_set) if one is not None]
    if problems:
        raise ValueError(f"broadcast_optimizer_state needs optimizers of equal parameters: {'; '.join(problems)}")
    if not is_root:
        tensors = _take_over(optimizer, parameters, state, groups)
    handles = [broadcast_async_(one, root_rank, f"optimizer.{index}", process_set) for index, one in enumerate(tensors)]
    for handle in handles:
        synchronize(handle)


def _take_over(
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.Tensor],
    state: dict[Any, Any],
    groups: list[dict[str, Any]],
) -> list[torch.Tensor]:
    """Gives an optimizer the root's state but for the tensors' contents. Returns the tensors.

    Dicts are changed and not replaced: a wrapper, a scheduler and the original may share them.
    """
    rebuilding = _Rebuilding()
    host = torch.device("cpu")
    kept = {}
    for key, value in state.items():
        owner = parameters[key] if isinstance(key, int) else key
        device = owner.device if isinstance(owner, torch.Tensor) else host
        kept[owner] = rebuilding.value(value, optimizer.state.get(owner), device)
    optimizer.state.clear()
    optimizer.state.update(kept)
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        device = group["params"][0].device if group["params"] else host
        group.update(rebuilding.value(values, group, device))
    return rebuilding.tensors()


__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]
