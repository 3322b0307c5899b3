from horo.legacy.elastic_driver import DISCOVER_HOSTS_FREQUENCY_SECS, ELASTIC_TIMEOUT_SECS, ElasticDriver, Results

__all__ = ["DISCOVER_HOSTS_FREQUENCY_SECS", "ELASTIC_TIMEOUT_SECS", "ElasticDriver", "Results"]
