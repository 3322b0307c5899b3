from horo.legacy.settings import ElasticSettings

__all__ = ["ElasticSettings"]
