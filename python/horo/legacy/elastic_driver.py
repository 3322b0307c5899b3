"""Horovod's ElasticDriver: an elastic job whose processes the caller starts, as many as a discovery has slots for."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from horo.discovery import HostDiscovery
from horo.driver import Cooldowns, ElasticJob, Limits, Ticket
from horo.legacy.host_manager import DiscoveredHosts, HostManager
from horo.legacy.hosts import INVALID_SLOT_INFO, SlotInfo
from horo.legacy.registration import WorkerStateRegistry
from horo.legacy.settings import newer
from horo.legacy.timeout import Timeout, TimeoutException
from horo.meeting import LOOPBACK, address_towards, layout

DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
ELASTIC_TIMEOUT_SECS = 600
RESET_LIMIT_EXCEEDED_MESSAGE = "the job has lost workers more often than its reset limit, {}, allows"
# For workers to end once their events are set.
_LAST_SECONDS = 30.0
_THIS_MACHINE = {"localhost", LOOPBACK, "::1"}

Place = tuple[str, int]  # A host, and the number of a slot there.
CreateWorker = Callable[[SlotInfo, list[threading.Event]], tuple[int, float]]


class Results(NamedTuple):
    error_message: str | None
    worker_results: dict[str, tuple[int, float]]  # Exit code and time of "host[slot]".


class WorkerSlot(SlotInfo):
    """The slot of a worker that is to be started, as the job is then: its ranks may be others when the worker enters.
    `local_rank` is the number of the slot, which nobody else on the host has."""

    def __init__(self, slot: SlotInfo, ticket: Ticket, key_file: str) -> None:
        super().__init__(**vars(slot))
        self.ticket = ticket
        self.key_file = key_file

    def to_env(self, key_file: str | None = None) -> dict[str, str]:
        """For the environment of its process, which joins the job by init(). The job's key is in a file that only this
        user can read; for a host that does not see that file say where a copy of it is. Where objects can be sent in
        secret, send `ticket` instead, and call horo.driver.take_seat() with it before init()."""
        return self.ticket.environment(key_file or self.key_file, self.hostname or "")


@dataclass
class _Worker:
    host: str
    slot: int
    ticket: Ticket
    end: threading.Event = field(default_factory=threading.Event)  # Asks whoever runs it to end it.
    leaves_until: float | None = None  # Was asked to leave.

    @property
    def place(self) -> Place:
        return self.host, self.slot

    @property
    def name(self) -> str:
        return f"{self.host}[{self.slot}]"


class ElasticDriver:
    """Lets the caller start a worker for each slot that there is, between `min_num_proc` and `max_num_proc` of them, as
    long as the job runs. Workers on new slots enter when the others commit; those whose slots are gone leave then
    (docs/elastic.md). A worker that fails costs its slot, for good or for `cooldown_range` seconds.

    Args:
        rendezvous: Not needed, None will do: the workers meet at the job's own store. What is given is stopped with
            the job if it has a stop().
        discovery: Which hosts there are; asked every second.
        timeout: For how many seconds fewer workers than `min_num_proc` wait for others; also how long workers that are
            to leave may take. HOROVOD_ELASTIC_TIMEOUT, or 600, if not given.
        reset_limit: How often the job may begin anew. The ranks count, and the driver counts the workers that fail.
        address: Where workers reach this process: by default route if not given, or loopback if the first hosts are
            called localhost; then others cannot come.
    """

    def __init__(
        self,
        rendezvous: Any,
        discovery: HostDiscovery,
        min_num_proc: int,
        max_num_proc: int | None,
        timeout: float | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[float] | None = None,
        verbose: int = 0,
        min_np: int | None = None,
        max_np: int | None = None,
        address: str | None = None,
    ) -> None:
        seconds = timeout or float(os.environ.get("HOROVOD_ELASTIC_TIMEOUT") or ELASTIC_TIMEOUT_SECS)
        least, most = newer("min_np", min_np, min_num_proc), newer("max_np", max_np, max_num_proc)
        self._limits = Limits(least, most, seconds, reset_limit)
        self._limits.check("min_num_proc", "max_num_proc")
        self._rendezvous = rendezvous
        self._hosts = HostManager(discovery, cooldown_range)
        self._cooldowns = Cooldowns(cooldown_range) if cooldown_range else None
        self._lost: set[Place] = set()
        self._registry = WorkerStateRegistry(self, self._hosts, reset_limit)
        self._verbose = verbose
        self._address = address
        self._changed = threading.Condition()  # Holds all that follows.
        self._create_worker: CreateWorker | None = None
        self._job: ElasticJob | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # With the key.
        self._key_file = ""
        self._next_seat = 0
        self._workers: dict[int, _Worker] = {}  # That run, by their seats.
        self._threads: list[threading.Thread] = []
        self._ends: list[tuple[str, int, float]] = []  # Of those who were not asked to leave.
        self._error: str | None = None
        self._trouble: Exception | None = None  # Of the last look for hosts.
        self._said: dict[str, str] = {}
        self._events: list[threading.Event] = []
        self._shutdown = threading.Event()
        self._wake = threading.Event()
        self._attendant = threading.Thread(target=self._attend, name="horo-elastic-driver", daemon=True)
        self._attendant.start()

    # ---- What callers ask for ----------------------------------------------------------------------------------------

    def start(self, num_proc: int, create_worker_fn: CreateWorker) -> None:
        """Waits for `num_proc` slots and uses all that there are then. `create_worker_fn(slot_info, events)` is called
        on a thread for each worker: it starts a process with slot_info.to_env() in its environment, ends it when one
        of `events` is set, and returns its exit code and the time, once it has ended."""
        hosts = self.wait_for_available_slots(max(num_proc, self._limits.least))
        with self._changed:
            if self._create_worker is not None:
                raise RuntimeError("the job was started before")
            self._create_worker = create_worker_fn
            self._job = ElasticJob(self._limits, self._address or self._usual_address(hosts))
            self._folder = tempfile.TemporaryDirectory(prefix="horo-driver-")
            self._key_file = f"{self._folder.name}/key"
            self._job.write_key(self._key_file)
            places = self._room(hosts)[: self._limits.most]
            tickets = self._job.first_tickets(len(places), [host for host, _ in places])
            self._next_seat = len(tickets)
            self._launch([_Worker(*place, ticket) for place, ticket in zip(places, tickets, strict=True)])

    def wait_for_available_slots(self, min_num_proc: int, min_hosts: int = 1) -> DiscoveredHosts:
        limit = Timeout(self._limits.seconds, "")
        with self._changed:
            while True:
                if self._shutdown.is_set():
                    raise RuntimeError(f"the job is over: {self._error or 'it was stopped'}") from self._trouble
                hosts = self._hosts.current_hosts
                if hosts.count_available_slots() >= min_num_proc and len(hosts.available_hosts) >= min_hosts:
                    return hosts
                if limit.timed_out():
                    raise TimeoutException(
                        f"there were not {min_num_proc} slots on {min_hosts} or more hosts within "
                        f"{self._limits.seconds:g} s. The discovery tells of: {hosts}"
                    )
                self._changed.wait(limit.remaining())

    def stop(self, error_message: str | None = None) -> None:
        """Ends the job: sets the events of all workers, and lets nobody enter."""
        with self._changed:
            self._error = self._error or error_message
            if self._shutdown.is_set():
                return
            self._shutdown.set()
            self._wake.set()
            self._changed.notify_all()
            if self._job is not None and self._folder is not None:
                self._job.close()
                self._folder.cleanup()
        if hasattr(self._rendezvous, "stop"):
            self._rendezvous.stop()

    def finished(self) -> bool:
        return self._shutdown.is_set()

    def get_results(self) -> Results:
        """Waits for the end of the job. Where at least `min_num_proc` workers ended well, the results are theirs: the
        others were lost on the way. Else they are those of all, and a caller finds who failed first by the times."""
        if self._create_worker is None:
            raise RuntimeError("there are no workers yet: start() them")
        self._shutdown.wait()
        end = time.monotonic() + _LAST_SECONDS
        with self._changed:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        with self._changed:
            left = ", ".join(worker.name for worker in self._workers.values())
            if left and self._error is None:
                self._error = f"workers did not end within {_LAST_SECONDS:g} s of the end of the job: {left}"
            well = {name: (code, when) for name, code, when in self._ends if code == 0}
            failed = {name: (code, when) for name, code, when in reversed(self._ends) if code != 0}
            return Results(self._error, well if len(well) >= self._limits.least else {**well, **failed})

    def register_shutdown_event(self, event: threading.Event | None = None) -> threading.Event:
        """The job is stopped when it is set, by the handler of a signal say."""
        event = event or threading.Event()
        with self._changed:
            self._events.append(event)
        return event

    # ---- Who is where ------------------------------------------------------------------------------------------------

    @property
    def host_assignments(self) -> dict[str, list[SlotInfo]]:
        """Of the workers that run and were not asked to leave, in the order of their seats. The ranks themselves know
        theirs: newcomers get them when they are let in."""
        found: dict[str, list[SlotInfo]] = {}
        for info in self._slot_infos().values():
            found.setdefault(info.hostname or "", []).append(info)
        return found

    def world_size(self) -> int:
        return len(self._slot_infos())

    def local_size(self, host: str) -> int:
        return len(self.host_assignments.get(host, []))

    def has_rank_assignment(self, host: str, slot: int) -> bool:
        return (host, slot) in self._slot_infos()

    def get_slot_info(self, host: str, slot: int) -> SlotInfo:
        return self._slot_infos().get((host, slot), INVALID_SLOT_INFO)

    def get_coordinator_info(self) -> SlotInfo | None:
        return next(iter(self._slot_infos().values()), None)

    def _slot_infos(self) -> dict[Place, SlotInfo]:
        with self._changed:
            staying = [worker for _, worker in sorted(self._workers.items()) if worker.leaves_until is None]
        numbers = layout([worker.host for worker in staying])
        return {
            worker.place: replace(SlotInfo(worker.host, **of), local_rank=worker.slot)
            for worker, of in zip(staying, numbers, strict=True)
        }

    # ---- The thread that attends to the job --------------------------------------------------------------------------

    def _attend(self) -> None:
        is_first = True
        while not self._shutdown.is_set():
            self._look_for_hosts(is_first)
            is_first = False
            if any(event.is_set() for event in list(self._events)):
                self.stop("the job was stopped by a shutdown event")
            with self._changed:
                self._adjust()
            self._wake.wait(DISCOVER_HOSTS_FREQUENCY_SECS)
            self._wake.clear()

    def _look_for_hosts(self, is_first: bool) -> None:
        try:
            changes = self._hosts.update_available_hosts()
        except Exception as error:
            self._trouble = error
            if is_first:  # A mistake, which shows at once.
                self.stop(f"hosts could not be looked for: {error}")
            else:
                self._say("trouble", f"hosts could not be looked for, and stay as they were: {error}")
            return
        self._trouble = None
        if changes:
            with self._changed:
                self._changed.notify_all()
                if self._verbose:
                    self._say("hosts", f"hosts are now {self._hosts.current_hosts}")

    def _adjust(self) -> None:
        """As many workers as there are slots."""
        if self._job is None or not self._job.is_open:
            return
        hosts = self._hosts.current_hosts
        # No hosts at all would be the end of the job, and is more likely a mistake of whoever tells.
        if hosts.host_slots:
            self._ask_to_leave(hosts)
        now = time.monotonic()
        for worker in self._workers.values():
            if worker.leaves_until is not None and now >= worker.leaves_until:
                worker.end.set()
        room = self._free_places(hosts)
        if self._limits.most is not None:
            room = room[: max(0, self._limits.most - self.world_size())]
        for place in room:
            self._launch([_Worker(*place, self._job.later_ticket(self._next_seat))])
            self._next_seat += 1

    def _ask_to_leave(self, hosts: DiscoveredHosts) -> None:
        """Those on hosts that have more workers than slots, who came last."""
        assert self._job is not None
        slots = {name: hosts.get_slots(name) for name in hosts.host_assignment_order}
        for name in {worker.host for worker in self._workers.values()}:
            staying = [one for _, one in sorted(self._workers.items()) if one.host == name and one.leaves_until is None]
            for worker in staying[slots.get(name, 0) :]:
                worker.leaves_until = time.monotonic() + self._limits.seconds
                self._job.ask_to_leave(worker.ticket.seat, f"the slot {worker.name} is gone")

    def _free_places(self, hosts: DiscoveredHosts) -> list[Place]:
        """Where workers can be started. Slots that workers were lost from count, whichever numbers are left."""
        found: list[Place] = []
        room = self._room(hosts)
        for name in dict.fromkeys(host for host, _ in room):
            taken = [worker.place for worker in self._workers.values() if worker.host == name]
            shut = [place for place in self._lost if place[0] == name and not self._may_be_used(place)]
            free = [place for place in room if place[0] == name and place not in taken and place not in shut]
            found += free[: max(0, hosts.get_slots(name) - len(taken) - len(shut))]
        return found

    def _room(self, hosts: DiscoveredHosts) -> list[Place]:
        names = hosts.host_assignment_order
        if self._job is not None and self._job.is_on_one_machine and self._address is None:
            strange = [name for name in names if name not in _THIS_MACHINE]
            if strange:
                words = f"{', '.join(strange)} cannot be used by a job on localhost: give the driver an address"
                self._say("strange hosts", words)
            names = [name for name in names if name not in strange]
        return [(name, slot) for name in names for slot in range(hosts.get_slots(name))]

    def _may_be_used(self, place: Place) -> bool:
        return place not in self._lost or (self._cooldowns is not None and self._cooldowns.is_over(place))

    @staticmethod
    def _usual_address(hosts: DiscoveredHosts) -> str:
        return LOOPBACK if hosts.available_hosts <= _THIS_MACHINE else address_towards(None) or LOOPBACK

    def _say(self, kind: str, words: str) -> None:
        """Once, until there is something else of that kind to say."""
        if self._said.get(kind) != words:
            self._said[kind] = words
            print(f"horo: {words}", file=sys.stderr)

    # ---- Workers -----------------------------------------------------------------------------------------------------

    def _launch(self, workers: Sequence[_Worker]) -> None:
        for worker in workers:
            self._workers[worker.ticket.seat] = worker
            self._registry.record_ready(*worker.place)
        infos = self._slot_infos()
        for worker in workers:
            slot = WorkerSlot(infos[worker.place], worker.ticket, self._key_file)
            thread = threading.Thread(target=self._run, args=(worker, slot), name=f"horo-{worker.name}", daemon=True)
            thread.start()
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _run(self, worker: _Worker, slot: WorkerSlot) -> None:
        assert self._create_worker is not None
        try:
            code, when = self._create_worker(slot, [self._shutdown, worker.end, *self._events])
        except Exception:
            traceback.print_exc()
            code, when = 1, time.time()
        self._take_end(worker, code, when)

    def _take_end(self, worker: _Worker, code: int, when: float) -> None:
        assert self._job is not None
        with self._changed:
            del self._workers[worker.ticket.seat]
            asked = worker.leaves_until is not None and bool(self._workers)  # The last one ends the job.
            if asked:
                self._registry.forget(*worker.place)
            else:
                self._ends.append((worker.name, code, when))
                (self._registry.record_failure if code else self._registry.record_success)(*worker.place)
            if code == 0 and not asked:
                self._job.close()  # The training is over: nobody enters any more.
            is_loss = code != 0 and not asked and self._job.is_open
            if is_loss:
                self._lost.add(worker.place)
                if self._cooldowns is not None:
                    self._cooldowns.lost_at(worker.place)
            nobody_is_left = not self._workers
        if is_loss:
            self._say("loss", f"worker {worker.name}, seat {worker.ticket.seat}, is lost, with exit code {code}")
        if is_loss and self._registry.is_over_limit():
            self.stop(RESET_LIMIT_EXCEEDED_MESSAGE.format(self._limits.resets))
        elif nobody_is_left:
            self.stop()
        elif code != 0 or asked:
            self._job.ended(worker.ticket)
        self._wake.set()
