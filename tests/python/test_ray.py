"""Jobs on a real Ray: train functions, executors, failures, and what Ray itself takes from Horovod."""

from __future__ import annotations

import functools
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import strangers
from jobs import long
from ray_cluster import CPUS, ray_cluster

pytest.importorskip("ray", reason="Ray is not installed in this environment")

import ray.train
from ray import cloudpickle
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray_functions import (
    Counter,
    die_on_rank_1,
    fail_on_rank_0,
    fail_on_seat_1,
    raise_on_rank_1,
    reduce_value,
    tell_devices,
    tell_place,
    train_while_slots_change,
    train_with_tensorflow,
    train_with_torch,
)

import horo
from horo.ray import ElasticRayExecutor, HorovodConfig, HorovodTrainer, RayExecutor

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
LIMIT_SECONDS = 240
# Workers know nothing of these modules.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(sys.modules["ray_functions"])
cloudpickle.register_pickle_by_value(strangers)
cloudpickle.register_pickle_by_value(sys.modules["elastic_functions"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ray_cluster() as address:
        yield address


@pytest.fixture
def run_config(cluster: str, tmp_path: Path) -> RunConfig:
    return RunConfig(storage_path=str(tmp_path))


def fit(function: Any, workers: Any, run_config: RunConfig, **more: Any) -> Any:
    return HorovodTrainer(
        function, scaling_config=ScalingConfig(num_workers=workers), run_config=run_config, **more
    ).fit()


def run_script(path: Path | str, cluster: str, *words: str, **settings: str) -> str:
    """What a program says whose Ray is the tests'."""
    done = subprocess.run(
        [sys.executable, str(path), *words],
        env={**os.environ, "RAY_ADDRESS": cluster, **settings},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- Train functions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [pytest.param(1, marks=long), pytest.param(2, marks=long), 4])
def test_workers_of_a_trainer_are_ranks_wherever_they_are(count: int, run_config: RunConfig) -> None:
    config = HorovodConfig(nics={"absent0", "lo"})
    places = fit(tell_place, count, run_config, horovod_config=config).return_value
    nodes = [place["node"] for place in places]
    assert [place["rank"] for place in places] == list(range(count))
    assert len(set(nodes)) == (2 if count > CPUS else 1)
    for rank, place in enumerate(places):
        local = nodes[:rank].count(nodes[rank])
        assert place["ray"] == rank
        assert place["local"] == (local, nodes.count(nodes[rank]))
        assert place["cross"][1] == len(set(nodes))
        assert place["variables"] == [rank, count, local, len(set(nodes))]
        assert (place["main thread"], place["handlers kept"], place["environment kept"]) == (False, True, True)
        assert place["keys"] == []


def test_a_killed_worker_costs_the_epoch_and_the_job_resumes(cluster: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    run_config = RunConfig(
        storage_path=str(tmp_path),
        failure_config=FailureConfig(max_failures=1),
        checkpoint_config=CheckpointConfig(num_to_keep=2),
    )
    diary = tmp_path / "diary"
    result = fit(train_with_torch, 2, run_config, train_loop_config={"diary": str(diary)})
    assert result.metrics["epoch"] == 3
    for rank in range(2):
        epochs = Path(f"{diary}.{rank}").read_text().split()
        assert epochs == ["0", "1", "2", "2", "3"], epochs  # After the last checkpoint, not from the start.


def test_what_a_train_function_raises_reaches_fit_with_its_traceback(run_config: RunConfig) -> None:
    start = time.monotonic()
    with pytest.raises(ray.train.TrainingFailedError) as caught:
        fit(raise_on_rank_1, 2, run_config)
    assert time.monotonic() - start < LIMIT_SECONDS / 2
    words = str(caught.value)
    assert "LookupError: nothing to be found" in words
    assert "in raise_on_rank_1" in words
    assert "HorovodInternalError" not in words, "the consequence hides the cause"


def test_a_tune_function_fits_two_trainers_at_once(cluster: str, tmp_path: Path) -> None:
    from ray import tune

    meeting = tmp_path / "meeting"
    meeting.mkdir()

    def sum_up(config: dict[str, Any]) -> list[float]:
        horo.init()
        # Both jobs are there at the same time, or this waits in vain.
        (meeting / f"{config['value']}.{horo.rank()}").touch()
        end = time.monotonic() + LIMIT_SECONDS / 2
        while horo.allreduce(np.array([len(list(meeting.iterdir()))]), op=horo.Min)[0] < 4:
            assert time.monotonic() < end, list(meeting.iterdir())
        return horo.allreduce(np.full(3, float(config["value"])), op=horo.Sum).tolist()

    def trial(config: dict[str, Any]) -> None:
        def fit_one(value: int) -> list[float]:
            run_config = RunConfig(name=f"value{value}", storage_path=config["storage"])
            return fit(sum_up, 2, run_config, train_loop_config={"value": value}).return_value

        with ThreadPoolExecutor() as pool:
            tune.report({"sums": list(pool.map(fit_one, config["values"]))})

    def tuned(values: Any) -> list[list[float]]:
        space = {"values": values, "storage": str(tmp_path)}
        run_config = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
        light = tune.with_resources(trial, {"CPU": 0, "GPU": 0.1})
        results = tune.Tuner(light, param_space=space, run_config=run_config).fit()
        return sorted(sums for result in results for sums in result.metrics["sums"])

    assert tuned([1, 10]) == [[2.0] * 3, [20.0] * 3]
    if os.environ.get("LONG_TESTS"):
        shutil.rmtree(meeting)
        meeting.mkdir()
        assert tuned(tune.grid_search([[2], [20]])) == [[4.0] * 3, [40.0] * 3], "two trials at once"


needs_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="TensorFlow is not installed in this environment"
)


@needs_tensorflow
def test_a_train_function_of_tensorflow_and_keras_learns(run_config: RunConfig) -> None:
    total, equal, _ = fit(train_with_tensorflow, 2, run_config).return_value
    assert (total, equal) == (3.0, True)


@long
def test_a_trainer_takes_as_many_workers_as_there_is_room_for(run_config: RunConfig) -> None:
    places = fit(tell_place, (1, 3), run_config).return_value
    assert 1 <= len(places) <= 3


@long
def test_shards_of_a_dataset_are_reduced_to_the_whole(run_config: RunConfig) -> None:
    def total() -> float:
        horo.init()
        shard = ray.train.get_dataset_shard("train")
        mine = sum(float(batch["id"].sum()) for batch in shard.iter_batches(batch_size=10))
        return float(horo.allreduce(np.array([mine]), op=horo.Sum)[0])

    result = fit(total, 2, run_config, datasets={"train": ray.data.range(100)})
    assert result.return_value == sum(range(100))


@long
@needs_tensorflow
def test_an_executor_trains_with_tensorflow_and_keras(cluster: str) -> None:
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=LIMIT_SECONDS), num_workers=2)
    executor.start()
    try:
        told = executor.run(train_with_tensorflow)
    finally:
        executor.shutdown()
    assert told == [(3.0, True, told[0][2])] * 2, "averaged metrics are equal"


# ---- Executors -------------------------------------------------------------------------------------------------------


def test_an_executor_runs_functions_until_a_worker_dies(cluster: str, tmp_path: Path) -> None:
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=LIMIT_SECONDS), num_hosts=1, num_workers_per_host=2)
    # Whoever waits for a rank that does not come waits longer than this test may take.
    settings = {"SAID": "before", "HORO_TIMEOUT": str(4 * LIMIT_SECONDS)}
    executor.start(Counter, [10], {"step": 5}, extra_env_vars=settings)
    try:
        assert executor.run(reduce_value, [2.0], {"times": 3}) == [(0, 12.0), (1, 12.0)]
        assert ray.get(executor.run_remote(reduce_value, [1.0])) == [(0, 2.0), (1, 2.0)]
        assert executor.execute(lambda counter: (counter.count(), os.environ["SAID"])) == [(15, "before")] * 2
        assert executor.execute_single(lambda counter: counter.count()) == 20
        assert executor.execute(lambda counter: counter.count()) == [25, 20]
        start = time.monotonic()
        for before_init in (False, True):
            with pytest.raises(LookupError, match="nothing to be found"):
                executor.run(fail_on_rank_0, [before_init])
            assert executor.run(reduce_value, [4.0]) == [(0, 8.0), (1, 8.0)], "a new job after the failure"
        assert time.monotonic() - start < LIMIT_SECONDS
        with pytest.raises(ray.exceptions.RayActorError):
            executor.run(die_on_rank_1)
        with pytest.raises(ray.exceptions.RayActorError):
            executor.run(reduce_value, [4.0])
    finally:
        executor.shutdown()
    executor.start()
    # What horo listens at in the actors; Ray's own sockets are Ray's.
    strangers.expect_unharmed(executor.run(strangers.go_on_among_strangers, [str(tmp_path)]), 5)
    assert not (tmp_path / "canary").exists()
    executor.shutdown()
    executor.shutdown()


def test_an_executor_without_room_says_what_there_is(cluster: str) -> None:
    settings = RayExecutor.create_settings(placement_group_timeout_s=0)
    with pytest.raises(TimeoutError, match=r"no place for .* on 3 different nodes.*CPU"):
        RayExecutor(settings, num_hosts=3).start()


def test_an_executor_in_a_task_spreads_over_its_placement_group_and_shares_devices(cluster: str) -> None:
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_cpus=0)
    def inside() -> list[tuple[int, int, str]]:
        settings = RayExecutor.create_settings(timeout_s=LIMIT_SECONDS, placement_group_timeout_s=LIMIT_SECONDS)
        executor = RayExecutor(settings, num_hosts=2, num_workers_per_host=2, use_gpu=True)
        executor.start()
        try:
            return executor.execute(tell_devices)
        finally:
            executor.shutdown()

    # All that there is: another placement group would find no room.
    group = placement_group([{"CPU": CPUS, "GPU": CPUS}] * 2, strategy="STRICT_SPREAD")
    try:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
        told = ray.get(inside.options(scheduling_strategy=strategy).remote())
    finally:
        remove_placement_group(group)
    assert [place[:2] for place in told] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert {"".join(sorted(place[2])) for place in told} == {",01"}


class Slots:
    """As many as the ranks ask for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        grown = (self._folder / "grow").exists() and not (self._folder / "shrink").exists()
        return {"127.0.0.1": 3 if grown else 2}


def test_elastic_ranks_are_replaced_when_they_die_and_come_and_go_with_their_slots(
    cluster: str, tmp_path: Path
) -> None:
    settings = ElasticRayExecutor.create_settings(
        min_num_proc=2, timeout_s=LIMIT_SECONDS, elastic_timeout=LIMIT_SECONDS, discovery=Slots(tmp_path)
    )
    executor = ElasticRayExecutor(settings, override_discovery=False)
    executor.start()
    said: list[dict[str, Any]] = []
    told = executor.run(functools.partial(train_while_slots_change, str(tmp_path)), callbacks=[said.append])
    assert [one["rank"] for one in told] == [0, 1]
    assert [one["seat"] for one in told] == [0, 2], "the one that came in the place of the dead one"
    assert [one["sizes"] for one in told] == [[2, 3, 2]] * 2
    assert told[0]["step"] == told[1]["step"] > 10
    assert {one["seat"] for one in said} == {"0", "1", "2", "3"}
    assert (tmp_path / "early").exists()


def test_what_an_elastic_function_raises_is_raised_and_nobody_is_started_for_it_again(cluster: str) -> None:
    settings = RayExecutor.create_settings(timeout_s=LIMIT_SECONDS)
    executor = RayExecutor(settings, min_workers=2, max_workers=2, elastic_timeout=4 * LIMIT_SECONDS)
    executor.start(Counter, [10], {"step": 5})
    start = time.monotonic()
    with pytest.raises(LookupError, match="nothing to be found after 15") as caught:
        executor.execute(fail_on_seat_1)
    assert time.monotonic() - start < LIMIT_SECONDS
    assert "in fail_on_seat_1" in str(caught.value.__cause__)
    executor.shutdown()


# ---- Horovod's names, and examples -----------------------------------------------------------------------------------


OLD_SCRIPT = """
import sys
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.horovod import HorovodTrainer

def train():
    import os
    import numpy as np
    import horo
    horo.init()
    assert "HORO_KEY" not in os.environ
    value = horo.allreduce(np.ones(3) * (horo.rank() + 1), op=horo.Sum)
    ray.train.report({"value": value[0].item(), "size": horo.size(), "local": horo.local_size()})

ray.init(log_to_driver=False)
trainer = HorovodTrainer(
    train,
    scaling_config=ScalingConfig(num_workers=2, trainer_resources={"CPU": 0}),
    run_config=RunConfig(storage_path=sys.argv[1], verbose=0),
)
metrics = trainer.fit().metrics
print("sum", metrics["value"], "of", metrics["size"], "on", metrics["local"])
"""


def test_rays_own_trainer_of_ray_train_v1_finds_what_it_imports(cluster: str, tmp_path: Path) -> None:
    if find_spec("ray.train.horovod") is None:
        pytest.skip(f"Ray {ray.__version__} has dropped its HorovodTrainer")
    script = tmp_path / "script.py"
    script.write_text(OLD_SCRIPT)
    out = run_script(script, cluster, str(tmp_path / "storage"), RAY_TRAIN_V2_ENABLED="0")
    assert "sum 3.0 of 2 on 2" in out, out


@pytest.mark.parametrize("name", ["ray_train.py", "ray_executor.py"])
def test_an_example_learns(
    name: str, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    if name == "ray_train.py":
        # Here, where Ray and PyTorch are.
        monkeypatch.setattr(sys, "argv", [name, "--storage", str(tmp_path)])
        runpy.run_path(str(FOLDER / name), run_name="__main__")
        out = capsys.readouterr().out
    else:
        out = run_script(FOLDER / name, cluster)
    found = re.search(r"(\d) workers: loss ([0-9.]+) -> ([0-9.]+), all equal", out)
    assert found is not None, out
    assert int(found[1]) == 2
    assert float(found[3]) < float(found[2]) / 2, out
