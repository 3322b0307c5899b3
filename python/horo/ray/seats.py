"""The actors of an elastic job: the first, those that take the places of lost ones, and those on new nodes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horo.driver import Cooldowns, ElasticJob, Limits, Outcome, Ticket, call_in_seat, has_joined, values_of
from horo.meeting import LOOPBACK, Arrival, address_of, first_interface
from horo.ray import worker

# How often nodes are counted.
_LOOK_SECONDS = 1.0
_SAY_EVERY_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
# Jobs whose first ranks do not come together are started so often.
_MOST_STARTS = 3
_LOSSES = (
    ray.exceptions.RayActorError,
    ray.exceptions.ActorUnschedulableError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
)


class Needs(NamedTuple):
    """What each actor takes of its node, and finds there."""

    cpus: int
    gpus: int
    variables: Mapping[str, str]
    interfaces: Sequence[str] | None


@ray.remote(concurrency_groups={"asides": 1})
class SeatActor:
    """A process that takes one seat. It is asked whether it has joined the job while its function runs."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        os.environ.update(variables)
        self._arrival: Arrival | None = None

    def arrive(self, interfaces: Sequence[str] | None) -> Arrival:
        _, self._arrival = worker.arrive(interfaces)
        return self._arrival

    def run(self, func: Callable[[], Any], ticket: Ticket) -> Outcome:
        assert self._arrival is not None
        return call_in_seat(ticket, self._arrival, func)

    @ray.method(concurrency_group="asides")
    def has_joined(self) -> bool:
        return has_joined()


@dataclass
class _Seat:
    actor: Any
    node: str
    arrived: ray.ObjectRef
    ticket: Ticket | None = None
    outcome: ray.ObjectRef | None = None
    asked_to_leave: bool = False

    def has_come(self) -> bool:
        return bool(ray.wait([self.arrived], timeout=0)[0])


class Seats:
    """Runs a function in as many actors as there is room for.

    `slots` tells how many each node may have, by its id; `hear` is called now and then.
    """

    def __init__(
        self,
        needs: Needs,
        limits: Limits,
        cooldowns: Cooldowns,
        slots: Callable[[], Mapping[str, int]],
        hear: Callable[[], None],
    ) -> None:
        self._needs = needs
        self._limits = limits
        self._cooldowns = cooldowns
        self._slots = slots
        self._hear = hear
        self._address = _own_address(needs.interfaces)
        self._job = ElasticJob(limits, self._address)
        self._has_begun = True  # Nothing tells that the first ranks did not come together.
        self._waiting: list[_Seat] = []  # For their turn in the first job.
        self._seats: dict[ray.ObjectRef, _Seat] = {}  # By what will be their outcomes.
        self._outcomes: list[Outcome] = []
        self._lost = 0
        self._given_up: Counter[str] = Counter()  # Slots, by their nodes.
        self._known: Mapping[str, int] = {}
        self._next = 0

    def run(self, func: Callable[[], Any], settle_seconds: float) -> list[Any]:
        """What those return that are left at the end. Actors that come within `settle_seconds` are ranks from the
        beginning, if they are enough; the others enter later."""
        shipped = ray.put(func)
        try:
            for _ in range(_MOST_STARTS):
                self._gather(settle_seconds)
                self._begin(shipped)
                self._attend(shipped)
                if self._has_begun:
                    break
                self._clear()
            return values_of(self._outcomes, self._lost)
        finally:
            self._clear()
            self._hear()

    def _attend(self, shipped: ray.ObjectRef) -> None:
        while self._seats and self._has_begun:
            self._look_for_outcomes()
            self._hear()
            if self._has_begun and self._job.is_open:
                self._adjust(shipped)

    def _clear(self) -> None:
        self._job.close()
        for seat in (*self._waiting, *self._seats.values()):
            ray.kill(seat.actor)
        self._waiting, self._seats = [], {}

    # ---- The first ranks ---------------------------------------------------------------------------------------------

    def _gather(self, settle_seconds: float) -> None:
        begin = say_at = time.monotonic()
        pause = threading.Event()
        while True:
            self._fill(self._start)
            come = [seat for seat in list(self._waiting) if self._has_arrived(seat)]
            waited = time.monotonic() - begin
            everybody = len(come) == len(self._waiting) or waited >= settle_seconds
            if len(come) >= self._limits.least and everybody:
                return
            if waited >= self._limits.seconds:
                raise TimeoutError(
                    f"Ray had room for {len(come)} workers within {self._limits.seconds} s (elastic_timeout), and at "
                    f"least {self._limits.least} are wanted. The cluster has {ray.cluster_resources()}, of which "
                    f"{ray.available_resources()} are free"
                )
            if waited >= settle_seconds and time.monotonic() >= say_at:
                words = f"horo: {len(come)} of at least {self._limits.least} workers have come: waiting for others"
                print(words, file=sys.stderr)
                say_at = time.monotonic() + _SAY_EVERY_SECONDS
            late = [seat.arrived for seat in self._waiting if seat not in come]
            if late:
                ray.wait(late, timeout=_LOOK_SECONDS)
            else:
                pause.wait(_LOOK_SECONDS)

    def _has_arrived(self, seat: _Seat) -> bool:
        """One that died on its way is not waited for."""
        if not seat.has_come():
            return False
        try:
            ray.get(seat.arrived)
        except _LOSSES:
            self._waiting.remove(seat)
            self._cooldowns.lost_at(seat.node)
            return False
        return True

    def _begin(self, shipped: ray.ObjectRef) -> None:
        if not self._job.is_open:
            self._job = ElasticJob(self._limits, self._address)
        self._has_begun = True
        first = [seat for seat in list(self._waiting) if self._has_arrived(seat)]
        late = [seat for seat in self._waiting if seat not in first]
        self._waiting = []
        nodes = [seat.node for seat in first]
        # Ranks of a node follow each other.
        first = sorted(first, key=lambda seat: nodes.index(seat.node))
        tickets = self._job.first_tickets(len(first), [ray.get(seat.arrived).host for seat in first])
        for seat, ticket in zip(first, tickets, strict=True):
            self._hand_out(seat, ticket, shipped)
        self._next = len(first)
        for seat in late:
            self._enter(seat, shipped)

    # ---- Those who come later ----------------------------------------------------------------------------------------

    def _adjust(self, shipped: ray.ObjectRef) -> None:
        """As many seats as there are slots."""
        slots = self._fill(lambda node: self._enter(self._start(node), shipped))
        for node in {seat.node for seat in self._seats.values()}:
            here = [seat for seat in self._seats.values() if seat.node == node]
            for seat in here[slots.get(node, 0) :]:
                if not seat.asked_to_leave and seat.ticket is not None:
                    seat.asked_to_leave = True
                    self._job.ask_to_leave(seat.ticket.seat, f"node {node} has fewer slots")

    def _fill(self, take: Callable[[str], Any]) -> Mapping[str, int]:
        slots = self._look_for_slots()
        for node, count in slots.items():
            seats = [*self._waiting, *self._seats.values()]
            free = count - self._given_up[node] - sum(seat.node == node for seat in seats)
            if self._limits.most is not None:
                free = min(free, self._limits.most - sum(not seat.asked_to_leave for seat in seats))
            if self._cooldowns.is_over(node):
                for _ in range(free):
                    take(node)
        return slots

    def _look_for_slots(self) -> Mapping[str, int]:
        try:
            self._known = self._slots()
        except Exception as error:
            # Whoever tells of hosts may fail without the job doing so.
            print(f"horo: hosts could not be looked for, and stay as they were: {error!r}", file=sys.stderr)
        return self._known

    def _start(self, node: str) -> _Seat:
        needs = self._needs
        actor = SeatActor.options(
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(dict(needs.variables))
        seat = _Seat(actor, node, actor.arrive.remote(needs.interfaces))
        self._waiting.append(seat)
        return seat

    def _enter(self, seat: _Seat, shipped: ray.ObjectRef) -> None:
        if seat in self._waiting:
            self._waiting.remove(seat)
        self._hand_out(seat, self._job.later_ticket(self._next), shipped)
        self._next += 1

    def _hand_out(self, seat: _Seat, ticket: Ticket, shipped: ray.ObjectRef) -> None:
        seat.ticket = ticket
        seat.outcome = seat.actor.run.remote(shipped, ticket)
        self._seats[seat.outcome] = seat

    # ---- Ends --------------------------------------------------------------------------------------------------------

    def _look_for_outcomes(self) -> None:
        refs = list(self._seats)
        done, _ = ray.wait(refs, num_returns=1, timeout=_LOOK_SECONDS)
        for ref in done:
            self._take_outcome(self._seats.pop(ref), ref)

    def _take_outcome(self, seat: _Seat, ref: ray.ObjectRef) -> None:
        assert seat.ticket is not None
        try:
            outcome = ray.get(ref)
        except _LOSSES as error:
            print(f"horo: seat {seat.ticket.seat} is lost: {str(error).splitlines()[0]}", file=sys.stderr)
            self._lost += 1
            outcome = None
        else:
            ray.kill(seat.actor)
            self._outcomes.append(outcome)
        if not self._job.is_open:
            return
        if outcome is None or outcome.get("is_loss"):
            self._cooldowns.lost_at(seat.node)
            if self._is_too_early(seat):
                print("horo: ranks were lost before the job had begun: it is started anew", file=sys.stderr)
                self._has_begun = False
                return
        elif "value" not in outcome and not seat.asked_to_leave:
            # What the program raises it would raise again: nobody else is started for that.
            self._given_up[seat.node] += 1
        self._job.ended(seat.ticket)
        too_few = sum(self._given_up.values()) > 0 and len(self._seats) < self._limits.least
        if (outcome is not None and "value" in outcome) or too_few or not self._members_are_left():
            self._close()

    def _is_too_early(self, ended: _Seat) -> bool:
        """Whether one of the first ranks has ended before all were in the job: then nobody has trained yet."""
        first = [seat for seat in (ended, *self._seats.values()) if seat.ticket and seat.ticket.rank is not None]
        return ended in first and len(first) > 1 and not any(_have_joined(first[1:]))

    def _members_are_left(self) -> bool:
        """Whether somebody can open the door. The first ranks are members, or will be."""
        seats = list(self._seats.values())
        if any(seat.ticket is not None and seat.ticket.rank is not None for seat in seats):
            return True
        return any(_have_joined([seat for seat in seats if seat.has_come()]))

    def _close(self) -> None:
        """The job ends, and nobody enters any more; those who have not started are not waited for."""
        if not self._job.is_open:
            return
        self._job.close()
        for ref in [ref for ref, seat in self._seats.items() if not seat.has_come()]:
            ray.kill(self._seats.pop(ref).actor)


def _have_joined(seats: Sequence[_Seat]) -> list[bool]:
    """One that does not answer may have."""
    asked = [seat.actor.has_joined.remote() for seat in seats]
    found = []
    for answer in asked:
        try:
            found.append(ray.get(answer, timeout=_ANSWER_SECONDS))
        except ray.exceptions.GetTimeoutError:
            found.append(True)
        except _LOSSES:
            found.append(False)
    return found


def _own_address(interfaces: Sequence[str] | None) -> str:
    """Where the actors reach this process, as they reach Ray's."""
    if interfaces:
        return address_of(first_interface(interfaces))
    return ray.util.get_node_ip_address() or LOOPBACK
