"""`import horovod.tensorflow.keras as hvd`: horo.tensorflow.keras under Horovod's name."""

from horo.tensorflow.keras import *  # noqa: F403
from horo.tensorflow.keras import __all__  # noqa: F401
