from horo.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
from horo.legacy.host_manager import (
    DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS,
    DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS,
    DiscoveredHosts,
    HostManager,
    HostState,
)
from horo.resize import HostUpdateResult

__all__ = [
    "DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS",
    "DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS",
    "DiscoveredHosts",
    "FixedHosts",
    "HostDiscovery",
    "HostDiscoveryScript",
    "HostManager",
    "HostState",
    "HostUpdateResult",
]
