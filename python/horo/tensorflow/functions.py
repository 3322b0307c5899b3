"""Variables and objects from rank to rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from horo import objects
from horo.grouping import in_groups
from horo.process_sets import ProcessSet, global_process_set
from horo.tensorflow.gradients import GROUP_BYTES, bytes_of, name_of
from horo.tensorflow.graph import unconverted
from horo.tensorflow.mpi_ops import broadcast_


@unconverted
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> None:
    """Gives variables the values that they have on `root_rank`: a few operations, then one assignment each.

    Variables of tf and of Keras, in the same order on all ranks. `inplace` is accepted and not needed.
    """
    given = list(variables)
    for group in in_groups(range(len(given)), given, None, GROUP_BYTES, bytes_of):
        broadcast_([given[index] for index in group], root_rank, name_of(given[group[0]]), process_set)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of `root_rank`, a rank of the job. `session` is TensorFlow 1's, and has to be None."""
    _check_session("broadcast_object", session)
    return objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, session: None = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of the ranks."""
    _check_session("allgather_object", session)
    return objects.allgather_object(obj, name, process_set)


def _check_session(what: str, session: Any) -> None:
    if session is not None:
        raise ValueError(f"{what} works without sessions, which are TensorFlow 1's: leave `session` out")


def _gone(name: str, replacement: str) -> NoReturn:
    raise NotImplementedError(f"{name} is for sessions and hooks of TensorFlow 1; use {replacement}")


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """TensorFlow 1's collection of all variables does not exist any more."""
    _gone("broadcast_global_variables", "broadcast_variables(model.variables, root_rank)")


def broadcast_object_fn(
    root_rank: int = 0,
    session: None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> NoReturn:
    _gone("broadcast_object_fn", "broadcast_object(obj, root_rank)")


class BroadcastGlobalVariablesHook:
    def __init__(self, root_rank: int, device: str = "") -> None:
        _gone(
            "BroadcastGlobalVariablesHook",
            "broadcast_variables(model.variables, root_rank), or Keras' BroadcastGlobalVariablesCallback",
        )


__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]
