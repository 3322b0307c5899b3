"""What Horovod's launchers are told, in objects."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from horo.discovery import HostDiscovery
from horo.driver import Limits
from horo.legacy.timeout import Timeout


@dataclass
class BaseSettings:
    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: str | bytes | None = field(default=None, repr=False)
    start_timeout: Timeout | None = None
    output_filename: str | None = None
    run_func_mode: bool | None = None
    nics: Any = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False


@dataclass
class Settings(BaseSettings):
    hosts: str | None = None


class ElasticSettings(BaseSettings):
    """A pickle has no `discovery`: that is the driver's alone."""

    def __init__(
        self,
        discovery: HostDiscovery | None,
        min_num_proc: int,
        max_num_proc: int | None,
        elastic_timeout: float,
        reset_limit: int | None,
        cooldown_range: Sequence[float] | None = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(elastic=True, **kwargs)
        self.discovery = discovery
        self.min_num_proc = newer("min_np", min_np, min_num_proc)
        self.max_num_proc = newer("max_np", max_np, max_num_proc)
        self.elastic_timeout = elastic_timeout
        self.reset_limit = reset_limit
        self.cooldown_range = cooldown_range

    @property
    def limits(self) -> Limits:
        return Limits(self.min_num_proc, self.max_num_proc, self.elastic_timeout, self.reset_limit)

    @property
    def timeout_s(self) -> float:
        """For an ElasticRayExecutor."""
        return 30 if self.start_timeout is None else self.start_timeout.remaining()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "discovery": None}


def newer(old_name: str, old: int | None, new: Any) -> Any:
    """What was given by the old name of an argument, min_np or max_np, or else by the new one."""
    if old is None:
        return new
    warnings.warn(f"{old_name} is called {old_name[:4]}num_proc now", DeprecationWarning, stacklevel=3)
    return old
