"""`import horovod.keras as hvd`: horo.keras under Horovod's name."""

from horo.keras import *  # noqa: F403
from horo.keras import __all__  # noqa: F401
