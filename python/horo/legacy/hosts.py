"""Hosts, their slots, and the numbers of the ranks that run there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from horo.meeting import layout


@dataclass
class HostInfo:
    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str, slots_if_none: int = 1) -> HostInfo:
        """Of "host:4", or of "host" alone. An IPv6 address with a number is "[::1]:4"."""
        words = host_string.strip()
        name, colon, slots = words.rpartition(":")
        is_address = words.count(":") > 1 and not (words.startswith("[") and name.endswith("]"))
        if not colon or is_address:
            return HostInfo(words.strip("[]"), slots_if_none)
        if not name or not slots.isdecimal() or int(slots) < 1:
            raise ValueError(f"{host_string!r} is not of the form host:slots, with one slot or more")
        return HostInfo(name.strip("[]"), int(slots))


@dataclass
class SlotInfo:
    hostname: str | None
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """Numbers only: "rank,size,local_rank,local_size,cross_rank,cross_size"."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(str(number) for number in numbers)

    @staticmethod
    def from_response_string(response_string: str) -> SlotInfo:
        rank, size, local_rank, local_size, cross_rank, cross_size = (int(one) for one in response_string.split(","))
        return SlotInfo(None, rank, local_rank, cross_rank, size, local_size, cross_size)

    def __hash__(self) -> int:
        return hash(astuple(self))


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Of "a:2,b:4"."""
    return [HostInfo.from_string(one) for one in hosts_string.split(",")]


def parse_host_files(filename: str) -> str:
    """ "a:2,b:4" of a file with lines "a slots=2"."""
    hosts = []
    with open(filename, encoding="utf-8") as file:
        for line in file:
            name, *settings = line.split("#")[0].split() or [""]
            slots = next((one.partition("=")[2] for one in settings if one.startswith("slots=")), "1")
            if name:
                hosts.append(f"{name}:{slots}")
    return ",".join(hosts)


def get_host_assignments(
    hosts: Iterable[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """A rank for each slot, host by host, `max_num_proc` at most. ValueError for fewer slots than `min_num_proc`."""
    places = [host.hostname for host in hosts for _ in range(host.slots)]
    if len(places) < min_num_proc:
        raise ValueError(f"{min_num_proc} processes need as many slots, and the hosts have {len(places)}")
    places = places[:max_num_proc]
    return [SlotInfo(hostname=name, **numbers) for name, numbers in zip(places, layout(places), strict=True)]
