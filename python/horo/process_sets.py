"""Ranks that run operations together, independently of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horo.communicators import is_communicator, ranks_among
from horo.world import interruptibly, world


class ProcessSet:
    """Some ranks of the job. It has a number, `process_set_id`, from init() or add_process_set() on.

    Of a communicator of mpi4py the set's ranks are its members; the ranks are known from init() on. Ranks may pass
    different communicators at the same place: all of them become process sets, and each rank's object is its own.
    """

    process_set_id: int | None
    ranks: list[int] | None
    mpi_comm: Any | None

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        self.process_set_id = None
        self.mpi_comm = None
        if is_communicator(ranks_or_comm):
            self.mpi_comm, self.ranks = ranks_or_comm, None
            return
        try:
            self.ranks = sorted(int(rank) for rank in ranks_or_comm)
        except TypeError:
            raise ValueError(f"a process set is made of ranks, not of {ranks_or_comm!r}") from None

    def wanted_ranks(self) -> list[int]:
        if self.ranks is None and self.mpi_comm is not None:
            return ranks_among(self.mpi_comm, world.communicator)
        if self.ranks is None:
            raise ValueError("this process set was removed, or has lost a rank; make a new one")
        return self.ranks

    def number(self) -> int:
        """For handing in operations."""
        if self.process_set_id is None:
            world.runtime  # noqa: B018  Without init() that is what is wrong.
            raise ValueError(f"{self} is not known to horo; pass it to init() or to add_process_set()")
        return self.process_set_id

    def size(self) -> int:
        return len(world.runtime.set_ranks(self.number()))

    def rank(self) -> int:
        """This rank's place in the set."""
        ranks = world.runtime.set_ranks(self.number())
        mine = world.runtime.rank()
        if mine not in ranks:
            raise ValueError(f"rank {mine} is not in {self}")
        return ranks.index(mine)

    def included(self) -> bool:
        return world.runtime.rank() in world.runtime.set_ranks(self.number())

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    def __init__(self) -> None:
        super().__init__([])
        self.process_set_id = 0


global_process_set = _GlobalProcessSet()
_known: list[ProcessSet] = []
_static: list[ProcessSet] = []  # That the job was started with.


def enter_static_sets(sets: Sequence[ProcessSet]) -> None:
    global_process_set.ranks = list(range(world.runtime.size()))
    # A process that enters a running job may find it too small for some of them.
    there = world.runtime.set_numbers()
    _static[:] = sets
    for number, one in enumerate(sets, start=1):
        one.process_set_id = number if number in there else None
        _known.append(one)


def enter_sets_of_communicators(sets: Sequence[ProcessSet]) -> None:
    """For sets that are communicators on this rank, and others on other ranks."""
    from horo.objects import allgather_object
    from horo.operations import barrier

    enter_static_sets([])
    wanted = [one.wanted_ranks() for one in sets]
    of_ranks: list[list[list[int]]] = allgather_object(wanted, name="horo.init.process_sets")
    if len({len(lists) for lists in of_ranks}) > 1:
        counts = ", ".join(f"rank {rank}: {len(lists)}" for rank, lists in enumerate(of_ranks))
        raise ValueError(f"all ranks pass equally many process sets to init(), not {counts}")
    for place, one in enumerate(sets):
        for ranks in sorted({tuple(lists[place]) for lists in of_ranks}):
            number = interruptibly(lambda ranks=ranks: world.runtime.add_set(list(ranks)))
            if list(ranks) == wanted[place]:
                one.process_set_id, one.ranks = number, list(ranks)
                _known.append(one)
    barrier()  # Who left now would take the sets from those who are still making them.


def follow_reform() -> None:
    """The ranks have other numbers now; process sets that have lost a rank are over."""
    global_process_set.ranks = list(range(world.runtime.size()))
    numbers = world.runtime.set_numbers()
    for one in list(_known):
        if one.process_set_id in numbers:
            one.ranks = list(world.runtime.set_ranks(one.process_set_id))
        else:
            one.process_set_id = None
            one.ranks = None
            _known.remove(one)


def follow_growth() -> None:
    """The job has grown: the sets that it was started with were made anew, for the ranks with the same numbers, and
    those that were added later are over."""
    added = [one for one in _known if one not in _static]
    for one in added:
        one.process_set_id = one.ranks = None
    _known.clear()
    enter_static_sets(list(_static))
    for one in _static:
        if one.process_set_id is not None:
            one.ranks = list(world.runtime.set_ranks(one.process_set_id))


def leave_all_sets() -> None:
    global_process_set.ranks = []
    for one in _known:
        one.process_set_id = None
        if one.mpi_comm is not None:
            one.ranks = None
    _known.clear()


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Called by all ranks of the job, also those that are not in it, in the same order."""
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    runtime = world.runtime
    if added.process_set_id is not None:
        raise ValueError(f"{added} was added before")
    if added.mpi_comm is not None:
        raise ValueError("process sets of communicators are passed to init(process_sets=[...])")
    ranks = added.wanted_ranks()
    added.process_set_id = interruptibly(lambda: runtime.add_set(ranks))
    _known.append(added)
    return added


def process_set_of(ranks: list[int]) -> tuple[ProcessSet, bool]:
    """For all ranks of the job: the set of these, and whether it was added for this call. There may be one already."""
    runtime = world.runtime
    for number in runtime.set_numbers():
        if list(runtime.set_ranks(number)) == ranks:
            there = ProcessSet(ranks)
            there.process_set_id = number
            return there, False
    return add_process_set(ranks), True


def remove_process_set(process_set: ProcessSet) -> bool:
    """Called by all ranks of the job. False when there is no such set."""
    runtime = world.runtime
    number = process_set.process_set_id
    if number is None:
        return False
    interruptibly(lambda: runtime.remove_set(number))
    world.forget_names(number)
    process_set.process_set_id = None
    process_set.ranks = None
    if process_set in _known:
        _known.remove(process_set)
    return True
