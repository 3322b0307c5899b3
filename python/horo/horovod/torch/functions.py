from horo.torch.functions import *  # noqa: F403
