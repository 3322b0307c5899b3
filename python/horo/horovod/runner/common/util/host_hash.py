from horo.legacy.network import host_hash

__all__ = ["host_hash"]
