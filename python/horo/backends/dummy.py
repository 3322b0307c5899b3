"""One process, alone: the script runs without anything to join."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from horo.backends.base import Distributed, DistributedBackend


class DummyBackend(DistributedBackend):
    BACKEND_MODULE_NAME = "NO MODULE"
    BACKEND_NAME = "Dummy"

    def has_backend(self) -> bool:
        return True

    def wrap_arg_parser(self, parser: ArgumentParser) -> ArgumentParser:
        return parser

    def initialize(self) -> None:
        self.is_initialized = True

    def _get_world_size(self) -> int:
        return 1

    def _get_rank(self) -> int:
        return self.ROOT_RANK

    def _get_local_rank(self) -> int:
        return self.ROOT_RANK

    def _local_barrier(self) -> None:
        pass

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
        return model, optimizer, training_data, lr_scheduler

    def _average_all(self, tensor: Any) -> Any:
        return tensor
