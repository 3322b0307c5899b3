"""horo as a back end of Ray Train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ray.train.backend import Backend, BackendConfig

from horo import basics
from horo.legacy.timeout import Timeout
from horo.ray.places import fetch, hand_out_places


@contextmanager
def _leaving_at_the_end() -> Iterator[None]:
    """A train function that returns leaves the job. One that raises does not: Ray ends all workers then, and the other
    ranks, which would fail too, must not be quicker than the error that the user is to see."""
    yield
    basics.shutdown()


@dataclass
class HorovodConfig(BackendConfig):
    """How the workers of a HorovodTrainer become ranks.

    Args:
        nics: Network interfaces between the nodes: each takes the first that it has. Ray's own addresses if not given.
        timeout_s: Seconds that workers have to answer when the job is set up.
        verbose, key, ssh_port, ssh_identity_file, ssh_str, placement_group_timeout_s: Horovod's; they change nothing.
            Each start of the workers makes a key of its own, and nothing goes through ssh.
    """

    nics: set[str] | None = None
    verbose: int = 1
    key: str | None = field(default=None, repr=False)
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    ssh_str: str | None = field(default=None, repr=False)
    timeout_s: int = 300
    placement_group_timeout_s: int = 100

    @property
    def start_timeout(self) -> Timeout:
        return Timeout(self.timeout_s, "Timed out: {activity}. Look for busy or lost nodes, or raise timeout_s.")

    @property
    def backend_cls(self) -> type[Backend]:
        return HorovodBackend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[None]]:
        return _leaving_at_the_end

    def to_dict(self) -> dict[str, Any]:
        """For Ray's records: without secrets."""
        return {"nics": sorted(self.nics or ()), "timeout_s": self.timeout_s}


class HorovodBackend(Backend):
    """Called by Ray for each group of workers that it starts: the first, and those after failures and resizes."""

    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        interfaces = sorted(backend_config.nics) if backend_config.nics else None
        ready = hand_out_places(worker_group.execute_single_async, len(worker_group), interfaces)
        fetch(ready, backend_config.start_timeout)
