"""What strangers send to the sockets of a job to make it run their code, and a job that must not mind.

Every request carries a pickle that makes a folder, the canary, when somebody unpickles it. The sequences are those of
CVE-2024-10190 (HTTP PUT of a pickle to the elastic rendezvous), CVE-2026-31234 (the key-value store of `run()`), of
services that check a signature they can be talked out of, of object-passing RPC, and of checkpoints.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import io
import os
import pickle
import socket
import struct
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import horo

# What docs/security.md promises to somebody who has proved nothing, and what a machine that is busy may add to it.
MOST_SECONDS = 2.0
SLACK_SECONDS = 8.0


@dataclass(frozen=True)
class Door:
    """A listening socket: "127.0.0.1:4711", or the name of an abstract Unix socket behind "@"."""

    address: str
    pid: int

    def connect(self) -> socket.socket:
        if self.address.startswith("@"):
            end = socket.socket(socket.AF_UNIX)
            end.settimeout(MOST_SECONDS + SLACK_SECONDS)
            end.connect("\0" + self.address[1:])
            return end
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=MOST_SECONDS + SLACK_SECONDS)


def doors_of(pid: int) -> set[Door]:
    """Everything that a process listens at. Processes that cannot be looked into have none."""
    inodes = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{pid}/fd/{name}")
                if link.startswith("socket:["):
                    inodes.add(link[8:-1])
    doors = set()
    for table in ("tcp", "tcp6"):
        for words in _rows(f"/proc/{pid}/net/{table}"):
            if words[3] == "0A" and words[9] in inodes:
                doors.add(Door(_address(words[1]), pid))
    for words in _rows(f"/proc/{pid}/net/unix"):
        if words[3] == "00010000" and words[6] in inodes and len(words) > 7:
            doors.add(Door(words[7], pid))
    return doors


def _rows(path: str) -> list[list[str]]:
    try:
        return [line.split() for line in Path(path).read_text().splitlines()[1:]]
    except OSError:
        return []


def _address(text: str) -> str:
    """The kernel writes addresses as little-endian words. One that is open to all is reached over loopback."""
    digits, _, port = text.partition(":")
    if len(digits) == 8:
        quad = bytes.fromhex(digits)[::-1]
        host = "127.0.0.1" if quad == bytes(4) else ".".join(map(str, quad))
    else:
        words = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, 32, 8))
        host = "127.0.0.1" if words == bytes(16) else socket.inet_ntop(socket.AF_INET6, words)
    return f"{host}:{int(port, 16)}"


def launcher_of(pid: int) -> list[int]:
    """The processes above one that are the program horo: the agent and the launcher of a rank."""
    found = []
    while pid > 1:
        with open(f"/proc/{pid}/stat") as file:
            name, _, rest = file.read().rpartition(")")
        if name.partition("(")[2] in ("horo", "horo-agent"):
            found.append(pid)
        pid = int(rest.split()[1])
    return found


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.canary,)


def _http(method: str, path: str, body: bytes = b"", version: str = "1.1") -> bytes:
    head = f"{method} {path} HTTP/{version}\r\nHost: job\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _checkpoint(blob: bytes) -> bytes:
    """As torch.save() writes it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", blob)
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


def requests(canary: str) -> dict[str, list[bytes]]:
    """Named sequences of what is sent on one connection, one after the other."""
    bomb = pickle.dumps(Bomb(canary))
    text = base64.b64encode(bomb)
    sequences = {
        # CVE-2024-10190: a worker's address is unpickled from a PUT to the rendezvous.
        "rendezvous, worker address": [_http("PUT", "/worker_addresses/localhost:0", text)],
        "rendezvous, all of it": [
            _http("GET", "/rank_and_size/localhost/0"),
            _http("PUT", "/worker_addresses/localhost:0", text),
            _http("GET", "/worker_addresses/localhost:0"),
            _http("DELETE", "/worker_addresses"),
        ],
        # CVE-2026-31234: the function of run() and the results of its ranks.
        "function of a run": [_http("PUT", "/runfunc/func", bomb), _http("GET", "/runfunc/func")],
        "results of a run": [_http("PUT", f"/runfunc_result/{rank}", bomb) for rank in range(3)],
        "rendezvous scope": [_http("PUT", "/global/0", bomb, "1.0"), _http("PUT", "/shutdown/0", text, "1.0")],
        "post": [_http("POST", "/", bomb), _http("POST", "/pickle", text)],
        "a body without an end": [b"PUT /runfunc/func HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", bomb * 200],
        # Checkpoints, and objects of RPC without any frame, with one, and with lengths that promise more.
        "checkpoint": [_checkpoint(bomb)],
        "checkpoint by http": [_http("PUT", "/checkpoint/0", _checkpoint(bomb))],
        "framed, little end": [struct.pack("<I", len(bomb)) + bomb],
        "framed, big end": [struct.pack("!i", len(bomb)) + bomb, struct.pack("!Q", 1 << 40)],
        # A store of torch: the word that every client begins with, then "set".
        "torch store": [struct.pack("<BI", 0, 0x3C85F7CE), struct.pack("<BQ", 1, 3) + b"key" + bomb],
        "torch rpc": [struct.pack("<QQ", len(bomb), 1 << 32) + b"data.pkl" + bomb],
        # The connections of multiprocessing: an answer to a challenge that nobody has asked.
        "multiprocessing": [struct.pack("!i", 20) + b"#CHALLENGE#" + bytes(9), struct.pack("!i", len(bomb)) + bomb],
        "json": [b'{"jsonrpc":"2.0","method":"eval","params":["__import__(\'os\').mkdir(%r)"]}' % canary.encode()],
        "shell": [f"; mkdir {canary}\n$(mkdir {canary})\n`mkdir {canary}`\n".encode()],
    }
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        sequences[f"pickle, protocol {protocol}"] = [pickle.dumps(Bomb(canary), protocol)]
    # A signed service: a digest, a length, a pickle. Signed with keys that somebody might have left in.
    for key in (b"", b"secret", bytes(32)):
        digest = hmac.new(key, bomb, hashlib.sha256).digest()
        sequences[f"signed with {key!r}"] = [digest + struct.pack("i", len(bomb)) + bomb]
    # What begins as horo's own connections do: records of TLS, and the request of a data stream.
    sequences["tls around it"] = [bytes([22, 3, 1]) + struct.pack("!H", len(bomb)) + bomb]
    sequences["attach before it"] = [b"HATT" + struct.pack("<HBB", 1, 0, 0) + bytes(112) + bomb]
    return sequences


@dataclass
class Answer:
    request: str
    door: Door
    said: bytes
    seconds: float
    closed: bool


def throw(door: Door, name: str, parts: list[bytes]) -> Answer:
    """Everything that comes back until the door is shut."""
    began = time.monotonic()
    said = b""
    closed = False
    with contextlib.closing(door.connect()) as end:
        try:
            for part in parts:
                end.sendall(part)
            while chunk := end.recv(4096):
                said += chunk
            closed = True
        except (ConnectionError, BrokenPipeError):
            closed = True  # Shut before everything was said.
        except TimeoutError:
            pass
    return Answer(name, door, said, time.monotonic() - began, closed)


def throw_all(doors: list[Door], canary: str) -> list[Answer]:
    """Each request at each door, many at once: some wait until their time is over."""
    work = [(door, name, parts) for name, parts in requests(canary).items() for door in doors]
    answers: list[Answer] = []

    def next_ones() -> None:
        while True:
            try:
                door, name, parts = work.pop()
            except IndexError:
                return
            answers.append(throw(door, name, parts))

    throwers = [threading.Thread(target=next_ones) for _ in range(48)]
    for thrower in throwers:
        thrower.start()
    for thrower in throwers:
        thrower.join()
    return answers


def complaints_about(answers: list[Answer], metrics: set[str]) -> list[str]:
    """What was not refused. Metrics are read-only HTTP; everything else says nothing, or an alert of TLS."""
    wrong = []
    for answer in answers:
        where = f"{answer.request} at {answer.door.address}: "
        if not answer.closed or answer.seconds > MOST_SECONDS + SLACK_SECONDS:
            wrong.append(f"{where}kept waiting for {answer.seconds:.1f} s")
        if answer.door.address in metrics:
            if answer.said and not answer.said.startswith(b"HTTP/1.1 4"):
                wrong.append(f"{where}{answer.said[:80]!r}")
        elif answer.said and not (answer.said[0] == 21 and len(answer.said) <= 64):
            wrong.append(f"{where}{answer.said[:80]!r}")
    return wrong


def go_on_among_strangers(folder: str) -> dict[str, Any]:
    """On every rank: rank 0 throws everything at the doors of all ranks and of their launcher, while all reduce.
    Returns what was found."""
    from horo.world import world  # Not to be shipped with this function.

    before = doors_of(os.getpid())  # Of Ray, say.
    horo.init()
    # Where a meeting is opened before the function is called, the store listens by then.
    store = world._place.store if world._place else None
    mine = {door for door in doors_of(os.getpid()) if door not in before or door.address == store}
    port = int(os.environ.get("HORO_METRICS_PORT", "0"))
    metrics = {door.address for door in mine if port and door.address.endswith(f":{port + horo.local_rank()}")}
    for pid in launcher_of(os.getpid()):
        mine |= doors_of(pid)  # Which root can see; another user knows the store by its address.
    if store := os.environ.get("HORO_STORE"):
        mine.add(Door(store, 0))
    doors = sorted({door.address: door for some in horo.allgather_object(mine) for door in some}.values(), key=str)
    canary = str(Path(folder) / "canary")
    found: list[Answer] = []
    thrower = threading.Thread(target=lambda: found.extend(throw_all(doors, canary)))
    everywhere = set().union(*horo.allgather_object(metrics))
    if horo.rank() == 0:
        thrower.start()
    rounds, over = 0, False
    while not over:
        over = horo.rank() == 0 and not thrower.is_alive()
        values = np.full(1001, float(horo.rank() + 1))
        values[1000] = over
        total = horo.allreduce(values, op=horo.Sum, name="sum")
        assert (total[:1000] == sum(range(horo.size() + 1))).all(), total
        over = total[1000] > 0
        rounds += 1
    return {
        "doors": [door.address for door in doors],
        "metrics": sorted(everywhere),
        "requests": len(requests(canary)),
        "answers": len(found),
        "wrong": complaints_about(found, everywhere),
        "rounds": rounds,
        "canary": Path(canary).exists(),
    }


def expect_unharmed(results: list[dict[str, Any]], least_doors: int) -> None:
    """What go_on_among_strangers() returned on each rank."""
    first = results[0]
    assert first["wrong"] == [], first
    assert not any(result["canary"] for result in results), "a stranger's pickle was unpickled"
    assert len(first["doors"]) >= least_doors, first["doors"]
    assert first["answers"] == first["requests"] * len(first["doors"]), first
    assert len({result["rounds"] for result in results}) == 1, results
