from horo.torch.compression import *  # noqa: F403
