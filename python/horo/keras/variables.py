"""The variables of a model and its optimizer, from rank to rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from horo.objects import allgather_object
from horo.operations import broadcast_async
from horo.process_sets import ProcessSet, global_process_set

# Of a layer that draws random numbers: each rank draws its own.
_SEED = "seed_generator_state"


def bring_up_to_date(model: Any) -> None:
    """On JAX variables are stale during fit(), and what is assigned to them is lost, unless the model is told."""
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def variables_of(model: Any, optimizer: Any = None) -> list[Any]:
    """What is equal on all ranks: weights, statistics, the optimizer's slots, counters and learning rate."""
    optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
    own = [] if optimizer is None else list(optimizer.variables)
    return [one for one in (*model.variables, *own) if _SEED not in one.path]


def values_of(variables: Iterable[Any]) -> list[Any]:
    """Copies, as arrays."""
    return [keras.ops.convert_to_numpy(one.value).copy() for one in variables]


def broadcast_variables(variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Gives variables of Keras the values that they have on `root_rank`. Called by all ranks, with equally many."""
    mine = list(variables)
    _check_alike(mine, root_rank, process_set)
    handles = [
        broadcast_async(keras.ops.convert_to_numpy(one.value), root_rank, f"variable.{index}", process_set)
        for index, one in enumerate(mine)
    ]
    for one, handle in zip(mine, handles, strict=True):
        value = handle.wait()
        one.assign(value.copy())  # The library's memory ends with the handle's array.


def _check_alike(variables: list[Any], root_rank: int, process_set: ProcessSet) -> None:
    described = [f"{keras.backend.standardize_dtype(one.dtype)}{list(one.shape)}" for one in variables]
    everybody = allgather_object((described, [one.path for one in variables]), "variables", process_set)
    ranks = process_set.ranks or list(range(len(everybody)))
    root, paths = everybody[ranks.index(root_rank)] if root_rank in ranks else everybody[0]
    for rank, (other, others_paths) in zip(ranks, everybody, strict=True):
        if len(other) != len(root):
            raise ValueError(
                f"rank {rank} has {len(other)} variables and rank {root_rank} has {len(root)}: all ranks need the same "
                "model, and an optimizer that is built on all ranks or on none"
            )
        for place, (one, like) in enumerate(zip(other, root, strict=True)):
            if one != like:
                raise ValueError(
                    f"variable {place} is {others_paths[place]} {one} on rank {rank} and {paths[place]} {like} on rank "
                    f"{root_rank}: all ranks need the same model"
                )
