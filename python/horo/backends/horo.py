"""horo itself, and whatever `import horovod.torch` finds."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from horo.backends.base import Distributed, DistributedBackend
from horo.backends.neighbours import host_id


class HoroBackend(DistributedBackend):
    """Gradients are averaged by horo.torch. The batch size is that of each process."""

    BACKEND_MODULE_NAME = "horo.torch"
    BACKEND_NAME = "horo"

    def check_batch_size(self, batch_size: int) -> None:
        """Every process has batches of its own: any size will do."""

    def wrap_arg_parser(self, parser: ArgumentParser) -> ArgumentParser:
        return parser

    def _initialize(self) -> None:
        import torch

        module = self.backend_module
        module.init(process_sets="dynamic")
        # All processes make the set of every host, here: later only some of them may come.
        self._neighbours = module.global_process_set
        if module.local_size() < module.size():
            hosts = module.allgather_object(host_id(), name="horo.backends.hosts")
            for host in sorted(set(hosts)):
                ranks = [rank for rank, other in enumerate(hosts) if other == host]
                made = module.add_process_set(ranks)
                if module.rank() in ranks:
                    self._neighbours = made
        if torch.cuda.is_available():
            torch.cuda.set_device(self._get_local_rank())

    def _get_world_size(self) -> int:
        return self.backend_module.size()

    def _get_rank(self) -> int:
        return self.backend_module.rank()

    def _get_local_rank(self) -> int:
        return self.backend_module.local_rank()

    def _local_barrier(self) -> None:
        self.backend_module.barrier(process_set=self._neighbours)

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
        """All processes begin with the parameters and the optimizer's state of the root."""
        # Without names: the optimizer may have parameters of other modules, too.
        wrapped = self.backend_module.DistributedOptimizer(optimizer)
        if model is not None:
            self.backend_module.broadcast_parameters(model.state_dict(), root_rank=self.ROOT_RANK)
        self.backend_module.broadcast_optimizer_state(wrapped, root_rank=self.ROOT_RANK)
        return model, wrapped, training_data, lr_scheduler

    def _average_all(self, tensor: Any) -> Any:
        return self.backend_module.allreduce(tensor)


class HorovodBackend(HoroBackend):
    """The same through Horovod's names: Horovod itself where it is installed, else horo."""

    BACKEND_MODULE_NAME = "horovod.torch"
    BACKEND_NAME = "Horovod"
