"""States of models, optimizers and samplers."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, TypeGuard

import torch

from horo.basics import rank
from horo.elastic import ObjectState
from horo.process_sets import ProcessSet, global_process_set
from horo.torch.elastic.sampler import ElasticSampler
from horo.torch.functions import allgather_object, broadcast_object, give_optimizer_state, give_parameters


class StateHandler:
    """Saves, restores and synchronises one value of a TorchState."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def combine(self) -> None:
        """For what is put together out of all ranks': called by all of them before some leave the job. What was saved
        stays what was saved."""

    def set_value(self, value: Any) -> None:
        self.value = value
        self.save()


class _Saved(StateHandler):
    """What has a state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # A copy, because optimizers keep what they are given.
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_Saved):
    def give(self, process_set: ProcessSet) -> None:
        """From rank 0 to the others of the set."""
        give_parameters(self.value.state_dict(), 0, process_set)
        self.save()

    def sync(self) -> None:
        self.give(global_process_set)


class OptimizerStateHandler(_Saved):
    def restore(self) -> None:
        super().restore()
        for group in self.value.param_groups:
            for param in group["params"]:
                param.grad = None  # Of the step that failed.

    def give(self, process_set: ProcessSet) -> None:
        """From rank 0 to the others of the set."""
        give_optimizer_state(self.value, 0, process_set)
        self.save()

    def sync(self) -> None:
        self.give(global_process_set)


def _is_given(handler: StateHandler) -> TypeGuard[ModelStateHandler | OptimizerStateHandler]:
    """Whether newcomers need it, and nobody else who is at the same commit. A subclass may synchronise otherwise."""
    return type(handler).sync in (ModelStateHandler.sync, OptimizerStateHandler.sync)


class SamplerStateHandler(_Saved):
    def sync(self) -> None:
        self.value.load_state_dict(_union(allgather_object(self.value.state_dict())))
        self.save()

    def combine(self) -> None:
        state = self.value.state_dict()
        everybody = allgather_object((state, None if self._saved == state else self._saved))
        self.value.load_state_dict(_union([one for one, _ in everybody]))
        self._saved = _union([one if saved is None else saved for one, saved in everybody])


def _union(samplers: list[dict[str, Any]]) -> dict[str, Any]:
    """What any rank has processed is processed, of the epoch that rank 0 is in."""
    first = samplers[0]
    parts = [one["processed_indices"] for one in samplers if one["epoch"] == first["epoch"]]
    return {**first, "processed_indices": set().union(*parts)}


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Pairs of a type and the handler of its values. The first that fits is taken."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    _registry[:] = registry


def _handler_of(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


def _memory_of(value: Any) -> Iterable[Any]:
    """Of the tensors in a state_dict()."""
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and not value.is_quantized:
            yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    elif isinstance(value, dict):
        for one in value.values():
            yield from _memory_of(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _memory_of(one)


class TorchState(ObjectState):
    """A model, an optimizer and anything else, as attributes: `TorchState(model=model, optimizer=optimizer, batch=0)`.

    Modules, optimizers and ElasticSamplers are restored in place. Everything else is copied, so keep it small.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        handlers = {name: _handler_of(value) for name, value in values.items()}
        self._handlers = {name: handler for name, handler in handlers.items() if handler is not None}
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        objects = {name: value for name, value in values.items() if name not in self._handlers}
        super().__init__(lambda obj: broadcast_object(obj, 0), rank, **objects)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        self._give(global_process_set)
        self._share()

    def _gives(self) -> bool:
        return type(self).sync is TorchState.sync

    def _give(self, process_set: ProcessSet) -> None:
        for handler in self._handlers.values():
            if _is_given(handler):
                handler.give(process_set)

    def _share(self) -> None:
        for handler in self._handlers.values():
            if not _is_given(handler):
                handler.sync()
        super().sync()

    def _combine(self) -> None:
        for handler in self._handlers.values():
            handler.combine()

    def _contents(self) -> Iterable[Any]:
        for handler in self._handlers.values():
            if isinstance(handler, (ModelStateHandler, OptimizerStateHandler)):
                yield from _memory_of(handler._saved)

    def reset(self) -> None:
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()


__all__ = ["StateHandler", "TorchState", "get_handler_registry", "set_handler_registry"]
