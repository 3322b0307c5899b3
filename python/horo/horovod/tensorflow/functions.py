from horo.tensorflow.functions import *  # noqa: F403
