from horo.keras.elastic import *  # noqa: F403
from horo.keras.elastic import __all__  # noqa: F401
