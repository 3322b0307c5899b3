"""`import horovod.torch as hvd`: horo.torch under Horovod's name."""

from horo.torch import *  # noqa: F403
from horo.torch import __all__

from .optimizer import DistributedOptimizer

__all__ = [*__all__, "DistributedOptimizer"]  # noqa: PLE0604  Of strings, all of them.
