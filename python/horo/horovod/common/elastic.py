from horo.elastic import ObjectState, State, run_fn
from horo.listeners import WorkerNotificationManager, notification_manager

__all__ = ["ObjectState", "State", "WorkerNotificationManager", "notification_manager", "run_fn"]
