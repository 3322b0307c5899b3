"""How processes that another program has started become the ranks of a job.

They tell each other where they are, in whatever way they have, and one of them opens a meeting. Its terms, which it
hands to the others, contain the job's key: they go only where strangers cannot read.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import secrets
import socket
import struct
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from horo import _horo

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


class Place(NamedTuple):
    """One rank's place in a job: what init() needs to know."""

    rank: int  # -1 and None: as the environment says.
    size: int
    store: str | None
    job: str
    key: bytes | None
    settings: tuple[str, ...] = ()  # "HORO_X=value", before the environment.

    def __repr__(self) -> str:
        return f"Place(rank={self.rank}, size={self.size}, store={self.store!r}, job={self.job!r})"


class Arrival(NamedTuple):
    """Where a process is.

    `machine` is equal where processes reach each other over loopback, `host` where they share memory and count as
    neighbours. Other machines reach the process at `address`; with `chosen` its user has said so in HORO_INTERFACE.
    """

    machine: str
    host: str
    address: str
    chosen: bool


def arrival(address: str | None = None, host: str | None = None) -> Arrival:
    """Of this process: `address` and `host` as a framework knows them, unless HORO_INTERFACE and HORO_HOST_ID say."""
    named = os.environ.get("HORO_HOST_ID")
    machine = named or machine_id()
    interface = os.environ.get("HORO_INTERFACE", "")
    found = address_of(interface) if interface else address or address_towards(None)
    return Arrival(machine, named or host or machine, found, bool(interface))


class Terms(NamedTuple):
    """What the ranks of a job have to know about it. Whoever knows that can join."""

    store: str | None
    job: str
    key: bytes | None
    on_one_machine: bool
    hosts: Sequence[int]  # Of each rank.

    def __repr__(self) -> str:
        return f"Terms(store={self.store!r}, job={self.job!r}, ranks={len(self.hosts)})"

    def written(self) -> str:
        return json.dumps(self._replace(key=self.key.hex() if self.key else None))

    @classmethod
    def read(cls, words: str) -> Terms:
        terms = cls(*json.loads(words))
        return terms._replace(key=bytes.fromhex(terms.key) if terms.key else None)

    def place(self, rank: int, here: Arrival) -> Place:
        settings = []
        if not here.chosen and (self.on_one_machine or here.address):
            settings.append(f"HORO_INTERFACE={LOOPBACK if self.on_one_machine else here.address}")
        if here.host != here.machine:
            settings.append(f"HORO_HOST_ID={here.host}")
        return Place(rank, len(self.hosts), self.store, self.job, self.key, tuple(settings))

    def variables(self, rank: int, host_name: str) -> dict[str, str]:
        """What scripts for Horovod look for in the environment."""
        numbers = {f"HOROVOD_{name.upper()}": str(value) for name, value in layout(self.hosts)[rank].items()}
        return {**numbers, "HOROVOD_HOSTNAME": host_name}


class Meeting:
    """A job of the processes that have arrived, in the order of their ranks, of which this one is rank 0. Its store is
    served here until close(), which may be once this process has joined; then nobody can leave and join again."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        on_one_machine = len({one.machine for one in arrivals}) == 1
        names = list(dict.fromkeys(one.host for one in arrivals))
        job = secrets.token_hex(8)
        key = secrets.token_bytes(32)  # Of one rank, too: the job that this process may be in has another.
        # Where all are on one machine, nothing listens beyond loopback.
        address = LOOPBACK if on_one_machine else _address_for_others(arrivals)
        self._store = _horo.Store(f"{address}:0", job, key) if len(arrivals) > 1 else None
        found = self._store.address if self._store else None
        self.terms = Terms(found, job, key, on_one_machine, [names.index(one.host) for one in arrivals])

    def close(self) -> None:
        if self._store:
            self._store.close()


def _address_for_others(arrivals: Sequence[Arrival]) -> str:
    """Where they reach rank 0."""
    here = arrivals[0]
    others = [one.address for one in arrivals if one.machine != here.machine]
    found = here.address if here.chosen else address_towards(others[0] or None) or here.address
    return f"[{found}]" if ":" in found else found


def layout(hosts: Sequence[Hashable]) -> list[dict[str, int]]:
    """The numbers of ranks in the job, on their hosts and across them, as init() will find them."""
    local_sizes, cross_sizes = Counter[Hashable](), Counter[int]()
    numbers = []
    for rank, host in enumerate(hosts):
        local = local_sizes[host]
        numbers.append({"rank": rank, "size": len(hosts), "local_rank": local, "cross_rank": cross_sizes[local]})
        local_sizes[host] += 1
        cross_sizes[local] += 1
    for host, of_rank in zip(hosts, numbers, strict=True):
        of_rank |= {"local_size": local_sizes[host], "cross_size": cross_sizes[of_rank["local_rank"]]}
    return numbers


def place_of_environment() -> Place | None:
    """For launchers that have nothing but the environment to hand the key over: what this process starts later does
    not find it there."""
    key = os.environ.pop("HORO_KEY", None)
    if key is None:
        return None
    try:
        secret = bytes.fromhex(key)
    except ValueError:
        raise ValueError(f"HORO_KEY has {len(key)} characters that are not 64 hexadecimal digits") from None
    return Place(-1, -1, None, os.environ.get("HORO_JOB_ID") or "horo", secret)


def trusts_store() -> bool:
    """Whether torchrun started this rank on one of several hosts, and its user takes the key from torchrun's store."""
    variables = os.environ
    if variables.get("HORO_TRUST_STORE", "").lower() not in ("1", "true", "yes", "on"):
        return False
    told = any(name in variables for name in ("HORO_RANK", "HOROVOD_RANK", "HORO_KEY_FILE", "HORO_KEY_FD"))
    several = variables.get("WORLD_SIZE") != variables.get("LOCAL_WORLD_SIZE")
    return "TORCHELASTIC_RUN_ID" in variables and several and not told


def machine_id() -> str:
    """Equal where ranks can reach each other over loopback."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def first_interface(names: Sequence[str]) -> str:
    """The first of them that this host has."""
    here = [name for _, name in socket.if_nameindex()]
    for wanted in names:
        if wanted in here:
            return wanted
    raise ValueError(
        f"none of the interfaces {', '.join(names)} is on {socket.gethostname()}, which has {', '.join(here)}"
    )


def address_of(interface: str) -> str:
    """Of an interface, or the address itself."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, interface)
            return interface
    request = array.array("B", struct.pack("256s", interface.encode()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe, _SIOCGIFADDR, request, True)
        except OSError as error:
            raise ValueError(f"HORO_INTERFACE={interface} is no interface with an IPv4 address: {error}") from None
    return socket.inet_ntoa(request[20:24].tobytes())


def address_towards(peer: str | None) -> str:
    """The address that packets to `peer` would come from; without one, that of the default route. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer or "192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])
