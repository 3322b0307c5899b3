from horo.tensorflow.compression import *  # noqa: F403
