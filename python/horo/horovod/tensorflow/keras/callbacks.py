from horo.keras.callbacks import *  # noqa: F403
