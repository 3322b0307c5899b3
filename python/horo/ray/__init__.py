"""Jobs on Ray: HorovodTrainer for Ray Train, and Horovod's RayExecutor and ElasticRayExecutor (docs/ray.md)."""

from __future__ import annotations

import importlib
from typing import Any

try:
    import ray  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ModuleNotFoundError(
        "horo.ray needs Ray, which is not installed here: pip install 'ray[train]'", name="ray"
    ) from None

# Ray Train takes a second to import, and workers of a RayExecutor do without it.
_HOMES = {
    "BaseHorovodWorker": "horo.ray.worker",
    "ElasticRayExecutor": "horo.ray.elastic",
    "HorovodConfig": "horo.ray.backend",
    "HorovodTrainer": "horo.ray.trainer",
    "RayExecutor": "horo.ray.executor",
}

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "HorovodConfig", "HorovodTrainer", "RayExecutor"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
