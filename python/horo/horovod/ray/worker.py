from horo.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker"]
