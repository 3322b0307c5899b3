from horo.tensorflow.elastic import *  # noqa: F403
