"""The operations, on arrays of JAX.

Outside of `jax.jit` they run at once. Inside of it only allreduce and grouped_allreduce can be used, which become part
of the compiled program and need a name there: programs are traced again when shapes change, on one rank perhaps, and
the ranks know operations by their names.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from horo import _horo
from horo.arrays import ArrayAdapter
from horo.collectives import Average, Collectives, Given, Sum, reduction
from horo.jax.handler import Reduction, reduce_in_program
from horo.process_sets import ProcessSet, global_process_set


class _JaxAdapter(ArrayAdapter):
    """Arrays on the host are read where they lie; results are copied, because the library's memory is used again."""

    def take(self, tensor: Any, kind: str) -> Given:
        if isinstance(tensor, jax.core.Tracer):
            raise ValueError(
                f"{kind} cannot be used inside jax.jit, jax.grad or jax.vmap; allreduce and grouped_allreduce can"
            )
        return super().take(tensor, kind)

    def take_in_place(self, tensor: Any, kind: str) -> Given:
        raise ValueError("arrays of JAX cannot be changed; use the operation that returns a new one")

    def read(self, native: _horo.Handle, index: int, given: Given) -> jax.Array:
        return jnp.array(super().read(native, index, given))

    def splits(self, rows: Any, like: Any) -> jax.Array:
        return jnp.array(super().splits(rows, like))


_now = Collectives(_JaxAdapter(), wait=True)

allgather = _now.allgather
grouped_allgather = _now.grouped_allgather
broadcast = _now.broadcast
reducescatter = _now.reducescatter
grouped_reducescatter = _now.grouped_reducescatter


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """(output, received_splits) with `splits`, output without."""
    output, received = _now.alltoall(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


class _How(NamedTuple):
    name: str | None
    op: int
    prescale: float
    postscale: float
    process_set: ProcessSet
    grouped: bool


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _allreduce(how: _How, tensors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    if any(isinstance(one, jax.core.Tracer) for one in tensors):
        return _in_program(how, tensors)
    if not how.grouped:
        return (_now.allreduce(tensors[0], None, *how[:-1]),)
    return tuple(_now.grouped_allreduce(tensors, None, *how[:-1]))


def _forward(how: _How, tensors: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], None]:
    return _allreduce(how, tensors), None


def _backward(how: _How, _: None, gradients: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...]]:
    if how.op not in (Average, Sum):
        raise ValueError("only allreduces with op Average or Sum have a gradient")
    name = None if how.name is None else f"{how.name}.grad"
    return (_allreduce(how._replace(name=name), gradients),)


_allreduce.defvjp(_forward, _backward)


def _in_program(how: _How, tensors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    kind = "grouped_allreduce" if how.grouped else "allreduce"
    if how.name is None:
        raise ValueError(
            f"{kind} needs a name inside jax.jit, jax.grad or jax.vmap: the ranks know operations by their names, and "
            "programs may be traced more often on one rank than on others"
        )
    name = f"{kind}.{how.name}"
    reduced = Reduction(name, reduction(None, how.op), how.prescale, how.postscale, how.process_set.number())
    return reduce_in_program([jnp.asarray(one) for one in tensors], reduced)


def allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """Elements of all ranks become one; the average without `op`. Also inside jit, with a name."""
    how = _How(name, op, prescale_factor, postscale_factor, process_set, grouped=False)
    return _allreduce(how, (tensor,))[0]


def grouped_allreduce(
    tensors: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """All arrays of a list, a dict or any other pytree as one operation, such as the gradients of a step."""
    leaves, tree = jax.tree.flatten(tensors)
    if not leaves:
        return tensors
    how = _How(name, op, prescale_factor, postscale_factor, process_set, grouped=True)
    return jax.tree.unflatten(tree, _allreduce(how, tuple(leaves)))


def broadcast_tree(
    tree: Any, root_rank: int = 0, name: str = "tree", process_set: ProcessSet = global_process_set
) -> Any:
    """A pytree with the arrays of `root_rank`, such as the parameters before the first step."""
    later = Collectives(_JaxAdapter(), wait=False)
    leaves, structure = jax.tree.flatten(tree)
    handles = [
        later.broadcast(leaf, root_rank, f"{name}.{index}of{len(leaves)}", process_set)
        for index, leaf in enumerate(leaves, start=1)
    ]
    return jax.tree.unflatten(structure, [handle.wait() for handle in handles])
