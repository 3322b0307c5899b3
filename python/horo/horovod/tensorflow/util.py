from horo.tensorflow.util import *  # noqa: F403
