"""Jobs on a real Spark: a driver and two executors."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spark_session
from elastic_functions import die_in_seat_1, train_elastically

pytest.importorskip("pyspark", reason="PySpark is not installed in this environment")

from pyspark import cloudpickle

import horo
import horo.spark
from horo.exceptions import RankFailedError, RankTraceback
from horo.spark import job, slots

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
LIMIT_SECONDS = 240
pytestmark = pytest.mark.skipif(spark_session.java_home() is None, reason="Java is not installed here")
# Executors know nothing of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(sys.modules["elastic_functions"])


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session.spark_session() as session:
        yield session


def tell_place(factor: float, *, name: str) -> dict[str, Any]:
    """Joins, leaves and joins again, and leaves the rest to whoever called it."""
    horo.init()
    horo.shutdown()
    horo.init()
    return {
        "rank": (horo.rank(), horo.size()),
        "local": (horo.local_rank(), horo.local_size()),
        "sum": horo.allreduce(np.full(10, factor * (horo.rank() + 1)), op=horo.Sum)[0],
        "variables": [int(os.environ[f"HOROVOD_{number}"]) for number in ("RANK", "SIZE", "LOCAL_RANK")],
        "said": os.environ.get("SAID"),
        "keys": [variable for variable in os.environ if "KEY" in variable and variable.startswith("HORO")],
        "name": name,
        "pid": os.getpid(),
    }


def test_tasks_become_ranks_and_their_results_come_by_rank(spark: Any) -> None:
    first = horo.spark.run(tell_place, (2.0,), {"name": "a"}, num_proc=2, env={"SAID": "by env"})
    again = horo.spark.run(tell_place, (2.0,), {"name": "b"})
    for places, name, said in ((first, "a", "by env"), (again, "b", None)):
        assert [place["rank"] for place in places] == [(0, 2), (1, 2)]
        assert [place["local"] for place in places] == [(0, 2), (1, 2)]
        assert [place["variables"] for place in places] == [[0, 2, 0], [1, 2, 1]]
        assert [(place["sum"], place["said"], place["keys"], place["name"]) for place in places] == [
            (6.0, said, [], name)
        ] * 2
    assert {place["pid"] for place in first} == {place["pid"] for place in again}, "Spark uses its processes again"
    assert [place["rank"] for place in horo.spark.run(tell_place, (1.0,), {"name": "c"}, num_proc=1)] == [(0, 1)]


def fail(how: str, rank: int = 1) -> None:
    if how != "early":
        horo.init()
    if os.environ["HOROVOD_RANK"] == str(rank):
        if how == "exit":
            sys.exit(3)
        raise LookupError("nothing to be found")
    horo.init()
    horo.barrier()


def test_an_exception_of_a_rank_is_raised_with_its_traceback(spark: Any) -> None:
    with pytest.raises(LookupError, match="nothing to be found") as caught:
        horo.spark.run(fail, ("raise",), num_proc=2)
    assert isinstance(caught.value.__cause__, RankTraceback)
    assert caught.value.__cause__.rank == 1
    assert "in fail" in caught.value.__cause__.traceback
    with pytest.raises(RankFailedError, match=r"rank 1 called sys.exit\(3\)"):
        horo.spark.run(fail, ("exit",), num_proc=2)
    # Whoever waits for a rank that does not come waits longer than this test may take.
    patient = {"HORO_TIMEOUT": str(4 * LIMIT_SECONDS)}
    start = time.monotonic()
    for rank in range(2):
        with pytest.raises(LookupError, match="nothing to be found") as early:
            horo.spark.run(fail, ("early", rank), num_proc=2, env=patient)
        assert early.value.__cause__.rank == rank
    assert time.monotonic() - start < LIMIT_SECONDS
    assert len(horo.spark.run(tell_place, (1.0,), {"name": "after"}, num_proc=2)) == 2


def die_on_rank_1(folder: str) -> None:
    horo.init()
    (Path(folder) / f"life.{os.getpid()}").touch()
    if horo.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    horo.barrier()


def test_a_rank_that_dies_ends_the_job_and_not_the_application(spark: Any, tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(RankFailedError, match=r"a rank ended and returned nothing\. Spark says: .*barrier"):
        horo.spark.run(die_on_rank_1, (str(tmp_path),), num_proc=2)
    assert time.monotonic() - start < LIMIT_SECONDS / 2
    assert len(list(tmp_path.iterdir())) == 2, "nobody is called twice"
    assert len(horo.spark.run(tell_place, (1.0,), {"name": "after"}, num_proc=2)) == 2


def die_once(steps: int) -> dict[str, Any]:
    def goes_on(state: Any) -> bool:
        die_in_seat_1(state)
        return state.step < steps

    return train_elastically(goes_on)


def test_what_spark_starts_in_the_place_of_a_dead_task_enters_the_elastic_job(spark: Any) -> None:
    """There are two slots for three tasks: the last one comes when the job is over, or in the dead one's place."""
    told = horo.spark.run_elastic(die_once, kwargs={"steps": 20}, num_proc=2, min_num_proc=2, max_num_proc=3)
    assert [(one["rank"], one["step"], one["sizes"]) for one in told] == [(0, 20, [2]), (1, 20, [2])]
    first, second = (one["seat"] for one in told)
    assert (first, second in (2, 4)) == (0, True), "seat 4 is the second attempt of seat 1"


def test_an_exception_of_an_elastic_rank_is_raised_and_nobody_waits_for_others(spark: Any) -> None:
    start = time.monotonic()
    with pytest.raises(LookupError, match="nothing to be found"):
        horo.spark.run_elastic(fail, ("raise",), num_proc=2, elastic_timeout=4 * LIMIT_SECONDS)
    with pytest.raises(ValueError, match="num_proc is 2, not between min_num_proc, 1, and max_num_proc, 1"):
        horo.spark.run_elastic(fail, num_proc=2, min_num_proc=1, max_num_proc=1)
    with pytest.warns(UserWarning, match="cooldown_range changes nothing: Spark starts tasks again"):
        assert horo.spark.run_elastic(os.getpid, num_proc=1, cooldown_range=(1, 2))
    assert time.monotonic() - start < LIMIT_SECONDS
    assert len(horo.spark.run(tell_place, (1.0,), {"name": "after"}, num_proc=2)) == 2


def tell_hosts() -> tuple[int, int, int]:
    horo.init()
    return horo.rank(), horo.local_size(), int(horo.allreduce(np.ones(1), op=horo.Sum)[0])


def test_executors_of_one_machine_that_are_told_apart_are_hosts(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have one address, and the first guess where they meet is wrong."""

    task = job.run_rank

    def run_rank(call: Any, variables: Any, interfaces: Any, rows: Any) -> Any:
        row = list(rows)
        return task(call, {**variables, "HORO_HOST_ID": f"host {row[0]}"}, interfaces, iter(row))

    monkeypatch.setattr(job, "run_rank", run_rank)
    found = horo.spark.run(tell_hosts, num_proc=2, env={"HORO_INTERFACE": "127.0.0.1"})
    assert found == [(0, 1, 2), (1, 1, 2)]


def test_more_ranks_than_slots_is_an_error_at_once(spark: Any) -> None:
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"3 ranks need 3 slots, and Spark at local-cluster.* has 2"):
        horo.spark.run(tell_place, (1.0,), {"name": "too many"}, num_proc=3)
    assert time.monotonic() - start < 10


def test_executors_that_are_on_their_way_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    coming = iter([0, 0, 1, 2, 4])
    monkeypatch.setattr(slots, "_present", lambda context: next(coming))
    conf = {"spark.executor.instances": "2", "spark.executor.cores": "4", "spark.task.cpus": "2"}
    context = SimpleNamespace(master="yarn", getConf=lambda: conf)
    slots.check_slots(context, 4, limit=30)
    with pytest.raises(RuntimeError, match="5 ranks need 5 slots, and Spark at yarn has 4"):
        slots.check_slots(context, 5, limit=30)
    monkeypatch.setattr(slots, "_present", lambda context: 3)
    with pytest.raises(RuntimeError, match="4 ranks need 4 slots, and Spark at yarn has 3"):
        slots.check_slots(context, 4, limit=0)
    monkeypatch.setattr(slots, "_SETTLE_SECONDS", 0.0)
    conf.clear()
    assert slots.count_slots(context, limit=30) == 3


def test_a_cluster_that_authenticates_nobody_is_refused_unless_it_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(master="spark://somewhere:7077", getConf=dict)
    with pytest.raises(RuntimeError, match=r"spark\.authenticate=true.*HORO_TRUST_SPARK=1"):
        job.check_channels(context)
    monkeypatch.setenv("HORO_TRUST_SPARK", "1")
    job.check_channels(context)
    monkeypatch.delenv("HORO_TRUST_SPARK")
    context.getConf = lambda: {"spark.authenticate": "true"}
    job.check_channels(context)


def test_arguments_that_change_nothing_say_so(spark: Any) -> None:
    with pytest.warns(UserWarning, match="stdout changes nothing: what ranks write is in the logs of their executors"):
        assert horo.spark.run(os.getpid, num_proc=1, stdout=sys.stdout, use_gloo=True)
    with pytest.raises(ValueError, match="num_proc"):
        horo.spark.run(os.getpid, num_proc=0)


def test_horovods_name_resolves() -> None:
    import horovod.spark

    assert (horovod.spark.run, horovod.spark.run_elastic) == (horo.spark.run, horo.spark.run_elastic)


def test_without_a_context_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.SparkContext, "_active_spark_context", None)
    with pytest.raises(RuntimeError, match=r"SparkSession\.builder"):
        horo.spark.run(os.getpid)


def test_without_pyspark_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['pyspark'] = None\nimport horo.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "ModuleNotFoundError: horo.spark needs PySpark, which is not installed here: pip install" in done.stderr


def test_the_example_learns(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    # With the Spark that is here.
    monkeypatch.setattr(sys, "argv", ["spark_run.py"])
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    runpy.run_path(str(FOLDER / "spark_run.py"), run_name="__main__")
    out = capsys.readouterr().out
    found = re.search(r"2 ranks: loss ([0-9.]+) -> ([0-9.]+), all equal", out)
    assert found is not None, out
    assert float(found[2]) < float(found[1]) / 2, out
