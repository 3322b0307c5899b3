"""Horovod's ElasticDriver with real processes, which come, die and leave; and who is told of that."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jobs
import numpy as np
import pytest
from horovod.common.elastic import notification_manager
from horovod.runner.common.util.hosts import INVALID_SLOT_INFO, SlotInfo
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.elastic.discovery import FixedHosts, HostDiscoveryScript, HostUpdateResult
from horovod.runner.elastic.driver import ElasticDriver, Results
from horovod.runner.elastic.rendezvous import RendezvousServer, create_rendezvous_handler
from horovod.runner.elastic.worker import WorkerNotificationManager

import horo
from horo import elastic

LIMIT_SECONDS = 40


def train_until_told() -> None:
    """Until rank 0 finds the file `stop`. Tells of each step, and of what listeners hear."""
    import pathlib

    import horovod.common.elastic as elastic
    from horovod.runner.elastic.worker import WorkerNotificationManager

    folder, seat = pathlib.Path(os.environ["FOLDER"]), os.environ["HORO_SEAT"]

    class Listener:
        def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
            assert abs(time.time() - timestamp) < 60
            with (folder / f"heard{seat}").open("a") as file:
                file.write(f"{update_res.name} ")  # type: ignore[attr-defined]
            raise RuntimeError("nobody minds what a listener raises")

    manager = WorkerNotificationManager()
    manager.init()
    manager.register_listener(Listener())
    horo.init()

    def train(state: elastic.ObjectState) -> None:
        while True:
            (folder / f"new{seat}").write_text(f"{os.getpid()} {horo.rank()} {horo.size()}")
            (folder / f"new{seat}").rename(folder / f"seat{seat}")  # Nobody reads half of it.
            told = np.array([(folder / "stop").exists() and horo.rank() == 0], np.int32)
            if horo.broadcast(told, 0, name="told")[0]:
                return
            state.total += horo.allreduce(np.ones(1), op=horo.Average, name="ones")[0]
            state.step += 1
            state.commit()

    state = elastic.ObjectState(lambda obj: horo.broadcast_object(obj, 0), horo.rank, step=0, total=0.0)
    elastic.run_fn(train)(state)
    assert state.step == state.total > 0, (state.step, state.total)


def fail_at_once() -> None:
    horo.init()
    sys.exit(7)


class Workers:
    """Starts processes for a driver, as callers of it do."""

    def __init__(self, folder: Path, body: Callable[[], None] = train_until_told) -> None:
        self.folder = folder
        self._script = jobs.script_of(body)
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.slots: dict[int, SlotInfo] = {}

    def create(self, slot: SlotInfo, events: list[threading.Event]) -> tuple[int, float]:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("HORO_", "HOROVOD_"))}
        added = slot.to_env()  # type: ignore[attr-defined]
        seat = int(added["HORO_SEAT"])
        with (self.folder / f"said{seat}").open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-u", "-c", self._script],
                env={**known, **added, "FOLDER": str(self.folder), "HORO_TIMEOUT": "20s"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.slots[seat], self.processes[seat] = slot, process
        while process.poll() is None:
            if any(event.is_set() for event in events):
                process.kill()
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        return process.returncode, time.time()

    def wait_until(self, seat: int, holds: Callable[[int, int], bool]) -> None:
        """For the rank and the size that a seat has come to."""
        path = self.folder / f"seat{seat}"
        self._wait(lambda: path.exists() and holds(*map(int, path.read_text().split()[1:])), f"seat {seat}")

    def wait_for_end(self, seat: int) -> int | None:
        self._wait(lambda: seat in self.processes and self.processes[seat].returncode is not None, f"end of {seat}")
        return self.processes[seat].returncode

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        pause = threading.Event()
        while not holds():
            assert time.monotonic() < end, f"{what}: {self.all_said()}"
            pause.wait(0.02)

    def all_said(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.folder.iterdir()) if path.is_file()}

    def stop_training(self) -> None:
        (self.folder / "stop").touch()


def results_of(driver: ElasticDriver) -> Results:
    too_late = threading.Timer(LIMIT_SECONDS, driver.stop, ["the job did not end by itself"])
    too_late.start()
    try:
        return driver.get_results()
    finally:
        too_late.cancel()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    found = Workers(tmp_path)
    yield found
    for process in found.processes.values():
        if process.returncode is None:
            process.kill()


def test_a_job_grows_loses_a_worker_shrinks_and_ends_with_results(workers: Workers) -> None:
    hosts = FixedHosts({"localhost": 2})
    server = RendezvousServer()
    driver = ElasticDriver(server, hosts, min_num_proc=1, max_num_proc=3, timeout=30)
    server.start(create_rendezvous_handler(driver))
    assert driver.wait_for_available_slots(2).host_slots == {"localhost": 2}
    try:
        driver.start(2, workers.create)
        workers.wait_until(1, lambda rank, size: (rank, size) == (1, 2))
        # What workers need is not to be found where others look.
        key_file = Path(workers.slots[0].to_env()["HORO_KEY_FILE"])  # type: ignore[attr-defined]
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert stat.S_IMODE(key_file.parent.stat().st_mode) == 0o700
        for kind in ("environ", "cmdline"):
            words = Path(f"/proc/{workers.processes[0].pid}/{kind}").read_bytes()
            assert words
            assert key_file.read_bytes().hex().encode() not in words.lower()
            assert key_file.read_bytes() not in words
        hosts.set({"localhost": 2, "127.0.0.1": 4})  # Of which one is wanted.
        workers.wait_until(2, lambda rank, size: (rank, size) == (2, 3))
        workers.wait_until(0, lambda rank, size: (rank, size) == (0, 3))
        assert (driver.world_size(), driver.local_size("localhost"), driver.local_size("127.0.0.1")) == (3, 2, 1)
        assert driver.get_slot_info("127.0.0.1", 0) == SlotInfo("127.0.0.1", 2, 0, 1, 3, 1, 2)
        assert not driver.has_rank_assignment("127.0.0.1", 1)
        assert driver.get_slot_info("127.0.0.1", 1) == INVALID_SLOT_INFO
        assert (workers.folder / "heard0").read_text().split() == ["added"]
        workers.processes[1].send_signal(signal.SIGKILL)
        # Its slot alone is not used again: another one is.
        workers.wait_until(3, lambda rank, size: (rank, size) == (2, 3))
        workers.wait_until(2, lambda rank, size: (rank, size) == (1, 3))
        assert {name: len(slots) for name, slots in driver.host_assignments.items()} == {"localhost": 1, "127.0.0.1": 2}
        assert (workers.slots[3].hostname, workers.slots[3].local_rank) == ("127.0.0.1", 1)
        hosts.set({"localhost": 2})
        assert [workers.wait_for_end(seat) for seat in (2, 3)] == [0, 0], workers.all_said()
        workers.wait_until(0, lambda rank, size: (rank, size) == (0, 1))
        assert not driver.finished()
        workers.stop_training()
        results = results_of(driver)
    finally:
        driver.stop()
    assert results.error_message is None
    assert {name: code for name, (code, _) in results.worker_results.items()} == {"localhost[0]": 0}
    assert sorted(workers.processes) == [0, 1, 2, 3]
    heard = (workers.folder / "heard0").read_text().split()
    assert (set(heard), heard[-1]) == ({"added", "removed"}, "removed"), heard
    assert not (workers.folder / "heard2").exists(), "rank 0 alone hears"
    assert "nobody minds what a listener raises" in (workers.folder / "said0").read_text()
    assert "seat 2 leaves the job, as its slot is gone" in (workers.folder / "said2").read_text()
    assert driver.finished()
    assert not key_file.parent.exists()


def test_a_lost_worker_is_replaced_in_its_slot_after_the_cooldown(workers: Workers) -> None:
    driver = ElasticDriver(None, FixedHosts({"localhost": 2}), 2, 2, timeout=30, cooldown_range=(1, 2))
    try:
        driver.start(2, workers.create)
        workers.wait_until(0, lambda rank, size: size == 2)
        workers.wait_until(1, lambda rank, size: size == 2)
        workers.processes[0].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        workers.wait_until(2, lambda rank, size: (rank, size) == (1, 2))
        assert time.monotonic() - killed > 1
        assert (workers.slots[2].hostname, workers.slots[2].local_rank) == ("localhost", 0)
        workers.stop_training()
        results = results_of(driver)
    finally:
        driver.stop()
    codes = {name: code for name, (code, _) in results.worker_results.items()}
    assert (codes, results.error_message) == ({"localhost[0]": 0, "localhost[1]": 0}, None), workers.all_said()


def test_too_many_losses_end_the_job_and_its_workers(workers: Workers) -> None:
    driver = ElasticDriver(None, FixedHosts({"localhost": 3}), 1, 2, timeout=30, reset_limit=0)
    try:
        driver.start(2, workers.create)
        assert driver.world_size() == 2
        workers.wait_until(0, lambda rank, size: size == 2)
        workers.wait_until(1, lambda rank, size: size == 2)
        workers.processes[1].send_signal(signal.SIGKILL)
        results = results_of(driver)
    finally:
        driver.stop()
    assert results.error_message == "the job has lost workers more often than its reset limit, 0, allows"
    assert workers.wait_for_end(0) == -signal.SIGKILL, "its event is set"
    first = min(results.worker_results.items(), key=lambda one: one[1][1])
    assert (first[0], first[1][0]) == ("localhost[1]", -signal.SIGKILL)
    with pytest.raises(RuntimeError, match="the job is over: the job has lost workers"):
        driver.wait_for_available_slots(1)


def test_workers_that_fail_are_the_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    driver = ElasticDriver(None, FixedHosts({"localhost": 2}), 1, None, timeout=30)
    driver.start(2, Workers(tmp_path, fail_at_once).create)
    results = results_of(driver)
    assert driver.finished()
    codes = {name: code for name, (code, _) in results.worker_results.items()}
    assert codes["localhost[0]"] == 7 or codes["localhost[1]"] == 7, codes
    assert 0 not in codes.values()
    assert "is lost, with exit code 7" in capfd.readouterr().err

    def raise_it(slot: SlotInfo, events: list[threading.Event]) -> tuple[int, float]:
        raise LookupError("no such host")

    driver = ElasticDriver(None, FixedHosts({"localhost": 1}), 1, None)
    driver.start(1, raise_it)
    assert results_of(driver).worker_results["localhost[0]"][0] == 1
    assert "LookupError: no such host" in capfd.readouterr().err


def test_a_worker_that_never_starts_is_not_waited_for(workers: Workers) -> None:
    def create(slot: SlotInfo, events: list[threading.Event]) -> tuple[int, float]:
        return (3, time.time()) if slot.local_rank == 0 else workers.create(slot, events)

    driver = ElasticDriver(None, FixedHosts({"localhost": 2}), 1, None, timeout=30)
    begin = time.monotonic()
    driver.start(2, create)
    results = results_of(driver)
    assert time.monotonic() - begin < 15, "HORO_TIMEOUT is 20 s"
    codes = {name: code for name, (code, _) in results.worker_results.items()}
    assert codes == {"localhost[0]": 3, "localhost[1]": 1}, workers.all_said()


def test_a_shutdown_event_stops_the_job(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    driver = ElasticDriver(None, FixedHosts({"localhost": 1}), 1, None, timeout=30)
    event = driver.register_shutdown_event()
    driver.start(1, workers.create)
    workers.wait_until(0, lambda rank, size: size == 1)
    event.set()
    assert results_of(driver).worker_results["localhost[0]"][0] == -signal.SIGKILL


def test_hosts_are_not_waited_for_without_a_limit() -> None:
    driver = ElasticDriver(None, FixedHosts({"a": 1}), 2, None, timeout=0.3)
    with pytest.raises(TimeoutException, match=r"not 2 slots on 1 or more hosts within 0\.3 s.*: a:1"):
        driver.start(2, lambda slot, events: (0, 0.0))
    with pytest.raises(RuntimeError, match="start"):
        driver.get_results()
    driver.stop("enough")
    with pytest.raises(RuntimeError, match="the job is over: enough"):
        driver.start(1, lambda slot, events: (0, 0.0))
    broken = ElasticDriver(None, HostDiscoveryScript("exit 3", 1), 1, None, timeout=30)
    with pytest.raises(RuntimeError, match="the discovery script 'exit 3' ended with exit code 3"):
        broken.wait_for_available_slots(1)
    assert broken.finished()


def test_arguments_are_checked() -> None:
    for wrong in ({"min_num_proc": 0}, {"max_num_proc": 1}, {"cooldown_range": (0, 5)}):
        with pytest.raises(ValueError, match=r"min_num_proc|cooldown_range"):
            ElasticDriver(None, FixedHosts({}), **{"min_num_proc": 2, "max_num_proc": None, **wrong})


def test_listeners_are_told_until_they_are_removed() -> None:
    heard: list[tuple[float, int]] = []

    class Listener:
        def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
            heard.append((timestamp, update_res))

    listener = Listener()
    manager = WorkerNotificationManager()
    manager.init("address", 1234, nic="lo", hostname="here", local_rank=0)
    manager.register_listener(listener)
    manager.register_listener(listener)
    manager.handle_hosts_updated(1.0, HostUpdateResult.added)
    manager.remove_listener(listener)
    manager.handle_hosts_updated(2.0, HostUpdateResult.removed)
    assert heard == [(1.0, 2)]
    assert isinstance(notification_manager, WorkerNotificationManager)


def test_news_is_not_lost_to_a_clock_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 may be another one than before, on a host whose clock is behind."""
    monkeypatch.setattr(elastic, "is_initialized", lambda: True)
    monkeypatch.setattr(elastic, "rank", lambda: 0)
    monkeypatch.setattr(elastic, "changes_that_wait", lambda: HostUpdateResult.added)
    state = elastic.ObjectState(lambda obj: obj, lambda: 0, step=0)
    for now in (1000.0, 400.0, 400.0, 2000.0):
        monkeypatch.setattr(elastic.time, "time", lambda now=now: now)
        with pytest.raises(horo.HostsUpdatedInterrupt):
            state.commit()
    assert state._last_updated_timestamp == 2000.0
