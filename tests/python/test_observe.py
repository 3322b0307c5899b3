"""Timelines of real jobs."""
# ruff: noqa: PT017  Ranks run these functions as programs, without pytest.

from __future__ import annotations

import contextlib
import json
import os
import subprocess
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
        assert "folder.json" in str(error)
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
            assert rows == {"operations", f'allreduce.{turn} "quoted"'}


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


def test_functions_need_a_job() -> None:
    with pytest.raises(ValueError, match="not been initialized"):
        horo.start_timeline("t.json")
    with pytest.raises(ValueError, match="not been initialized"):
        horo.stop_timeline()
