"""Addresses of this host and of others."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import socket
from collections.abc import Iterable

from horo.meeting import address_of, address_towards


@functools.cache
def get_local_host_addresses() -> frozenset[str]:
    """IPv4 addresses of all interfaces."""
    found = set()
    for _, name in socket.if_nameindex():
        with contextlib.suppress(ValueError):
            found.add(address_of(name))
    return frozenset(found)


def get_local_intfs(nic: str | None = None) -> set[str]:
    """Interfaces that have an address; of those only `nic`."""
    found = set()
    for _, name in socket.if_nameindex():
        with contextlib.suppress(ValueError):
            address_of(name)
            found.add(name)
    return found & {nic} if nic else found


def get_driver_ip(nics: Iterable[str] | None = None) -> str:
    """Where other hosts reach this one: by the first of `nics` that it has, else by the default route."""
    here = get_local_intfs()
    for name in nics or ():
        if name in here:
            return address_of(name)
    if nics:
        raise RuntimeError(f"none of the interfaces {', '.join(sorted(nics))} is here: {', '.join(sorted(here))}")
    return address_towards(None) or socket.gethostbyname(socket.gethostname())


def resolve_host_address(host_name: str) -> str | None:
    with contextlib.suppress(OSError):
        return socket.gethostbyname(host_name)
    return None


def filter_local_addresses(all_host_names: Iterable[str]) -> list[str]:
    """Those of the names that are not this host's."""
    own = get_local_host_addresses() | {"127.0.0.1"}
    return [name for name in all_host_names if resolve_host_address(name) not in own]


def host_hash(salt: str | None = None) -> str:
    """Equal for processes that share this host and its namespaces, and, with a salt, for those alone who know it."""
    name = os.environ.get("HORO_HOST_ID") or socket.gethostname()
    spaces = []
    with contextlib.suppress(OSError):
        spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "uts")]
    words = "-".join([name, *spaces, *([salt] if salt else [])])
    return f"{name.split('.')[0]}-{hashlib.sha256(words.encode()).hexdigest()[:32]}"
