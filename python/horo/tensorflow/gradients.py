"""All gradients of a step as a few operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from horo.collectives import Adasum, Average, Sum
from horo.grouping import in_groups
from horo.process_sets import ProcessSet, global_process_set
from horo.tensorflow.compression import Compression
from horo.tensorflow.reductions import allreduce, dense, grouped_allreduce

# Fewer kernels than one for each variable, and the first gradients are on their way while others are computed.
GROUP_BYTES = 25 * 1024 * 1024


def name_of(variable: Any) -> str:
    """The path of a variable of Keras, or the name of another: the same on all ranks."""
    path = getattr(variable, "path", None)
    return path if isinstance(path, str) else str(getattr(variable, "name", "tensor")).partition(":")[0]


def bytes_of(thing: Any) -> int:
    """Of a variable, or of a tensor whose shape is known."""
    shape = tf.TensorShape(getattr(thing, "shape", None))
    return (shape.num_elements() or 0) * tf.as_dtype(thing.dtype).size


class Reduction(NamedTuple):
    """How gradients become those of all ranks: what optimizers and tapes are given."""

    compression: Any = Compression.none
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: Any = None
    process_set: ProcessSet = global_process_set

    def checked(self) -> Reduction:
        """Itself. Raises ValueError for what does not go together."""
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if self.op not in (Average, Sum, Adasum):
            raise ValueError(f"gradients are reduced with Average, Sum or Adasum, not with {self.op!r}")
        if self.groups is not None:
            whole = isinstance(self.groups, int) and not isinstance(self.groups, bool)
            lists = isinstance(self.groups, list) and all(isinstance(one, list) for one in self.groups)
            if not lists and not (whole and self.groups > 0):
                raise ValueError("groups should be a positive integer or a list of lists of variables")
        if self.num_groups < 0:
            raise ValueError("num_groups is not negative")
        return self

    def takes_part(self) -> bool:
        """Whether this rank is in the process set. All are in the global one, before init() too."""
        return self.process_set is global_process_set or self.process_set.included()

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Gradients of all ranks, None where there is none. Names come from the variables.

        A rank outside of the process set keeps its own.
        """
        given = [dense(one) if self.sparse_as_dense else one for one in gradients]
        done: list[Any] = list(given)
        if not self.takes_part():
            return done
        sparse = [index for index, one in enumerate(given) if isinstance(one, tf.IndexedSlices)]
        for index in sparse:
            name = f"gradient.{name_of(variables[index])}"
            done[index] = allreduce(
                given[index], compression=self.compression, op=self.op, name=name, process_set=self.process_set
            )
        others = [index for index, one in enumerate(given) if one is not None and index not in sparse]
        wanted = self.groups or self.num_groups or None
        for group in in_groups(others, variables, wanted, GROUP_BYTES, bytes_of):
            reduced = grouped_allreduce(
                [given[index] for index in group],
                compression=self.compression,
                op=self.op,
                prescale_factor=1.0 / self.gradient_predivide_factor,
                postscale_factor=self.gradient_predivide_factor,
                process_set=self.process_set,
                name=f"gradient.{name_of(variables[group[0]])}",
            )
            for index, one in zip(group, reduced, strict=True):
                done[index] = one
        return done
