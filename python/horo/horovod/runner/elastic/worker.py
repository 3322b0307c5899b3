from horo.legacy.rendezvous import HostsUpdatedRequest, WorkerNotificationClient, WorkerNotificationService
from horo.listeners import WorkerNotificationManager
from horo.resize import HostUpdateResult

__all__ = [
    "HostUpdateResult",
    "HostsUpdatedRequest",
    "WorkerNotificationClient",
    "WorkerNotificationManager",
    "WorkerNotificationService",
]
