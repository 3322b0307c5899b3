from horo.legacy.hosts import (
    INVALID_SLOT_INFO,
    HostInfo,
    SlotInfo,
    get_host_assignments,
    parse_host_files,
    parse_hosts,
)

__all__ = ["INVALID_SLOT_INFO", "HostInfo", "SlotInfo", "get_host_assignments", "parse_host_files", "parse_hosts"]
