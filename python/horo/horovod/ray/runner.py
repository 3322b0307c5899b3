from horo.ray.coordinator import Coordinator
from horo.ray.executor import RayExecutor
from horo.ray.settings import MiniSettings
from horo.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "Coordinator", "MiniSettings", "RayExecutor"]
