from horo.tensorflow.mpi_ops import *  # noqa: F403
