"""ElasticRayExecutor: a function on ranks that come and go with Ray's nodes, with Horovod's interface."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from horo.driver import Cooldowns, Limits
from horo.ray import logger
from horo.ray.discovery import RayHostDiscovery, slots_by_node
from horo.ray.seats import Needs, Seats
from horo.ray.settings import ElasticSettings, MiniSettings


class ElasticRayExecutor:
    """A function on as many ranks as Ray has room for, between a least and a most. Ranks that are lost are replaced,
    and nodes that come get ranks; they enter when the others commit (docs/elastic.md).

    Args:
        settings: Of create_settings().
        use_gpu, cpus_per_slot, gpus_per_slot: What each rank takes of Ray's resources.
        env_vars: For the environment of the ranks.
        override_discovery: Whether all nodes of Ray may be used, and not only what `settings.discovery` tells.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: float = 600,
        timeout_s: int = 30,
        ssh_identity_file: str | None = None,
        nics: set[str] | None = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """`elastic_timeout` is how long fewer than `min_num_proc` ranks wait for others. Once there are enough, the
        job begins when all have come for whom there is room, or `timeout_s` seconds have passed. `reset_limit` is how
        often it may begin anew. Also: `cooldown_range` (seconds at least and at most for which a node that has lost a
        rank gets no new one) and `discovery` (an object with find_available_hosts_and_slots())."""
        for old, new in (("min_np", min_np), ("max_np", max_np)):
            if new is not None:
                warnings.warn(f"{old} is called {old[:4]}num_proc now", DeprecationWarning, stacklevel=2)
        return ElasticSettings(
            nics=nics,
            ssh_identity_file=ssh_identity_file,
            timeout_s=timeout_s,
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            **kwargs,
        )

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        override_discovery: bool = True,
    ) -> None:
        if gpus_per_slot is not None and not use_gpu:
            raise ValueError(f"gpus_per_slot is {gpus_per_slot}, but use_gpu is not set")
        if gpus_per_slot is not None and gpus_per_slot < 1:
            raise ValueError(f"gpus_per_slot is {gpus_per_slot}; with use_gpu it is 1 or more")
        if not override_discovery and settings.discovery is None:
            raise ValueError("override_discovery is False, but create_settings() was given no discovery")
        if override_discovery:
            settings.discovery = None
        settings.limits.check("min_num_proc", "max_num_proc")
        Cooldowns(settings.cooldown_range)
        self.settings = settings
        gpus = gpus_per_slot or 1
        self._room = RayHostDiscovery(use_gpu, cpus_per_slot, gpus)
        variables = {name: str(value) for name, value in (env_vars or {}).items()}
        interfaces = sorted(settings.nics) if settings.nics else None
        self._needs = Needs(cpus_per_slot, gpus if use_gpu else 0, variables, interfaces)

    def start(self) -> None:
        """Looks whether there is a Ray to run on; run() starts the ranks."""
        if not ray.is_initialized():
            raise RuntimeError("there is no Ray: call ray.init() first")

    def run(
        self, worker_fn: Callable[[], Any], callbacks: Sequence[Callable[[dict[str, Any]], Any]] | None = None
    ) -> list[Any]:
        """Calls `worker_fn()` on all ranks and returns what those returned that were there at the end, by their ranks.
        What ranks hand to `horo.ray.logger.log()` each of the `callbacks` is called with."""
        self.start()
        settings = self.settings
        with logger.messages(callbacks) as (ship, hear):
            seats = Seats(
                self._needs,
                settings.limits,
                Cooldowns(settings.cooldown_range),
                lambda: slots_by_node(self._room, settings.discovery),
                hear,
            )
            return seats.run(ship(worker_fn), settings.timeout_s)


Executable = tuple[Callable[..., Any] | None, Sequence[Any] | None, Mapping[str, Any] | None]


class ElasticWorkers:
    """The elastic kind of a RayExecutor: each worker has an object of the user's."""

    def __init__(self, settings: ElasticSettings, cpus: int, gpus: int, override_discovery: bool) -> None:
        self._settings = settings
        self._options = (gpus > 0, cpus, gpus or None)
        self._override_discovery = override_discovery
        self._executor = self._make({})
        self._executable: Executable | None = None

    def start(self, executable: Executable, variables: Mapping[str, str]) -> None:
        if self._executable is not None:
            raise RuntimeError("the workers have been started; shutdown() ends them")
        self._executor = self._make(variables)
        self._executor.start()
        self._executable = executable

    def execute(self, func: Callable[[Any], Any], callbacks: Sequence[Callable[..., Any]] | None) -> list[Any]:
        if self._executable is None:
            raise RuntimeError("there are no workers yet: start() them")
        return self._executor.run(functools.partial(_call, self._executable, func), callbacks)

    def shutdown(self) -> None:
        self._executable = None

    def _make(self, variables: Mapping[str, str]) -> ElasticRayExecutor:
        use_gpu, cpus, gpus = self._options
        return ElasticRayExecutor(self._settings, use_gpu, cpus, gpus, variables, self._override_discovery)


def elastic_workers(
    settings: MiniSettings,
    limits: Limits,
    cooldown_range: Sequence[float] | None,
    override_discovery: bool,
    cpus: int,
    gpus: int,
) -> ElasticWorkers:
    """With the settings of either executor."""
    limits.check("min_workers", "max_workers")
    own = ElasticSettings(
        nics=settings.nics,
        timeout_s=settings.timeout_s,
        min_num_proc=limits.least,
        max_num_proc=limits.most,
        elastic_timeout=limits.seconds,
        reset_limit=limits.resets,
        cooldown_range=cooldown_range,
        discovery=getattr(settings, "discovery", None),
    )
    return ElasticWorkers(own, cpus, gpus, override_discovery)


def _call(executable: Executable, func: Callable[[Any], Any]) -> Any:
    kind, args, kwargs = executable
    return func(None if kind is None else kind(*(args or ()), **(kwargs or {})))
