"""The parameters of a module that are reduced: their names, their layout, and whether they are still the same."""

from __future__ import annotations

from collections.abc import Collection

import torch

from horo.torch.tensors import dtype_number, strides_of


def is_ignored(name: str, ignored: Collection[str]) -> bool:
    # Names of the outermost module's own parameters may be written with a dot in front.
    return name in ignored or (("." not in name) and f".{name}" in ignored)


class Parameters:
    """Those that require a gradient and are not ignored, each once."""

    def __init__(self, module: torch.nn.Module, ignored: Collection[str]) -> None:
        named = [(name, one) for name, one in module.named_parameters() if not is_ignored(name, ignored)]
        named = [(name, one) for name, one in named if one.requires_grad]
        self.names = [name for name, _ in named]
        self.tensors = [one for _, one in named]
        self.numbers = {id(one): number for number, one in enumerate(self.tensors)}
        sparse = {
            id(layer.weight)
            for layer in module.modules()
            if isinstance(layer, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and layer.sparse
        }
        self.sparse = [id(one) in sparse for one in self.tensors]
        self._places = [layer._parameters for layer in module.modules()]
        self._seen = self._look()

    def __len__(self) -> int:
        return len(self.tensors)

    def _look(self) -> list[int]:
        return [id(one) for place in self._places for one in place.values()]

    def descriptions(self, dtype: torch.dtype | None) -> list[tuple[str, int, list[int], list[int], int, bool]]:
        """As the reducer takes them; gradients are reduced as `dtype` where that is given."""
        described = []
        for name, one, sparse in zip(self.names, self.tensors, self.sparse, strict=True):
            kind = one.dtype if dtype is None or not one.is_floating_point() else dtype
            number = dtype_number(torch.empty(0, dtype=kind), f"the reduction of parameter '{name}'")
            described.append((name, number, list(one.shape), list(strides_of(one)), 0, sparse))
        return described

    def change(self) -> str | None:
        """What was changed in the module since it was wrapped, as far as a look at its parameters tells."""
        if self._look() == self._seen:
            return None
        now = set(self._look())
        gone = [name for name, one in zip(self.names, self.tensors, strict=True) if id(one) not in now]
        if gone:
            return f"parameter '{gone[0]}' was replaced or removed after the module was wrapped"
        known = set(self._seen)
        now_there = [(name, one) for place in self._places for name, one in place.items() if one is not None]
        new = [name for name, one in now_there if one.requires_grad and id(one) not in known]
        if new:
            return f"parameter '{new[0]}' was added after the module was wrapped"
        self._seen = self._look()
        return None
