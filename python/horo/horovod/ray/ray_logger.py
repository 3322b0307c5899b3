from horo.ray.logger import configure, log

__all__ = ["configure", "log"]
