"""`from horovod.ray import RayExecutor`: horo.ray under Horovod's name."""

from horo.ray.elastic import ElasticRayExecutor
from horo.ray.executor import RayExecutor
from horo.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]
