"""Names of Horovod's services. Here ranks meet at the job's store, where each proves the job's key: nothing else
listens, and nothing that comes from the network is unpickled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RendezvousServer:
    """What Horovod's callers make for an ElasticDriver, which needs none here: its own store takes that part. Nothing
    listens, and the port is 0; the variables of SlotInfo.to_env() tell workers where to go."""

    def __init__(self, verbose: int = 0) -> None:
        pass

    def start(self, handler_cls: Any = None) -> int:
        return 0

    def init(self, host_assignments: Sequence[Any]) -> None:
        pass

    def stop(self) -> None:
        pass


def create_rendezvous_handler(driver: Any) -> None:
    """For RendezvousServer.start(), which needs none."""


class _Absent:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} listens for pickles in Horovod, and horo has nothing of that kind: rank 0 asks the "
            "job's store for news when it commits. WorkerNotificationManager.register_listener() tells of them, and "
            "ElasticDriver tells the ranks"
        )


class WorkerNotificationService(_Absent):
    """Not there: see WorkerNotificationManager."""


class WorkerNotificationClient(_Absent):
    """Not there: see ElasticDriver."""


class HostsUpdatedRequest(_Absent):
    """Not there: see WorkerNotificationManager."""
