"""Tapes whose gradients are those of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horo.collectives import Average
from horo.process_sets import ProcessSet, global_process_set
from horo.tensorflow.compression import Compression
from horo.tensorflow.gradients import Reduction
from horo.tensorflow.graph import unconverted
from horo.tensorflow.reductions import divided


class _Named:
    """Stands for a source that is to be known by its number."""

    def __init__(self, source: Any, index: int) -> None:
        self.shape, self.dtype, self.name = source.shape, source.dtype, f"{index}"


class _DistributedGradientTape(tf.GradientTape):
    def __init__(self, tape: tf.GradientTape, reduction: Reduction, scale_local_gradients: bool) -> None:
        # It goes on with what the other has recorded.
        self.__dict__.update(tape.__dict__)
        self._horo_reduction = reduction.checked()
        self._horo_scale = scale_local_gradients
        self._horo_local: set[int] = set()
        self._horo_kept: list[Any] = []  # So that no other gets the identity of one that is gone.

    def register_local_source(self, var: Any) -> None:
        """The gradient of `var` stays this rank's own, as of a layer that differs from rank to rank."""
        self._horo_local.add(id(var))
        self._horo_kept.append(var)

    def get_local_and_global_gradients(
        self, gradients: Sequence[Any], sources: Sequence[Any]
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Pairs of (gradient, source): those that stay here, and those that are reduced."""
        pairs = list(zip(gradients, sources, strict=True))
        local = [pair for pair in pairs if id(pair[1]) in self._horo_local]
        return local, [pair for pair in pairs if id(pair[1]) not in self._horo_local]

    @unconverted
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """As of the tape that was wrapped, but reduced over all ranks; with `use_generic_names` they are known by their
        numbers, where the names of variables differ from rank to rank."""
        flat = tf.nest.flatten(sources)
        found = tf.nest.flatten(super().gradient(target, flat, output_gradients, unconnected_gradients))
        if len(found) != len(flat):
            raise ValueError(f"{len(found)} gradients of {len(flat)} sources")
        shared = [None if id(source) in self._horo_local else one for one, source in zip(found, flat, strict=True)]
        named = [_Named(one, index) for index, one in enumerate(flat)] if use_generic_names else flat
        done = self._horo_reduction.reduce(shared, named)
        for index, source in enumerate(flat):
            if id(source) in self._horo_local:
                done[index] = self._scaled(found[index])
        return tf.nest.pack_sequence_as(sources, done)

    def _scaled(self, gradient: Any) -> Any:
        if gradient is None or not self._horo_scale or not self._horo_reduction.takes_part():
            return gradient
        members = self._horo_reduction.process_set
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(divided(gradient.values, members), gradient.indices, gradient.dense_shape)
        return divided(gradient, members)


@unconverted
def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The tape, but gradient() gives the gradients of all ranks.

    They go out in groups of about 25 MiB; `num_groups` makes so many, `groups` is a number or lists of variables. With
    `sparse_as_dense` the gradients of embeddings are made dense first. `gradient_predivide_factor` splits the division
    of an average: by it before the sum, by the rest after it. `device_dense` and `device_sparse` are accepted and not
    needed.
    """
    if isinstance(gradtape, _DistributedGradientTape):
        raise ValueError("this tape is distributed already: its gradients would be reduced twice")
    reduction = Reduction(compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set)
    return _DistributedGradientTape(gradtape, reduction, scale_local_gradients)


@unconverted
def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A DistributedGradientTape that leaves the gradients of `local_layers`, one or several, on their ranks."""
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    layers: Iterable[Any] = [] if local_layers is None else local_layers
    for layer in layers if isinstance(layers, (list, tuple, set)) else [layers]:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(f"local_layers are layers of Keras, not {layer!r}")
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
