from horo.keras.elastic import *  # noqa: F403
