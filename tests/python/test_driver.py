"""Drivers of elastic jobs on clusters: what they hand out, and what they make of the ends of processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

import horo
from horo._horo import Door
from horo.driver import Cooldowns, ElasticJob, Limits, Ticket, call_in_seat, outcome_of, take_seat, values_of
from horo.exceptions import HorovodInternalError, InitializationError, RankFailedError
from horo.meeting import LOOPBACK, arrival
from horo.world import world


def returned(rank: int, value: Any) -> dict[str, Any]:
    return {"value": pickle.dumps(value), "rank": rank}


def raised(rank: int, error: BaseException) -> dict[str, Any]:
    def raise_it() -> None:
        raise error

    return {**outcome_of(raise_it, (), {}), "rank": rank}


def test_places_where_processes_were_lost_are_left_alone_for_longer_each_time() -> None:
    now = [100.0]
    cooldowns = Cooldowns((2, 9), now=lambda: now[0])
    assert cooldowns.is_over("a")
    for least, most in ((2, 4), (4, 6), (8, 9), (9, 9), (9, 9)):
        cooldowns.lost_at("a")
        begin = now[0]
        now[0] = begin + least - 0.01
        assert not cooldowns.is_over("a")
        assert cooldowns.is_over("b")
        now[0] = begin + most
        assert cooldowns.is_over("a")


def test_values_are_those_of_the_ranks_that_are_left_in_their_order() -> None:
    left = {"exit": 0, "code": 0, "rank": 2}
    told = [returned(1, "b"), raised(-1, LookupError("late")), left, returned(0, "a")]
    assert values_of(told, lost=1) == ["a", "b"]


def test_of_those_who_failed_the_cause_is_raised() -> None:
    consequence = HorovodInternalError("rank 1 is gone", "peer-lost", (1,))
    told = [raised(-1, ValueError("not let in")), raised(0, consequence), raised(1, LookupError("cause"))]
    with pytest.raises(LookupError, match="cause"):
        values_of(told, lost=0)
    with pytest.raises(RankFailedError, match="2 ranks were lost, and none is left"):
        values_of([raised(-1, ValueError("not let in"))], lost=2)
    assert raised(0, consequence)["is_loss"]
    assert not raised(0, HorovodInternalError("shapes", "mismatch"))["is_loss"]


def add() -> float:
    horo.init()
    return float(horo.allreduce(np.ones(1), op=horo.Sum)[0]) + horo.size()


def enter(ticket: Ticket) -> dict[str, Any]:
    return call_in_seat(ticket, arrival(), add)


def test_who_waits_at_the_door_is_told_when_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HORO_", "HOROVOD_"))]:
        monkeypatch.delenv(name)
    before = dict(os.environ)
    job = ElasticJob(Limits(least=1, seconds=240), LOOPBACK)
    here = arrival()
    (first,) = job.first_tickets(1, [here.host])
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            waits = pool.submit(enter, job.later_ticket(7))
            take_seat(first, here, "here")
            assert (os.environ["HORO_SEAT"], os.environ["HOROVOD_SIZE"]) == ("0", "1")
            assert add() == 2.0
            door = Door(world.runtime)
            while door.look() != ([7], []):
                assert not waits.done(), waits.result()
                door.news(1.0)
            door.close()
            assert values_of([{**outcome_of(add, (), {}), "rank": 0}], lost=0) == [2.0]
        finally:
            job.close()
            horo.shutdown()
            world.stand_at(None)
            for name in set(os.environ) - set(before):
                del os.environ[name]
        outcome = waits.result(60)
    assert (outcome["rank"], outcome["is_loss"]) == (-1, True)
    with pytest.raises(InitializationError, match="the launcher's store"):
        values_of([outcome], lost=0)
    assert call_in_seat(job.later_ticket(8), here, add)["code"] == 0, "nothing is called when the job is over"
    job.ended(first)
    assert "key" not in repr(first)
