from horo.ray.coordinator import Coordinator
from horo.ray.executor import MiniSettings, RayExecutor
from horo.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "Coordinator", "MiniSettings", "RayExecutor"]
