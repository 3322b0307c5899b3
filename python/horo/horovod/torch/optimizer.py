"""Optimizers that are wrapped through Horovod's names say that they are of this module: libraries look for it."""

import functools

from horo.torch import optimizer as _optimizer

_KEPT = tuple(name for name in functools.WRAPPER_ASSIGNMENTS if name != "__module__")


@functools.wraps(_optimizer.DistributedOptimizer, assigned=_KEPT)
def DistributedOptimizer(*args, **kwargs):
    return _optimizer.make("horovod.torch.optimizer", *args, **kwargs)


__all__ = ["DistributedOptimizer"]
