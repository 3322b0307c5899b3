"""The interface of a back end."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from argparse import ArgumentParser

Distributed = tuple[Any, Any, Any, Any]


class DistributedBackend:
    """What a training script needs of whatever joins its processes.

    A back end of one's own is a subclass with the two names and the methods that raise NotImplementedError here;
    register() makes `--distributed_backend` find it.
    """

    BACKEND_MODULE_NAME: ClassVar[str | None] = None
    """The module that has to be importable."""
    BACKEND_NAME: ClassVar[str | None] = None
    """What `--distributed_backend` calls it, in any case."""
    ROOT_RANK: ClassVar[int] = 0

    backend_module: ModuleType | None = None
    """The module above, after has_backend() or initialize()."""
    is_initialized: bool = False

    def __init__(self) -> None:
        for name in ("BACKEND_MODULE_NAME", "BACKEND_NAME"):
            if getattr(self, name) is None:
                raise NotImplementedError(f"{type(self).__name__} has no {name}")

    def has_backend(self) -> bool:
        """Whether its module is installed. A module that is there and fails to load is an error of its own."""
        assert self.BACKEND_MODULE_NAME is not None
        try:
            self.backend_module = importlib.import_module(self.BACKEND_MODULE_NAME)
        except ModuleNotFoundError:
            return False
        return True

    def check_batch_size(self, batch_size: int) -> None:
        """For back ends that divide the batch: AssertionError when there is not a sample for each process."""
        size = self.get_world_size()
        assert batch_size >= size, f"a batch of {batch_size} cannot be divided among {size} processes"

    def wrap_arg_parser(self, parser: ArgumentParser) -> ArgumentParser:
        """Adds the arguments of this back end."""
        raise NotImplementedError

    def initialize(self) -> None:
        """Joins the processes. Once, before anything below."""
        if self.backend_module is None and not self.has_backend():
            raise self.missing()
        self._initialize()
        self.is_initialized = True

    def _initialize(self) -> None:
        raise NotImplementedError

    def require_init(self) -> None:
        """AssertionError before initialize()."""
        assert self.is_initialized, (
            f"the distributed back end {self.BACKEND_NAME} was not initialized; call its initialize() at the start"
        )

    def missing(self) -> ModuleNotFoundError:
        """What is raised when the back end is wanted and not installed."""
        return ModuleNotFoundError(
            f"the distributed back end {self.BACKEND_NAME} needs the module {self.BACKEND_MODULE_NAME}, "
            "which is not installed",
            name=self.BACKEND_MODULE_NAME,
        )

    def get_world_size(self) -> int:
        self.require_init()
        return self._get_world_size()

    def _get_world_size(self) -> int:
        raise NotImplementedError

    def get_rank(self) -> int:
        self.require_init()
        return self._get_rank()

    def _get_rank(self) -> int:
        raise NotImplementedError

    def get_local_rank(self) -> int:
        """This process's place on its host."""
        self.require_init()
        return self._get_local_rank()

    def _get_local_rank(self) -> int:
        raise NotImplementedError

    def is_root_worker(self) -> bool:
        return self.get_rank() == self.ROOT_RANK

    def is_local_root_worker(self) -> bool:
        return self.get_local_rank() == self.ROOT_RANK

    def local_barrier(self) -> None:
        """Waits for the other processes of the host, and for no others."""
        self.require_init()
        self._local_barrier()

    def _local_barrier(self) -> None:
        raise NotImplementedError

    def distribute(
        self,
        args: Any = None,
        model: Any = None,
        optimizer: Any = None,
        model_parameters: Any = None,
        training_data: Any = None,
        lr_scheduler: Any = None,
        **kwargs: Any,
    ) -> Distributed:
        """What to train with in place of the arguments: (model, optimizer, data loader, scheduler). Back ends use what
        they need of them and hand back the rest as it is; `kwargs` are for some and ignored by others."""
        self.require_init()
        return self._distribute(args, model, optimizer, model_parameters, training_data, lr_scheduler, **kwargs)

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
        raise NotImplementedError

    def average_all(self, tensor: Any) -> Any:
        """The average of a tensor over all processes. The argument stays as it is."""
        self.require_init()
        return self._average_all(tensor)

    def _average_all(self, tensor: Any) -> Any:
        raise NotImplementedError
