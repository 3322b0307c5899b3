"""How ranks that have a store of torch's become a job of horo's."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import secrets
import socket
import struct
from typing import Any

from horo import _horo
from horo.world import interruptibly

_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


def start_engine(store: Any, rank: int, size: int) -> _horo.Engine:
    """Joins the job of the ranks that share `store`, and waits for all of them.

    Rank 0 opens a store of horo's and publishes its address, the name of the job and a fresh key in torch's store. So
    whoever can read that store can join: the job is as safe as the store is. Where all ranks are on one host, nothing
    listens beyond loopback. The key is taken out of the store once all have joined.
    """
    if size == 1:
        return _engine(0, 1, None, secrets.token_hex(8), None, on_one_host=True)
    # Another round each time that the same ranks meet at the same store.
    round_number = (store.add("horo/came", 1) - 1) // size
    prefix = f"horo/{round_number}"
    store.set(f"{prefix}/host/{rank}", json.dumps({"host": _host_id(), "address": _address_towards(None)}))
    if rank != 0:
        meeting = json.loads(_get(store, f"{prefix}/meeting"))
        return _engine(
            rank, size, meeting["address"], meeting["job"], bytes.fromhex(meeting["key"]), meeting["on_one_host"]
        )
    hosts = [json.loads(_get(store, f"{prefix}/host/{other}")) for other in range(size)]
    on_one_host = len({one["host"] for one in hosts}) == 1
    address = _LOOPBACK if on_one_host else _own_address(hosts)
    job, key = secrets.token_hex(8), secrets.token_bytes(32)
    meeting_store = _horo.Store(f"{address}:0", job, key)
    try:
        meeting = {"address": meeting_store.address, "job": job, "key": key.hex(), "on_one_host": on_one_host}
        store.set(f"{prefix}/meeting", json.dumps(meeting))
        return _engine(0, size, meeting_store.address, job, key, on_one_host)
    finally:
        meeting_store.close()
        with contextlib.suppress(Exception):  # Not every store can forget.
            store.delete_key(f"{prefix}/meeting")


def _get(store: Any, key: str) -> str:
    return store.get(key).decode()


def _engine(rank: int, size: int, store: str | None, job: str, key: bytes | None, on_one_host: bool) -> _horo.Engine:
    settings = [] if os.environ.get("HORO_INTERFACE") or not on_one_host else [f"HORO_INTERFACE={_LOOPBACK}"]

    def start() -> _horo.Engine:
        engine = _horo.Engine(rank, size, store, job, key, settings)
        engine.open_messages()
        return engine

    return interruptibly(start)


def _host_id() -> str:
    """Equal where ranks can reach each other over loopback."""
    given = os.environ.get("HORO_HOST_ID")
    if given:
        return given
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def _own_address(hosts: list[dict[str, str]]) -> str:
    """Where the ranks of other hosts reach this one."""
    interface = os.environ.get("HORO_INTERFACE")
    if interface:
        return _address_of(interface)
    others = [one["address"] for one in hosts if one["host"] != hosts[0]["host"]]
    return _address_towards(others[0] or None) or hosts[0]["address"]


def _address_of(interface: str) -> str:
    """Of an interface, or the address itself."""
    with contextlib.suppress(OSError):
        socket.inet_aton(interface)
        return interface
    request = array.array("B", struct.pack("256s", interface.encode()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe, _SIOCGIFADDR, request, True)
        except OSError as error:
            raise ValueError(f"HORO_INTERFACE={interface} is no interface with an IPv4 address: {error}") from None
    return socket.inet_ntoa(request[20:24].tobytes())


def _address_towards(peer: str | None) -> str:
    """The address that packets to `peer` would come from; without one, that of the default route. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer or "192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])
