"""`import horovod.tensorflow as hvd`: horo.tensorflow under Horovod's name."""

from horo.tensorflow import *  # noqa: F403
from horo.tensorflow import __all__, __getattr__  # noqa: F401
