"""The gradients of a step, reduced over all ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from horo.collectives import Average, Max, Sum
from horo.grouping import in_groups
from horo.keras.backends import backend
from horo.keras.compression import NoneCompressor
from horo.process_sets import ProcessSet


class Settings(NamedTuple):
    """How gradients are reduced."""

    compression: Any
    sparse_as_dense: bool
    op: int
    predivide: float
    passes: int  # That the optimizer averages, and that are to be added up. 1: it is the average that is wanted.
    groups: int | Sequence[Sequence[Any]] | None
    process_set: ProcessSet
    local_layers: Sequence[Any]
    scale_local: bool

    def check(self) -> None:
        if self.op not in (Average, Sum):
            raise ValueError("op must be Average or Sum: a loss over all ranks has these gradients")
        if self.predivide <= 0:
            raise ValueError(f"gradient_predivide_factor is larger than 0, not {self.predivide}")
        if self.predivide != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        lists = isinstance(self.groups, list | tuple) and all(isinstance(one, list | tuple) for one in self.groups)
        whole = isinstance(self.groups, int) and not isinstance(self.groups, bool) and self.groups > 0
        if self.groups is not None and not lists and not whole:
            raise ValueError("groups should be a positive integer or a list of lists of variables")


class GradientReduction:
    """Belongs to one optimizer."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings = settings
        self.accumulated: Sequence[Any] = ()  # The variables whose accumulated gradients come next.
        self._local: list[Any] = []

    def register_local(self, variable: Any) -> None:
        self._local.append(variable)

    def has_company(self) -> bool:
        """Whether there is anybody to reduce with, or may be later. A rank outside of the process set has nobody."""
        ranks = self.settings.process_set
        return ranks.included() and (ranks.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1")

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients that all ranks agree on. Those that are None stay so."""
        done = list(gradients)
        ranks = self.settings.process_set.size()
        if not self.has_company():
            return [None if one is None else self._summed(one) for one in done]
        framework = backend()
        local = self._local_ids()
        dense: list[int] = []
        overwriting: list[int] = []
        for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is None:
                continue
            if id(variable) in local:
                mine = self._summed(gradient)
                done[index] = mine / ranks if self.settings.scale_local else mine
            elif getattr(variable, "overwrite_with_gradient", False):
                overwriting.append(index)  # It is no gradient but the variable's next value.
            elif framework.is_sparse(gradient) and not self._makes_dense():
                self._reduce([index], done, variables, self.settings.op, (1.0, 1.0))
            else:
                done[index] = framework.dense(gradient)
                dense.append(index)
        scales = 1.0 / self.settings.predivide, self.settings.predivide * self.settings.passes
        for group in in_groups(dense, variables, self.settings.groups, framework.GROUP_BYTES, _bytes_of):
            self._reduce(group, done, variables, self.settings.op, scales)
        if overwriting:
            self._reduce(overwriting, done, variables, Max, (1.0, 1.0))
        return done

    def _makes_dense(self) -> bool:
        # What is multiplied afterwards must be a tensor.
        return self.settings.sparse_as_dense or self.settings.passes > 1

    def _local_ids(self) -> set[int]:
        layers = self.settings.local_layers
        return {id(one) for one in self._local} | {id(one) for layer in layers for one in layer.trainable_variables}

    def _summed(self, gradient: Any) -> Any:
        return gradient if self.settings.passes == 1 else backend().dense(gradient) * self.settings.passes

    def _reduce(
        self, group: list[int], done: list[Any], variables: Sequence[Any], op: int, scales: tuple[float, float]
    ) -> None:
        """One operation, named after a variable: alike on all ranks, and each time that a step is traced."""
        sent = [done[index] for index in group]
        contexts: list[Any] = []
        compression = self.settings.compression
        compresses = compression is not NoneCompressor and not backend().is_sparse(sent[0])
        if compresses:
            pairs = [compression.compress(one) for one in sent]
            sent, contexts = [one for one, _ in pairs], [context for _, context in pairs]
        name = f"gradients.{path_of(variables[group[0]])}"
        reduced = backend().reduce(sent, name, op, scales, self.settings.process_set)
        if compresses:
            reduced = [compression.decompress(*pair) for pair in zip(reduced, contexts, strict=True)]
        for index, one in zip(group, reduced, strict=True):
            done[index] = one


def path_of(variable: Any) -> str:
    path = getattr(variable, "path", None)
    return path if isinstance(path, str) else str(variable.name).partition(":")[0]


def _bytes_of(variable: Any) -> int:
    bits = "".join(one for one in keras.backend.standardize_dtype(variable.dtype) if one.isdigit())
    count = int(bits or 8) // 8
    for extent in variable.shape:
        count *= extent
    return count
