"""What runs in the processes that become ranks: Ray's actors."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from horo import basics
from horo.meeting import Arrival, Meeting, Terms, arrival, first_interface, machine_id
from horo.world import world


class _Here:
    """What this process is for its job. A meeting that it has opened lasts until the next: ranks may leave the job and
    join again."""

    def __init__(self) -> None:
        self.arrival: Arrival | None = None
        self.meeting: Meeting | None = None


_here = _Here()


def arrive(interfaces: Sequence[str] | None) -> tuple[bool, Arrival]:
    """Whether this process is in a job already, and where it is: on the node that Ray says, unless memory cannot be
    shared all over the node."""
    if interfaces and not os.environ.get("HORO_INTERFACE"):
        os.environ["HORO_INTERFACE"] = first_interface(interfaces)
    node = ray.get_runtime_context().get_node_id()
    _here.arrival = arrival(ray.util.get_node_ip_address(), f"{node}/{machine_id()}")
    return basics.is_initialized(), _here.arrival


def open_meeting(*arrived: tuple[bool, Arrival]) -> Terms | None:
    """On rank 0. None: all are in a job together and stay there."""
    if all(joined for joined, _ in arrived):
        return None
    if _here.meeting is not None:
        _here.meeting.close()
    _here.meeting = Meeting([where for _, where in arrived])
    return _here.meeting.terms


def take_place(terms: Terms | None, rank: int) -> None:
    """This process's next init() joins there."""
    if terms is None:
        return
    assert _here.arrival is not None
    basics.shutdown()
    world.stand_at(terms.place(rank, _here.arrival))
    os.environ.update(terms.variables(rank, _here.arrival.address))


class BaseHorovodWorker:
    """The actor of a RayExecutor's rank."""

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        os.environ.update({"HOROVOD_RANK": str(world_rank), "HOROVOD_SIZE": str(world_size)})

    def hostname(self) -> str:
        return socket.gethostname()

    def node_id(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def get_gpu_ids(self) -> list[Any]:
        return ray.get_gpu_ids()

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        return dict(os.environ)

    def start_executable(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """`executable_cls(*args, **kwargs)` is what execute() passes to its functions."""
        if executable_cls is not None:
            self.executable = executable_cls(*(executable_args or ()), **(executable_kwargs or {}))

    def execute(self, func: Callable[[Any], Any], ready: Any = None) -> Any:
        """A function that fails leaves the job, or does not join it, so that the other ranks do not wait for it.
        `ready` is what has to be there before."""
        try:
            return func(self.executable)
        except BaseException:
            basics.shutdown()
            world.decline()
            raise

    def leave(self) -> None:
        basics.shutdown()

    def call(self, func: Callable[..., Any], *args: Any) -> Any:
        return func(*args)
