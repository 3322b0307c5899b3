from horo.legacy.network import (
    filter_local_addresses,
    get_driver_ip,
    get_local_host_addresses,
    get_local_intfs,
    resolve_host_address,
)

__all__ = [
    "filter_local_addresses",
    "get_driver_ip",
    "get_local_host_addresses",
    "get_local_intfs",
    "resolve_host_address",
]
