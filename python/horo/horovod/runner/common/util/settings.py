from horo.legacy.settings import BaseSettings, Settings

__all__ = ["BaseSettings", "Settings"]
