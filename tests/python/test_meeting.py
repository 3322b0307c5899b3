"""Processes that are told their place in a job by a program instead of a launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

import horo
from horo.meeting import Arrival, Meeting, Terms, arrival, first_interface, layout, place_of_environment
from horo.world import world

LIMIT_SECONDS = 60
PRELUDE = """
import os, subprocess, sys
import numpy as np
import horo
from horo.meeting import Arrival, Terms
from horo.world import world
rank, terms, here = int(sys.argv[1]), Terms.read(sys.stdin.readline()), Arrival(*eval(sys.stdin.readline()))
world.stand_at(terms.place(rank, here))
"""


def run_ranks(arrivals: list[Arrival], body: str) -> list[str]:
    """What the ranks of a meeting say, one process each."""
    meeting = Meeting(arrivals)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HORO_", "HOROVOD_"))}
    try:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", PRELUDE + textwrap.dedent(body), str(rank)],
                env={**inherited, "HORO_STAGING": "8MiB", "HORO_TIMEOUT": "20s"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(len(arrivals))
        ]
        words = [f"{meeting.terms.written()}\n{tuple(here)}\n" for here in arrivals]
        with ThreadPoolExecutor(len(ranks)) as pool:
            said = list(pool.map(lambda rank, told: rank.communicate(told, LIMIT_SECONDS)[0], ranks, words))
    finally:
        meeting.close()
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * len(ranks), said
    return said


def test_processes_become_ranks_and_may_leave_and_join_again() -> None:
    body = """
        for _ in range(3):
            horo.init()
            assert (horo.rank(), horo.size(), horo.local_size()) == (rank, 3, 3)
            assert horo.allreduce(np.full(5, rank), op=horo.Sum).tolist() == [3] * 5
            horo.shutdown()
        print("joined")
    """
    assert run_ranks([arrival()] * 3, body) == ["joined\n"] * 3


def test_hosts_that_a_framework_tells_apart_are_what_local_ranks_count() -> None:
    nodes = ["a", "b", "a", "b", "b"]
    body = """
        horo.init()
        numbers = {"local_rank": horo.local_rank(), "local_size": horo.local_size()}
        numbers |= {"cross_rank": horo.cross_rank(), "cross_size": horo.cross_size()}
        print(sorted({**numbers, "rank": horo.rank(), "size": horo.size()}.items()))
    """
    said = run_ranks([arrival(host=node) for node in nodes], body)
    assert said == [f"{sorted(numbers.items())}\n" for numbers in layout(nodes)]


def test_jobs_at_the_same_time_never_meet() -> None:
    body = """
        horo.init()
        print(horo.allgather(np.array([os.getppid()])).size, horo.allreduce(np.array([1]), op=horo.Sum)[0])
    """
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(run_ranks, [arrival()] * size, body) for size in (2, 2, 1)]
        assert [job.result() for job in jobs] == [["2 2\n"] * 2, ["2 2\n"] * 2, ["1 1\n"]]


def test_a_key_in_the_environment_is_taken_out_of_it() -> None:
    body = """
        world.stand_at(None)
        os.environ.update(HORO_RANK=str(rank), HORO_SIZE="2", HORO_STORE=terms.store, HORO_JOB_ID=terms.job)
        os.environ.update(HORO_INTERFACE="127.0.0.1", HORO_KEY=terms.key.hex())
        horo.init()
        assert horo.allreduce(np.array([1]), op=horo.Sum).tolist() == [2]
        child = "import os; print('HORO_KEY' in os.environ)"
        assert "HORO_KEY" not in os.environ
        print(subprocess.check_output([sys.executable, "-c", child], text=True).strip(), flush=True)
        horo.shutdown()
        horo.init()
        assert horo.allreduce(np.array([1]), op=horo.Sum).tolist() == [2]
    """
    assert run_ranks([arrival()] * 2, body) == ["False\n"] * 2


def test_a_key_that_is_none_is_an_error_that_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORO_KEY", "secret but wrong")
    with pytest.raises(ValueError, match="64 hexadecimal digits") as caught:
        place_of_environment()
    assert "secret" not in str(caught.value)
    assert "HORO_KEY" not in os.environ


def test_a_key_is_not_shown() -> None:
    meeting = Meeting([arrival()] * 2)
    terms = meeting.terms
    assert Terms.read(terms.written()) == terms
    for shown in (repr(terms), str(terms), repr(terms.place(0, arrival()))):
        assert str(terms.key) not in shown
        assert terms.key.hex() not in shown
    meeting.close()


def test_on_one_machine_nothing_listens_beyond_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HORO_INTERFACE", raising=False)
    monkeypatch.delenv("HORO_HOST_ID", raising=False)
    here = arrival("198.51.100.7", "node")
    meeting = Meeting([here, here])
    assert meeting.terms.store.startswith("127.0.0.1:")
    assert meeting.terms.place(1, here).settings == ("HORO_INTERFACE=127.0.0.1", "HORO_HOST_ID=node")
    meeting.close()


def test_machines_meet_where_they_reach_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORO_INTERFACE", "lo")
    here = arrival("198.51.100.7")
    assert (here.address, here.chosen) == ("127.0.0.1", True)
    there = Arrival("another machine", "another machine", "198.51.100.8", False)
    meeting = Meeting([here, there])
    assert meeting.terms.store.startswith("127.0.0.1:")
    assert meeting.terms.place(0, here).settings == ()
    assert meeting.terms.place(1, there).settings == ("HORO_INTERFACE=198.51.100.8",)
    meeting.close()


def test_who_is_in_a_job_has_to_leave_it_first() -> None:
    horo.init()
    try:
        with pytest.raises(RuntimeError, match=r"shutdown\(\)"):
            world.stand_at(None)
    finally:
        horo.shutdown()
    world.stand_at(None)


def test_of_several_interfaces_the_first_that_is_there_is_taken() -> None:
    assert first_interface(["nothing0", "lo"]) == "lo"
    with pytest.raises(ValueError, match=r"none of the interfaces nothing0, nothing1 is on .*lo"):
        first_interface(["nothing0", "nothing1"])
