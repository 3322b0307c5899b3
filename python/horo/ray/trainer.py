"""HorovodTrainer, as Ray's guide for Horovod has it, on the Ray Train of today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.train.v2._internal.constants import is_v2_enabled
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from horo.ray.backend import HorovodConfig


class HorovodTrainer(DataParallelTrainer):
    """Runs `train_loop_per_worker` on every worker of `scaling_config`. The function calls init() and finds itself a
    rank of a job; whatever Ray Train offers inside of train functions works there, too.

    Args:
        train_loop_per_worker: Takes nothing, or `train_loop_config`.
        horovod_config: How the workers become ranks.
        scaling_config, run_config, datasets, dataset_config: Ray Train's.
        metadata, resume_from_checkpoint: Refused by Ray Train, which says what to do instead.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        horovod_config: HorovodConfig | None = None,
        scaling_config: Any = None,
        dataset_config: Any = None,
        run_config: Any = None,
        datasets: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: Any = None,
        **others: Any,
    ) -> None:
        if others:
            raise TypeError(
                f"HorovodTrainer() has no argument {next(iter(others))!r}; the settings of its back end are "
                "horovod_config=HorovodConfig(...)"
            )
        if not is_v2_enabled():
            raise RuntimeError(
                "horo.ray.HorovodTrainer runs on Ray Train V2, which RAY_TRAIN_V2_ENABLED=0 switches off; unset it, or "
                "take HorovodTrainer from ray.train.horovod, which finds horo under Horovod's name"
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=horovod_config or HorovodConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )
