"""Mixed precision: forward and backward passes in few bits, parameters and checkpoints in all of theirs.

A parameter's `.data` is a copy in few bits from the forward pass until its gradients are reduced: autograd keeps the
parameter itself for the backward pass, and must find there what the forward pass saw.
"""

from __future__ import annotations

from typing import Any

import torch

from horo.torch.parallel.parameters import is_ignored


class Precision:
    def __init__(self, config: Any, module: torch.nn.Module, ignored: set[str]) -> None:
        self.param_dtype: torch.dtype | None = config.param_dtype
        # Gradients come in the parameters' dtype, and are reduced in it unless something else is said.
        self.reduce_dtype: torch.dtype | None = config.reduce_dtype or config.param_dtype
        self._named = [one for name, one in module.named_parameters() if not is_ignored(name, ignored)]
        self._named = [one for one in self._named if one.is_floating_point()]
        self._full: list[torch.Tensor] | None = None
        if config.buffer_dtype is not None:
            for name, buffer in module.named_buffers():
                if not is_ignored(name, ignored) and buffer.is_floating_point():
                    buffer.data = buffer.to(config.buffer_dtype)

    def cast(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.param_dtype is None:
            return inputs, kwargs
        cast = torch.utils._pytree.tree_map(self._cast_one, (inputs, kwargs))
        return cast[0], cast[1]

    def _cast_one(self, value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self.param_dtype) if is_float else value

    def enter(self) -> None:
        """Parameters have few bits from now on."""
        if self.param_dtype is None or self._full is not None:
            return
        self._full = [one.data for one in self._named]
        for one in self._named:
            gradient = one.grad
            one.data = one.data.to(self.param_dtype)
            if gradient is not None and not gradient.is_sparse:
                one.grad = gradient.to(self.param_dtype)

    def leave(self) -> None:
        """They have all of theirs again, and so have their gradients."""
        full, self._full = self._full, None
        for one, data in zip(self._named, full or [], strict=full is not None):
            gradient, one.grad = one.grad, None
            one.data = data
            if gradient is not None:
                one.grad = gradient.to(data.dtype)
