from horo.legacy.registration import FAILURE, READY, SUCCESS, WorkerStateRegistry

__all__ = ["FAILURE", "READY", "SUCCESS", "WorkerStateRegistry"]
