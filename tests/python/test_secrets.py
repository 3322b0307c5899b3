"""Where the key of a running job is not: command lines, environments, output, files, shared memory, core dumps; and
what another user of the host can get hold of."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jobs
import pytest
import strangers

# A rank: tells the test the key, puts it back where horo looks for it, and begins anew without having seen it.
WRAPPER = """
import os, sys
fd = int(os.environ["HORO_KEY_FD"])
key = b""
while part := os.read(fd, 33 - len(key)):
    key += part
ends = os.pipe()
os.write(ends[1], key)
os.close(ends[1])
os.dup2(ends[0], fd)
os.close(ends[0])
with open(os.environ["TEST_KEYS"] + os.environ["HORO_RANK"], "wb") as told:
    told.write(key)
os.execv(sys.executable, [sys.executable, "-u", "-c", os.environ["TEST_SCRIPT"]])
"""
SCRIPT = """
import os, sys
import numpy as np
import horo
horo.init()
for round in range(3):
    total = horo.allreduce(np.ones(100000), op=horo.Sum)
    assert (total == horo.size()).all()
print("ready", os.getpid(), flush=True)
with open(os.environ["TEST_GO"]) as go:  # Until the test lets go.
    go.read()
assert (horo.allreduce(np.ones(1000), op=horo.Sum) == horo.size()).all()
print("well", flush=True)
"""
RANKS = 2
BLOCK = 16 << 20
# Nobody with more privileges than who looks can be looked at.
PLAIN = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 and shutil.which("setpriv") else []


@dataclass
class Running:
    key: bytes
    launcher: int
    ranks: list[int]
    folder: Path
    output: Path

    def processes(self) -> list[int]:
        """The launcher and everything below it."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        found = [self.launcher]
        for one in found:
            found += [pid for pid, parent in parents.items() if parent == one]
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A job as talkative as can be, over shared memory and sockets, whose temporary files are all in one folder."""
    folder = tmp_path_factory.mktemp("job")
    pipes = tmp_path_factory.mktemp("pipes")
    go = pipes / "go"
    os.mkfifo(go)
    for rank in range(RANKS):
        os.mkfifo(pipes / f"key{rank}")
    output = tmp_path_factory.mktemp("output") / "all"
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    settings |= {"TMPDIR": str(folder), "HORO_LOG_LEVEL": "trace", "HORO_STAGING": "8MiB"}
    settings |= {"TEST_KEYS": str(pipes / "key"), "TEST_GO": str(go), "TEST_SCRIPT": SCRIPT}
    command = [*PLAIN, jobs.launcher(), "run", "--verbose", "-np", str(RANKS), sys.executable, "-c", WRAPPER]
    with open(output, "wb") as file:
        job = subprocess.Popen(command, env=settings, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        keys = {(pipes / f"key{rank}").read_bytes() for rank in range(RANKS)}
        assert len(keys) == 1
        assert [len(key) for key in keys] == [32]
        ranks = _ready_ranks(job, output)
        yield Running(keys.pop(), job.pid, ranks, folder, output)
        with open(go, "w"):
            pass
        assert job.wait(jobs.LIMIT_SECONDS) == 0, output.read_text()
        assert output.read_text().count("well") == RANKS
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            job.wait(jobs.LIMIT_SECONDS)


def _ready_ranks(job: subprocess.Popen[bytes], output: Path) -> list[int]:
    limit = time.monotonic() + jobs.LIMIT_SECONDS
    while True:
        lines = [line.split("ready ")[1] for line in output.read_text().splitlines() if "ready " in line]
        if len(lines) == RANKS:
            return [int(line) for line in lines]
        assert job.poll() is None, output.read_text()
        assert time.monotonic() < limit, output.read_text()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(0.02)


def shapes_of(key: bytes) -> list[bytes]:
    """As it might stand in a text or a file. Half of it is enough to find."""
    halves = [key[:16], key[16:]]
    shapes = [*halves, *(half.hex().encode() for half in halves), *(half.hex().upper().encode() for half in halves)]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        shapes.append(encode(key)[:40])
    shapes.append(repr(list(key))[1:-1].encode())
    return shapes


def finds(key: bytes, where: bytes) -> bool:
    return any(shape in where for shape in shapes_of(key))


def test_the_scanner_finds_a_key(running: Running) -> None:
    for shape in (running.key, running.key.hex().encode(), base64.b64encode(running.key), running.key[16:]):
        assert finds(running.key, b"before " + shape + b" after")
    assert not finds(running.key, os.urandom(4096))


def test_it_is_on_no_command_line_and_in_no_environment(running: Running) -> None:
    assert len(running.processes()) >= 1 + RANKS
    looked = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                assert not finds(running.key, (entry / name).read_bytes()), f"{name} of process {entry.name}"
                looked += 1
    assert looked >= 2 * (1 + RANKS)


def test_it_is_not_in_the_output_of_a_talkative_job(running: Running) -> None:
    said = running.output.read_bytes()
    assert b"horo info" in said, "the log is not as talkative as this test wants it"
    assert not finds(running.key, said)


def test_it_is_in_no_file_and_in_no_shared_memory(running: Running) -> None:
    places = [path for path in running.folder.rglob("*") if path.is_file()]
    places += [path for path in Path("/dev/shm").rglob("*") if path.is_file()]
    places += [path for path in Path("/tmp").glob("horo*") if path.is_file()]
    for pid in running.processes():
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if stat.S_ISREG(link.stat().st_mode) and not os.readlink(link).endswith((".so", ".py", ".pyc")):
                    places.append(link)
    for path in places:
        for block in _blocks_of(path):
            assert not finds(running.key, block), path
    # What the ranks share has no name.
    assert [path.name for path in Path("/dev/shm").iterdir() if "horo" in path.name] == []


def _blocks_of(path: Path) -> Iterator[bytes]:
    """What was ever written to a file: what ranks share is large and mostly empty."""
    with contextlib.suppress(OSError), open(path, "rb", 0) as file:
        at, end = 0, file.seek(0, os.SEEK_END)
        while at < end:
            at = os.lseek(file.fileno(), at, os.SEEK_DATA)  # OSError at the end.
            stop = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < stop:
                block = os.pread(file.fileno(), min(stop - at, BLOCK), at)
                if not block:
                    return
                yield block
                at += len(block)


def test_it_is_in_no_core_dump_and_in_no_memory_that_a_forked_child_gets(running: Running) -> None:
    """Wherever it lies in the memory of a rank, the page is left out of dumps and wiped in children."""
    assert any(_places_in_memory(running.launcher, running.key)), "the launcher has it, and this does not find it"
    for pid in running.ranks:
        for begin, flags, where in _places_in_memory(pid, running.key):
            # dd: not dumped; wf: wiped on fork.
            assert {"dd", "wf"} <= flags, f"process {pid} has it at {where:x} of a mapping at {begin:x} with {flags}"


@pytest.mark.skipif(os.geteuid() == 0 and not PLAIN, reason="root needs setpriv to do without privileges")
def test_nobody_without_privileges_reads_the_memory_of_launcher_and_agents_nor_is_it_dumped(running: Running) -> None:
    """The kernel refuses one and the other to the same processes."""
    look = "import sys\nfor pid in sys.argv[1:]:\n try: open(f'/proc/{pid}/mem'); print(pid)\n except OSError: pass"
    said = subprocess.run(
        [*PLAIN, "/usr/bin/python3", "-I", "-c", look, *map(str, running.processes())],
        capture_output=True,
        text=True,
        timeout=jobs.LIMIT_SECONDS,
        check=True,
    ).stdout
    assert sorted(map(int, said.split())) == sorted(running.ranks), "of this user's other processes it reads all"


def _places_in_memory(pid: int, key: bytes) -> Iterator[tuple[int, set[str], int]]:
    """In what is the process's own; what it shares has been looked at as files."""
    begin = end = resident = 0
    private = False
    with open(f"/proc/{pid}/smaps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                begin, end = (int(part, 16) for part in words[0].split("-"))
                private = words[1].startswith("rw-p")
            elif words[0] == "Rss:":
                resident = int(words[1])
            elif words[0] == "VmFlags:" and private and resident > 0:
                for start, stop in _present(pid, begin, end):
                    memory.seek(start)
                    block = memory.read(stop - start)
                    for part in (key[:16], key[16:]):
                        if (at := block.find(part)) >= 0:
                            yield begin, set(words[1:]), start + at


def _present(pid: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of pages that exist: reading others would make them."""
    page = os.sysconf("SC_PAGESIZE")
    with open(f"/proc/{pid}/pagemap", "rb", 0) as table:
        table.seek(begin // page * 8)
        entries = table.read((end - begin) // page * 8)
    start = None
    for number in range(len(entries) // 8 + 1):
        here = number < len(entries) // 8 and entries[number * 8 + 7] & 0xC0 != 0  # Present, or swapped out.
        if here and start is None:
            start = begin + number * page
        if start is not None and (not here or begin + number * page - start >= BLOCK):
            yield start, begin + number * page
            start = begin + number * page if here else None


# ---- Another user ----------------------------------------------------------------------------------------------------

INTRUDER = """
import ctypes, os, socket, sys
doors, pids, tries = sys.argv[1].split(","), [int(pid) for pid in sys.argv[2].split(",")], int(sys.argv[3])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
libc = ctypes.CDLL(None, use_errno=True)
got, reached = [], 0
def attempt(what, call):
    try:
        result = call()
    except OSError:
        return
    if result:
        got.append(what)
def ptrace(pid):
    return libc.ptrace(16, pid, 0, 0) == 0  # PTRACE_ATTACH
def descriptors(pid):
    return os.listdir(f"/proc/{pid}/fd")
def memory(pid):
    with open(f"/proc/{pid}/mem", "rb") as file:
        return file
def environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()
def take_descriptor(pid):
    handle = os.pidfd_open(pid)
    try:
        return any(libc.syscall(438, handle, fd, 0) >= 0 for fd in range(3, 40))  # pidfd_getfd
    finally:
        os.close(handle)
def write_memory(pid):
    data = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(data), 8)
    return libc.process_vm_readv(pid, vector, 1, vector, 1, 0) >= 0
def knock(door):
    family = socket.AF_UNIX if door.startswith("@") else socket.AF_INET
    with socket.socket(family) as end:
        end.settimeout(10)
        host, _, port = door.rpartition(":")
        end.connect("\\0" + door[1:] if door.startswith("@") else (host, int(port)))
        end.sendall(b"HATT" + os.urandom(116))
        global reached
        reached += 1
        if not door.startswith("@"):
            return end.recv(4096)
        answer, descriptors, _, _ = socket.recv_fds(end, 4096, 8)
        return answer or descriptors
for _ in range(tries):
    for pid in pids:
        for call in (ptrace, descriptors, memory, environment, take_descriptor, write_memory):
            attempt(f"{call.__name__} {pid}", lambda: call(pid))
    for door in doors:
        attempt(f"knock {door}", lambda: knock(door))
print(got, reached)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_hold_of_nothing(running: Running) -> None:
    doors = {door.address for pid in running.processes() for door in strangers.doors_of(pid)}
    assert len(doors) >= 2 * RANKS + 1
    pids = [running.launcher, *running.ranks]
    # Of this user's the same calls succeed, or the test would show nothing.
    assert os.listdir(f"/proc/{running.ranks[0]}/fd")
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(running.ranks[0])
    taken = libc.syscall(438, handle, 3, 0)
    os.close(handle)
    assert taken >= 0
    os.close(taken)
    words = [",".join(sorted(doors)), ",".join(map(str, pids)), "100"]
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", textwrap.dedent(INTRUDER), *words],
        capture_output=True,
        text=True,
        timeout=jobs.LIMIT_SECONDS,
        check=False,
    )
    assert done.stdout.strip() == f"[] {100 * len(doors)}", done.stdout + done.stderr
