"""torch's own DistributedDataParallel, on any of its process groups."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any, ClassVar

from horo.backends.base import Distributed, DistributedBackend
from horo.backends.neighbours import group_of_host
from horo.meeting import LOOPBACK, address_of


class TorchBackend(DistributedBackend):
    """Under torchrun or what else sets torch's variables, under `horo run`, or in a group that the script has made.

    Another process group is a subclass with a name of its own:

        @register
        class OverMpi(TorchBackend):
            BACKEND_NAME = "torch-mpi"
            PROCESS_GROUP = "mpi"
    """

    BACKEND_MODULE_NAME = "torch.distributed"
    BACKEND_NAME = "torch"
    PROCESS_GROUP: ClassVar[str | None] = None
    """torch's name of the group's kind. None: nccl where there is CUDA, else gloo."""

    def check_batch_size(self, batch_size: int) -> None:
        """Every process has batches of its own: any size will do."""

    def wrap_arg_parser(self, parser: ArgumentParser) -> ArgumentParser:
        return parser

    def _initialize(self) -> None:
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_device(self._get_local_rank())
        if not self.backend_module.is_initialized():
            self._join_group()
        self._neighbours = group_of_host(self.backend_module)

    def _join_group(self) -> None:
        import torch

        kind = self.PROCESS_GROUP or ("nccl" if torch.cuda.is_available() else "gloo")
        launched_by_horo = "HORO_RANK" in os.environ and "MASTER_ADDR" not in os.environ
        if launched_by_horo or "RANK" not in os.environ:
            self._meet_through_horo(kind)
        else:
            self.backend_module.init_process_group(kind)

    def _meet_through_horo(self, kind: str) -> None:
        """horo tells the others where rank 0's store is. Without a launcher this is a group of one."""
        import horo

        horo.init()
        dist = self.backend_module
        here = address_of(os.environ.get("HORO_INTERFACE") or LOOPBACK)
        store = None
        if horo.rank() == 0:
            store = dist.TCPStore(here, 0, horo.size(), is_master=True, wait_for_workers=False)
        host, port = horo.broadcast_object((here, store.port) if store is not None else None, name="torch_store")
        if store is None:
            store = dist.TCPStore(host, port, horo.size(), is_master=False)
        dist.init_process_group(kind, store=store, rank=horo.rank(), world_size=horo.size())

    def _get_world_size(self) -> int:
        return self.backend_module.get_world_size()

    def _get_rank(self) -> int:
        return self.backend_module.get_rank()

    def _get_local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK") or os.environ.get("HORO_LOCAL_RANK") or 0)

    def _local_barrier(self) -> None:
        self.backend_module.barrier(group=self._neighbours)

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
        """The model is wrapped. The optimizer's state is the script's own on each process."""
        from torch.nn.parallel import DistributedDataParallel

        if any(parameter.requires_grad for parameter in model.parameters()):
            model = DistributedDataParallel(model)
        return model, optimizer, training_data, lr_scheduler

    def _average_all(self, tensor: Any) -> Any:
        averaged = tensor.detach().clone()
        self.backend_module.all_reduce(averaged)
        return averaged / self._get_world_size()
