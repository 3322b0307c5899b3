"""The process group of the back end "horo"."""

from __future__ import annotations

import atexit
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from horo import _horo
from horo.torch.c10d.boot import start_engine
from horo.torch.c10d.collectives import Collectives
from horo.torch.c10d.messages import Messages
from horo.torch.c10d.monitored import monitored_barrier
from horo.world import interruptibly

_live: weakref.WeakSet[ProcessGroupHoro] = weakref.WeakSet()


class ProcessGroupHoro(Collectives, Messages, dist.ProcessGroup):
    """Some ranks, over horo. The first group of a job has an engine; groups of some of its ranks live in the same."""

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def __init__(self, engine: _horo.Engine, group: _horo.Group, rank: int, timeout: timedelta, owns: bool) -> None:
        dist.ProcessGroup.__init__(self, rank, group.size)
        self.engine = engine
        self._group = group
        self._rank = rank
        self._size = group.size
        self._timeout = timeout
        self._owns = owns  # The engine ends with it.
        self._name = ""
        self._description = ""
        self._start()
        _live.add(self)

    @property
    def native_group(self) -> _horo.Group:
        """The ordered group, for what is built on it."""
        return self._members()

    def ordered_group(self, ranks: list[int] | None = None) -> _horo.Group:
        """Another ordered group of this one's ranks, or of these of its engine's (rising).

        All of them make it, in the same order. Operations of different groups never meet.
        """
        members = self._members().ranks if ranks is None else ranks
        return interruptibly(lambda: self.engine.group(members))

    # What torch asks of every group.

    def getBackendName(self) -> str:
        return "horo"

    name = _get_backend_name = getBackendName

    def _get_backend(self, device: torch.device) -> ProcessGroupHoro:
        return self

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name = pg_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        """How many collectives were begun."""
        return self._sequence

    def _has_hooks(self) -> bool:
        return False

    def _wait_for_pending_works(self) -> None:
        """Everything that was begun before this is done then."""
        self.barrier().wait()

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """See horo.torch.monitored_barrier."""
        if isinstance(timeout, (int, float)):  # Seconds, as torch's takes them too.
            timeout = timedelta(seconds=timeout)
        monitored_barrier(self, timeout, wait_all_ranks)

    # The end

    def abort(self) -> None:
        """Everything under way ends with an error, here and on the other ranks."""
        if self._group is not None:
            self._group.give_up(f"rank {self._rank} aborted the process group")
        self.shutdown()

    def shutdown(self) -> None:
        group, self._group = self._group, None
        _live.discard(self)
        if group is not None and self._owns:
            self.engine.shutdown()


def create(options: Any, backend_options: Any = None) -> ProcessGroupHoro:
    """What torch calls for init_process_group and new_group."""
    ranks = list(options.global_ranks_in_group)
    timeout = options.timeout or dist.default_pg_timeout
    parent = _world_group() if ranks else None
    if parent is not None and ranks == sorted(ranks):
        return ProcessGroupHoro(parent.engine, parent.ordered_group(ranks), options.group_rank, timeout, owns=False)
    # The first of its job, or one whose ranks have another order than the job's.
    engine = start_engine(options.store, options.group_rank, options.group_size)
    return ProcessGroupHoro(engine, engine.world(), options.group_rank, timeout, owns=True)


def _world_group() -> ProcessGroupHoro | None:
    group = dist.distributed_c10d._get_default_group()
    return group if isinstance(group, ProcessGroupHoro) else None


def group_of(group: dist.ProcessGroup | None) -> ProcessGroupHoro:
    """A group of this back end; the default one for None."""
    given = group if group is not None else dist.distributed_c10d._get_default_group()
    if not isinstance(given, ProcessGroupHoro):
        raise ValueError(f"a process group of the back end horo is needed, not one of {type(given).__name__}")
    return given


@atexit.register
def _say_goodbye() -> None:
    """Programs that end without destroy_process_group: the others are told that this rank left."""
    for group in list(_live):
        if group._owns:
            group.shutdown()
