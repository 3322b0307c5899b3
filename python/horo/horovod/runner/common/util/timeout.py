from horo.legacy.timeout import Timeout, TimeoutException

__all__ = ["Timeout", "TimeoutException"]
