"""RayExecutor: functions on ranks that are Ray's actors, with Horovod's interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from horo.driver import Limits
from horo.exceptions import HorovodInternalError
from horo.legacy.timeout import Timeout
from horo.ray.elastic import ElasticWorkers, elastic_workers
from horo.ray.placement import Wish, Workers
from horo.ray.places import fetch, hand_out_places
from horo.ray.settings import MiniSettings

# How long ranks that fail because of another one may be quicker than the news of that other one.
_CAUSE_SECONDS = 10.0
_LEAVE_SECONDS = 5.0


class RayExecutor:
    """Ranks on Ray, which run one function after the other.

    Args:
        settings: Of create_settings().
        num_workers: As many ranks, on as few nodes as possible.
        num_hosts, num_workers_per_host: Instead: so many nodes, each with so many ranks.
        cpus_per_worker, use_gpu, gpus_per_worker: What each rank takes of Ray's resources.
        use_current_placement_group: Whether ranks go into the placement group that this task or actor is in, if it is.
        min_workers, max_workers: Instead: as many ranks as there is room for, while a function runs (ElasticRayExecutor
            has the same, and tells what reset_limit, cooldown_range, elastic_timeout and override_discovery mean).
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: int = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: int = 100,
        nics: set[str] | None = None,
    ) -> MiniSettings:
        """`timeout_s` is how long workers may take to start and to be set up, `placement_group_timeout_s` how long Ray
        may take to find room for them. Of `nics` each node uses the first that it has. Nothing goes through ssh."""
        return MiniSettings(
            nics=nics,
            ssh_identity_file=ssh_identity_file,
            timeout_s=timeout_s,
            placement_group_timeout_s=placement_group_timeout_s,
        )

    def __init__(
        self,
        settings: Any,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
    ) -> None:
        elastic = {"max_workers": max_workers, "reset_limit": reset_limit, "cooldown_range": cooldown_range}
        if min_workers is not None and (num_workers is not None or num_hosts is not None):
            raise ValueError("give min_workers (and max_workers), or num_workers or num_hosts, not both")
        if min_workers is None and any(value is not None for value in elastic.values()):
            raise ValueError(f"{', '.join(elastic)} belong to elastic jobs: give min_workers, too")
        if min_workers is None and (num_workers is None) == (num_hosts is None):
            raise ValueError(f"give num_workers ({num_workers}) or num_hosts ({num_hosts}), one of them")
        if gpus_per_worker is not None and not use_gpu:
            raise ValueError(f"gpus_per_worker is {gpus_per_worker}, but use_gpu is not set")
        if use_gpu and gpus_per_worker is not None and gpus_per_worker < 1:
            raise ValueError(f"gpus_per_worker is {gpus_per_worker}; with use_gpu it is 1 or more")
        wanted = {"num_workers": num_workers, "num_hosts": num_hosts, "num_workers_per_host": num_workers_per_host}
        for name, value in wanted.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it is 1 or more")
        self.settings = settings
        self._wish = Wish(
            hosts=num_hosts or 0,
            per_host=num_workers_per_host if num_hosts else num_workers or 0,
            cpus=cpus_per_worker,
            gpus=(gpus_per_worker or 1) if use_gpu else 0,
            use_current_group=use_current_placement_group,
        )
        self._workers: Workers | None = None
        self._elastic: ElasticWorkers | None = None
        if min_workers is not None:
            limits = Limits(min_workers, max_workers, elastic_timeout, reset_limit)
            self._elastic = elastic_workers(
                settings, limits, cooldown_range, override_discovery, self._wish.cpus, self._wish.gpus
            )

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the workers. Each makes an `executable_cls(*executable_args, **executable_kwargs)`, after its
        environment has got `extra_env_vars`; that is what execute() passes on. Elastic workers are started by run() and
        execute(), and end with them."""
        if self._elastic is not None:
            self._elastic.start((executable_cls, executable_args, executable_kwargs), extra_env_vars or {})
            return
        if self._workers is not None:
            raise RuntimeError("the workers have been started; shutdown() ends them")
        limit = self.settings.start_timeout
        room = Timeout(self.settings.placement_group_timeout_s, "")
        workers = Workers(self._wish, room, limit)
        try:
            ranks = range(len(workers))
            if extra_env_vars:
                fetch([workers.on(rank).update_env_vars.remote(dict(extra_env_vars)) for rank in ranks], limit)
            fetch(self._places(workers), limit)
            start = (executable_cls, executable_args, executable_kwargs)
            ray.get([workers.on(rank).start_executable.remote(*start) for rank in ranks])
        except BaseException:
            workers.release()
            raise
        self._workers = workers

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callable[..., Any]] | None = None,
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on all ranks and returns what they returned, in their order. What elastic workers
        hand to `horo.ray.logger.log()` each of the `callbacks` is called with."""
        if self._elastic is not None:
            words, named = tuple(args or ()), dict(kwargs or {})
            return self._elastic.execute(lambda _: fn(*words, **named), callbacks)
        _refuse_callbacks(callbacks)
        return outcomes_of(self.run_remote(fn, args, kwargs))

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> list[ray.ObjectRef]:
        """The same without waiting: references, which ray.get() takes."""
        words, named = tuple(args or ()), dict(kwargs or {})
        return self._on_all(lambda _: fn(*words, **named))

    def execute(self, fn: Callable[[Any], Any], callbacks: Sequence[Callable[..., Any]] | None = None) -> list[Any]:
        """Calls `fn(executable)` on all ranks, with what start() made there."""
        if self._elastic is not None:
            return self._elastic.execute(fn, callbacks)
        _refuse_callbacks(callbacks)
        return outcomes_of(self._on_all(fn))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls `fn(executable)` on rank 0."""
        return ray.get(self._started().on(0).execute.remote(fn))

    def shutdown(self) -> None:
        """Ends the workers and gives back their room."""
        if self._elastic is not None:
            self._elastic.shutdown()
        workers, self._workers = self._workers, None
        if workers is None:
            return
        leaving = [workers.on(rank).leave.remote() for rank in range(len(workers))]
        ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_SECONDS)
        workers.release()

    def _on_all(self, fn: Callable[[Any], Any]) -> list[ray.ObjectRef]:
        workers = self._started()
        shipped = ray.put(fn)
        # After a function that failed the workers need a new job.
        return [workers.on(rank).execute.remote(shipped, ready) for rank, ready in enumerate(self._places(workers))]

    def _places(self, workers: Workers) -> list[ray.ObjectRef]:
        interfaces = sorted(self.settings.nics) if self.settings.nics else None
        return hand_out_places(workers.call, len(workers), interfaces)

    def _started(self) -> Workers:
        if self._elastic is not None:
            raise NotImplementedError(
                "elastic workers come and go: there are run() and execute(), which end when all of them have"
            )
        if self._workers is None:
            raise RuntimeError("there are no workers yet: start() them")
        return self._workers


def outcomes_of(refs: Sequence[ray.ObjectRef]) -> list[Any]:
    """What all ranks returned; else raises what went wrong first. Ranks that fail only since another one is gone may be
    quicker than that one's own error, which is waited for then."""
    left = list(refs)
    consequence: Exception | None = None
    limit = Timeout(0, "")
    while left:
        done, left = ray.wait(left, timeout=None if consequence is None else limit.remaining())
        if not done:
            break
        try:
            ray.get(done[0])
        except Exception as error:
            if not isinstance(error, HorovodInternalError):
                raise
            if consequence is None:
                consequence, limit = error, Timeout(_CAUSE_SECONDS, "")
    if consequence is not None:
        raise consequence
    return ray.get(list(refs))


def _refuse_callbacks(callbacks: Sequence[Callable[..., Any]] | None) -> None:
    if callbacks:
        raise NotImplementedError("callbacks belong to elastic jobs, those of a RayExecutor with min_workers")
