from horo.keras.callbacks import *  # noqa: F403
from horo.keras.callbacks import __all__  # noqa: F401
