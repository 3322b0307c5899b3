"""Which hosts an elastic job may use, under Horovod's names: discovery, blacklist, settings, and what is not there."""

from __future__ import annotations

import os
import pickle
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic import constants
from horovod.runner.elastic.discovery import (
    FixedHosts,
    HostDiscovery,
    HostDiscoveryScript,
    HostManager,
    HostState,
    HostUpdateResult,
)
from horovod.runner.elastic.registration import FAILURE, READY, SUCCESS, WorkerStateRegistry
from horovod.runner.elastic.settings import ElasticSettings


def test_constants_are_horovods() -> None:
    limits = (constants.DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS, constants.DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS)
    assert (constants.ELASTIC_TIMEOUT_SECS, constants.DISCOVER_HOSTS_FREQUENCY_SECS, *limits) == (600, 1.0, 1, 3600)
    assert [int(one) for one in (HostUpdateResult.no_update, HostUpdateResult.removed)] == [0, 1]
    assert HostUpdateResult.removed | HostUpdateResult.added is HostUpdateResult.mixed


def test_a_discovery_has_to_find_hosts() -> None:
    with pytest.raises(TypeError, match="abstract"):
        HostDiscovery()  # type: ignore[abstract]
    told = {"a": 2}
    fixed = FixedHosts(told)
    told["a"] = 3
    assert fixed.find_available_hosts_and_slots() == {"a": 2}
    fixed.set({"b": 1})
    assert fixed.find_available_hosts_and_slots() == {"b": 1}


def test_a_script_tells_of_hosts(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("a:2\nb\n\n[::1]:3 # here\n::2\na:2\n")
    script = HostDiscoveryScript(f"cat {hosts}", 4)
    assert script.find_available_hosts_and_slots() == {"a": 2, "b": 4, "::1": 3, "::2": 4}
    hosts.write_text("")
    assert script.find_available_hosts_and_slots() == {}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no way >&2; exit 3", "ended with exit code 3, and said: no way"),
        ("kill -9 $$", "ended with signal 9"),
        ("/no/such/program", "ended with exit code 127"),
        ("echo 'error: try again'", "printed what is no list of hosts: 'error: try again'"),
        ("echo '<html>'", "printed what is no list of hosts: '<html>' is no name of a host"),
        ("echo a:many", "'a:many' is not of the form host:slots"),
        ("echo a:0", "one slot or more"),
        ("printf 'a:1\\na:2\\n'", "names a with 1 and with 2 slots"),
    ],
)
def test_what_a_script_does_wrong_is_told(script: str, words: str) -> None:
    with pytest.raises(RuntimeError, match="the discovery script") as caught:
        HostDiscoveryScript(script, 1).find_available_hosts_and_slots()
    assert words in str(caught.value)


def test_a_script_that_hangs_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = HostDiscoveryScript(f"tail -f /dev/null & echo $! > {pid}; wait", 1, limit=0.3)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"took more than 0\.3 s, and was killed"):
        script.find_available_hosts_and_slots()
    assert time.monotonic() - begin < 5
    assert has_ended(int(pid.read_text()), 5)


def has_ended(pid: int, seconds: float) -> bool:
    """Also where nobody reaps it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
    os.kill(pid, signal.SIGKILL)
    return False


def test_somebody_whom_a_script_leaves_behind_is_not_waited_for() -> None:
    begin = time.monotonic()
    script = HostDiscoveryScript("tail -f /dev/null & echo $! ", 1)
    (pid,) = script.find_available_hosts_and_slots()
    os.kill(int(pid), signal.SIGKILL)
    assert time.monotonic() - begin < 5


def test_hosts_keep_their_order_and_changes_are_told() -> None:
    told = FixedHosts({"a": 2, "b": 2})
    hosts = HostManager(told)
    assert hosts.current_hosts.count_available_slots() == 0
    assert hosts.update_available_hosts() == HostUpdateResult.added
    assert hosts.update_available_hosts() == HostUpdateResult.no_update
    for now, change in (
        ({"c": 1, "b": 2, "a": 2}, HostUpdateResult.added),
        ({"c": 2, "b": 2, "a": 2}, HostUpdateResult.added),
        ({"c": 2, "b": 1, "a": 2}, HostUpdateResult.removed),
        ({"c": 2, "a": 2}, HostUpdateResult.removed),
        ({"c": 1, "a": 2, "d": 1}, HostUpdateResult.mixed),
    ):
        told.set(now)
        assert hosts.update_available_hosts() == change, now
    found = hosts.current_hosts
    assert found.host_assignment_order == ["a", "c", "d"]
    assert (found.host_slots, found.available_hosts) == ({"a": 2, "c": 1, "d": 1}, {"a", "c", "d"})
    assert (found.get_slots("c"), found.get_slots("b"), found.count_available_slots()) == (1, 0, 4)
    assert HostManager.order_available_hosts({"x", "b", "a"}, ["b", "y", "a"]) == ["b", "a", "x"]


def test_the_blacklist_is_for_good_without_a_cooldown() -> None:
    now = [0.0]
    hosts = HostManager(FixedHosts({"a": 2, "b": 1}), new_state=partial(HostState, now=lambda: now[0]))
    hosts.update_available_hosts()
    event = hosts.get_host_event("a")
    hosts.blacklist("a")
    assert event.is_set()
    assert not hosts.get_host_event("a").is_set(), "for the next time"
    now[0] = 1e9
    assert hosts.update_available_hosts() == HostUpdateResult.no_update
    assert hosts.is_blacklisted("a")
    assert not hosts.is_blacklisted("b")
    assert (hosts.current_hosts.host_assignment_order, hosts.current_hosts.count_available_slots()) == (["b"], 1)


def test_a_host_comes_back_after_its_cooldown_which_grows() -> None:
    now = [0.0]
    state = partial(HostState, now=lambda: now[0], draw=lambda low, high: high / 2)
    hosts = HostManager(FixedHosts({"a": 2, "b": 1}), (10, 60), state)
    hosts.update_available_hosts()
    for seconds in (15, 25, 45, 60, 60):  # 10 * 2^n, and half of 10; 60 at most.
        begin = now[0]
        hosts.blacklist("a")
        now[0] = begin + 1
        hosts.blacklist("a")  # Once more within the time changes nothing.
        now[0] = begin + seconds - 0.1
        assert hosts.update_available_hosts() == HostUpdateResult.no_update
        assert hosts.is_blacklisted("a"), seconds
        now[0] = begin + seconds
        assert hosts.update_available_hosts() == HostUpdateResult.added
        assert not hosts.is_blacklisted("a"), seconds
        assert hosts.current_hosts.host_assignment_order == ["b", "a"]


@pytest.mark.parametrize("wrong", [(0.5, 10), (1, 3601), (20, 10)])
def test_cooldowns_have_limits(wrong: tuple[float, float]) -> None:
    for make in (lambda: HostManager(FixedHosts({}), wrong), lambda: HostState(wrong)):
        with pytest.raises(ValueError, match="between 1 and 3600"):
            make()


def test_settings_are_those_of_horovod() -> None:
    hosts = FixedHosts({"a": 1})
    settings = ElasticSettings(hosts, 2, 4, 60, 3, (1, 8), num_proc=2, verbose=1, key=b"secret")
    assert isinstance(settings, BaseSettings)
    assert (settings.elastic, settings.num_proc, settings.nics, settings.cooldown_range) == (True, 2, None, (1, 8))
    assert (settings.limits.variables()["HORO_ELASTIC_MAX_RANKS"], settings.timeout_s) == ("4", 30)
    assert "secret" not in repr(settings)
    again = pickle.loads(pickle.dumps(settings))
    assert (settings.discovery, again.discovery, again.min_num_proc) == (hosts, None, 2)
    with pytest.warns(DeprecationWarning, match="min_np is called min_num_proc now"):
        assert ElasticSettings(None, 1, None, 60, None, min_np=3).min_num_proc == 3
    with pytest.raises(TypeError, match="unheard_of"):
        ElasticSettings(None, 1, None, 60, None, unheard_of=1)


def test_states_of_workers_are_counted() -> None:
    registry = WorkerStateRegistry(reset_limit=1)
    registry.record_ready("a", 0)
    registry.record_ready("a", 1)
    registry.record_ready("b", 0)
    registry.record_success("a", 0)
    registry.record_failure("a", 1)
    assert [registry.count(state) for state in (READY, SUCCESS, FAILURE)] == [1, 1, 1]
    assert registry.get(FAILURE) == {("a", 1)}
    assert not registry.is_over_limit()
    registry.record_failure("a", 1)
    assert registry.is_over_limit()
    registry.forget("b", 0)
    assert registry.get_recorded_slots() == {("a", 0), ("a", 1)}


def test_services_that_listened_say_what_is_there_instead() -> None:
    from horovod.runner.elastic.worker import WorkerNotificationClient, WorkerNotificationService
    from horovod.runner.http.http_server import RendezvousServer

    for absent in (WorkerNotificationClient, WorkerNotificationService):
        with pytest.raises(NotImplementedError, match=rf"{absent.__name__} listens for pickles.*register_listener"):
            absent([], b"key", 0)
    server = RendezvousServer(1)
    assert server.start() == 0, "nothing listens"
