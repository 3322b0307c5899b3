"""Who is told on rank 0 that hosts came or went: listeners, with Horovod's interface. The job itself needs none."""

from __future__ import annotations

import threading
import traceback
from typing import Any, Protocol

from horo.resize import HostUpdateResult


class Listener(Protocol):
    def on_hosts_updated(self, timestamp: float, update_res: int) -> None: ...


class WorkerNotificationManager:
    """Tells its listeners, once init() was called, what rank 0 finds out when the job commits: that processes wait to
    enter, or that some are asked to leave. On the thread that commits, before HostsUpdatedInterrupt is raised there;
    what a listener raises is printed, and the job goes on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []

    def init(self, *rendezvous: Any, **unused: Any) -> None:
        """Of Horovod's arguments none is needed: nothing listens, and rank 0 asks the job's store."""
        if self not in _managers:
            _managers.append(self)

    def register_listener(self, listener: Listener) -> None:
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener.on_hosts_updated(timestamp, update_res)
            except Exception:
                traceback.print_exc()


_managers: list[WorkerNotificationManager] = []
notification_manager = WorkerNotificationManager()
notification_manager.init()


def tell_listeners(timestamp: float, update: HostUpdateResult) -> None:
    for manager in _managers:
        manager.handle_hosts_updated(timestamp, update)


__all__ = ["Listener", "WorkerNotificationManager", "notification_manager", "tell_listeners"]
