from horo.ray.discovery import RayHostDiscovery
from horo.ray.elastic import ElasticRayExecutor

__all__ = ["ElasticRayExecutor", "RayHostDiscovery"]
