"""Timelines and metrics of real jobs."""
# ruff: noqa: PT017  Ranks run these functions as programs, without pytest.

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from pathlib import Path

import jobs
import numpy as np
import pytest

import horo


def traced() -> None:
    horo.init()
    folder = os.environ["TEST_FOLDER"]
    with contextlib.suppress(ValueError):
        horo.start_timeline("")
        raise AssertionError("a timeline without a name")
    try:
        horo.start_timeline(f"{folder}/no/such/folder.json")
        raise AssertionError("a timeline where none can be")
    except OSError as error:
        assert "no/such/folder" in str(error)
    for turn in ("first", "second"):
        horo.start_timeline(f"{folder}/{turn}.json", mark_cycles=True)
        horo.allreduce(np.ones(10, np.float32), name=f'{turn} "quoted"')
        horo.stop_timeline()
        horo.stop_timeline()
    horo.allreduce(np.ones(10, np.float32), name="afterwards")
    horo.shutdown()


def test_a_timeline_is_started_and_stopped_twice(tmp_path: Path) -> None:
    jobs.run(2, traced, TEST_FOLDER=str(tmp_path), HOROVOD_TIMELINE="DYNAMIC")
    for turn in ("first", "second"):
        for name in (f"{turn}.json", f"{turn}.rank1.json"):
            records = json.loads((tmp_path / name).read_text())
            names = [record.get("name") for record in records]
            assert names.count("NEGOTIATE_ALLREDUCE") == 1, names
            assert names.count("ALLREDUCE") == 1, names
            assert "CYCLE_START" in names
            rows = {record["args"]["name"] for record in records if record.get("name") == "thread_name"}
            assert rows >= {"operations", f'allreduce.{turn} "quoted"'}


def launched() -> None:
    horo.init()
    for _ in range(20):
        horo.allreduce(np.ones(1000, np.float32), name="gradient")
    if horo.rank() == 0:
        with open(os.environ["HORO_TIMELINE"]) as file:
            assert file.read(1) == "["
    horo.barrier()


def test_the_launcher_writes_timelines_and_they_can_be_merged(tmp_path: Path) -> None:
    path, merged = tmp_path / "t.json", tmp_path / "all.json"
    jobs.launch(2, launched, flags=["--timeline-filename", str(path), "--timeline-mark-cycles"])
    assert "CYCLE_START" in path.read_text()
    merge = [jobs.launcher(), "timeline", "merge", str(merged), str(path), str(tmp_path / "t.rank1.json")]
    said = subprocess.run(merge, check=True, capture_output=True, text=True).stdout
    assert "rank 1: reads the clock of the reference" in said
    records = json.loads(merged.read_text())
    ends = {
        (record["pid"], record["args"]["batch"]): record["ts"] + record["dur"]
        for record in records
        if record.get("ph") == "X"
    }
    shared = [batch for rank, batch in ends if rank == 0 and (1, batch) in ends]
    assert len(shared) >= 20
    begins = {(r["pid"], r["args"]["batch"]): r["ts"] for r in records if r.get("ph") == "X"}
    for batch in shared:
        assert ends[0, batch] >= begins[1, batch], "no rank leaves before the other has come"
        assert ends[1, batch] >= begins[0, batch]


def counted() -> None:
    horo.init()
    for _ in range(5):
        horo.allreduce(np.ones(10, np.float32), name="x")
    horo.grouped_allreduce([np.ones(3, np.float64)] * 4, name="g")
    horo.broadcast(np.ones(2, np.int32), root_rank=0)
    own = horo.add_process_set([horo.size() - 1])
    if own.included():
        horo.barrier(process_set=own)
    try:
        horo.allreduce(np.ones(1 + horo.rank(), np.float32), name="odd")
        raise AssertionError("ranks that disagree")
    except horo.HorovodInternalError:
        pass
    numbers = horo.metrics()
    assert (numbers["rank"], numbers["size"]) == (horo.rank(), 2)
    assert set(numbers["process_sets"]) == {0, own.process_set_id}
    everybody = numbers["process_sets"][0]
    assert set(everybody["operations"]) == {"allreduce", "broadcast"}
    sums = everybody["operations"]["allreduce"]
    assert (sums["handed_in"], sums["tensors"], sums["errors"]) == (10, 9, 1), sums
    assert sums["bytes"] == 5 * 40 + 4 * 24
    assert sums["batches"] == 6
    assert sums["latency_seconds"]["count"] == 6
    assert sums["latency_seconds"]["sum"] >= sums["wait_seconds"]["sum"] > 0
    buckets = sums["latency_seconds"]["buckets"]
    assert next(iter(buckets)) == 1e-6
    assert list(buckets)[-1] == float("inf")
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets[float("inf")] == 6
    assert everybody["announced_by_number"] == 4
    assert everybody["messages_sent"] > 0
    assert everybody["messages_received"] > 0
    assert everybody["stalls"] == 0
    barriers = numbers["process_sets"][own.process_set_id]["operations"]
    assert (barriers["barrier"]["tensors"] if own.included() else len(barriers)) == int(own.included())
    assert f'horo_errors_total{{rank="{horo.rank()}",process_set="0",operation="allreduce"}} 1\n' in horo.metrics_text()
    horo.barrier()


def test_metrics_are_those_of_the_traffic() -> None:
    jobs.run(2, counted)


def served() -> None:
    horo.init()
    horo.allreduce(np.ones(10, np.float32), name="x")
    port = int(os.environ["HORO_METRICS_PORT"]) + horo.local_rank()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        page = answer.read().decode()
    assert f'horo_bytes_total{{rank="{horo.rank()}",process_set="0",operation="allreduce"}} 40\n' in page
    horo.barrier()


def test_the_launcher_has_metrics_served() -> None:
    jobs.launch(2, served, flags=["--metrics-port", str(jobs.free_port(2))])


def test_functions_need_a_job() -> None:
    with pytest.raises(ValueError, match="not been initialized"):
        horo.start_timeline("t.json")
    with pytest.raises(ValueError, match="not been initialized"):
        horo.stop_timeline()
    with pytest.raises(ValueError, match="not been initialized"):
        horo.metrics()
