from horo.torch.mpi_ops import *  # noqa: F403
