"""DeepSpeed, where it is installed."""

from __future__ import annotations

import json
import os
import warnings
from argparse import ArgumentParser
from typing import Any

from horo.backends.base import Distributed, DistributedBackend
from horo.backends.neighbours import group_of_host


class DeepSpeedBackend(DistributedBackend):
    BACKEND_MODULE_NAME = "deepspeed"
    BACKEND_NAME = "DeepSpeed"

    def wrap_arg_parser(self, parser: ArgumentParser) -> ArgumentParser:
        if self.has_backend():
            parser = self.backend_module.add_config_arguments(parser)
        else:
            parser.add_argument("--deepspeed", action="store_true", help="use DeepSpeed, which is not installed here")
        parser.add_argument("--local_rank", type=int, default=-1, help="set by DeepSpeed's launcher")
        return parser

    def _initialize(self) -> None:
        import torch

        self.backend_module.init_distributed()
        if torch.cuda.is_available():
            torch.cuda.set_device(self._get_local_rank())
        self._neighbours = group_of_host(self._group())

    @staticmethod
    def _group() -> Any:
        import torch.distributed

        assert torch.distributed.is_initialized(), "DeepSpeed has not joined torch.distributed; call initialize() first"
        return torch.distributed

    def _get_world_size(self) -> int:
        return self._group().get_world_size()

    def _get_rank(self) -> int:
        return self._group().get_rank()

    def _get_local_rank(self) -> int:
        return int(os.environ["LOCAL_RANK"])

    def _local_barrier(self) -> None:
        self._group().barrier(group=self._neighbours)

    def _distribute(
        self,
        args: Any = None,
        model: Any = None,
        optimizer: Any = None,
        model_parameters: Any = None,
        training_data: Any = None,
        lr_scheduler: Any = None,
        **kwargs: Any,
    ) -> Distributed:
        """`config` or `config_params` is DeepSpeed's configuration, a dictionary or the name of a file."""
        config = _read_config(args, kwargs)
        return self.backend_module.initialize(
            args=args,
            model=model,
            optimizer=_unless_configured("optimizer", optimizer, config),
            model_parameters=model_parameters,
            training_data=training_data,
            lr_scheduler=_unless_configured("scheduler", lr_scheduler, config),
            **kwargs,
        )

    def _average_all(self, tensor: Any) -> Any:
        averaged = tensor.detach().clone()
        self._group().all_reduce(averaged)
        return averaged / self._get_world_size()


def _read_config(args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    config = kwargs.get("config") or kwargs.get("config_params") or getattr(args, "deepspeed_config", None) or {}
    if isinstance(config, dict):
        return config
    with open(config, encoding="utf-8") as file:
        return json.load(file)


def _unless_configured(what: str, given: Any, config: dict[str, Any]) -> Any:
    """DeepSpeed takes one or the other, and prefers what the script gives."""
    if given is None or what not in config:
        return given
    warnings.warn(f"DeepSpeed's configuration has a {what}: the script's own is not used", stacklevel=4)
    return None
