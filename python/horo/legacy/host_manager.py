"""The hosts that an elastic job may use: what a discovery told last, less those that are left alone for a while."""

from __future__ import annotations

import functools
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from horo.discovery import HostDiscovery
from horo.driver import Cooldowns
from horo.resize import HostUpdateResult

DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS = 1
DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS = 3600


def check_cooldowns(cooldown_range: Sequence[float]) -> None:
    low, high = cooldown_range
    if not DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS <= low <= high <= DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS:
        raise ValueError(
            f"cooldown_range is {tuple(cooldown_range)}: seconds, at least and at most, between "
            f"{DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS} and {DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS}"
        )


class HostState:
    """One host. Without a `cooldown_range` it is left alone for good once it is on the blacklist."""

    def __init__(
        self,
        cooldown_range: Sequence[float] | None = None,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        if cooldown_range is not None:
            check_cooldowns(cooldown_range)
        self._cooldowns = None if cooldown_range is None else Cooldowns(cooldown_range, now, draw)
        self._event = threading.Event()
        self._blacklisted = False

    def get_event(self) -> threading.Event:
        """Set when the host is put on the blacklist next."""
        if self._event.is_set():
            self._event = threading.Event()
        return self._event

    def set_event(self) -> None:
        self._event.set()

    def blacklist(self) -> None:
        """Again while it is on the list changes nothing."""
        if not self.is_blacklisted() or self.is_resurrected():
            self._blacklisted = True
            if self._cooldowns is not None:
                self._cooldowns.lost_at(self)
            self.set_event()

    def whitelist(self) -> None:
        self._blacklisted = False

    def is_blacklisted(self) -> bool:
        return self._blacklisted

    def is_resurrected(self) -> bool:
        """Whether it is on the list, and need not be any more."""
        return self._blacklisted and self._cooldowns is not None and self._cooldowns.is_over(self)


class DiscoveredHosts:
    """Hosts and their slots, those that have been there longest first."""

    def __init__(self, host_slots: Mapping[str, int], host_assignment_order: Sequence[str]) -> None:
        self._slots = dict(host_slots)
        self._order = list(host_assignment_order)

    @property
    def host_slots(self) -> dict[str, int]:
        """Of those on the blacklist, too."""
        return self._slots

    @property
    def available_hosts(self) -> set[str]:
        return set(self._order)

    @property
    def host_assignment_order(self) -> list[str]:
        return self._order

    def get_slots(self, host: str) -> int:
        return self._slots.get(host, 0)

    def count_available_slots(self) -> int:
        return sum(self.get_slots(host) for host in self._order)

    def update(self, hosts_state: Mapping[str, HostState]) -> DiscoveredHosts:
        """Less those that are on the blacklist by now."""
        self._order = [host for host in self._order if not hosts_state[host].is_blacklisted()]
        return self

    def __str__(self) -> str:
        return ", ".join(f"{host}:{self.get_slots(host)}" for host in self._order) or "no hosts"


class HostManager:
    """`new_state` is for tests: a HostState with another clock."""

    def __init__(
        self,
        discovery: HostDiscovery,
        cooldown_range: Sequence[float] | None = None,
        new_state: Callable[[Sequence[float] | None], HostState] = HostState,
    ) -> None:
        if cooldown_range is not None:
            check_cooldowns(cooldown_range)
        self._discovery = discovery
        self._new_state = functools.partial(new_state, cooldown_range)
        self._states: dict[str, HostState] = {}
        self._lock = threading.RLock()
        self._current = DiscoveredHosts({}, [])

    def update_available_hosts(self) -> HostUpdateResult:
        """Asks the discovery, which may take its time and raise what it will, and tells what has changed. Whose time
        on the blacklist is over counts as added."""
        slots = dict(self._discovery.find_available_hosts_and_slots())
        with self._lock:
            before = self._current
            changes = _changes(before.host_slots, slots)
            for host in slots:
                if self._state(host).is_resurrected():
                    self._state(host).whitelist()
                    changes |= HostUpdateResult.added
            usable = [host for host in slots if not self._state(host).is_blacklisted()]
            self._current = DiscoveredHosts(slots, self.order_available_hosts(usable, before.host_assignment_order))
            return changes

    @property
    def current_hosts(self) -> DiscoveredHosts:
        with self._lock:
            return self._current.update({host: self._state(host) for host in self._current.host_slots})

    def blacklist(self, host: str) -> None:
        with self._lock:
            self._state(host).blacklist()

    def is_blacklisted(self, host: str) -> bool:
        with self._lock:
            return self._state(host).is_blacklisted()

    def get_host_event(self, host: str) -> threading.Event:
        with self._lock:
            return self._state(host).get_event()

    @staticmethod
    def order_available_hosts(available_hosts: Iterable[str], prev_host_assignment_order: Sequence[str]) -> list[str]:
        """Those that were there before keep their order; others come behind them."""
        available = list(available_hosts)
        known = [host for host in prev_host_assignment_order if host in available]
        return known + [host for host in available if host not in known]

    def _state(self, host: str) -> HostState:
        if host not in self._states:
            self._states[host] = self._new_state()
        return self._states[host]


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> HostUpdateResult:
    found = HostUpdateResult.no_update
    for host in {*before, *after}:
        had, has = before.get(host, 0), after.get(host, 0)
        if has < had:
            found |= HostUpdateResult.removed
        if has > had:
            found |= HostUpdateResult.added
    return found
