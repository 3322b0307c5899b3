"""Jobs on a real Ray: train functions, executors, failures, and what Ray itself takes from Horovod."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_cluster import CPUS, ray_cluster

pytest.importorskip("ray", reason="Ray is not installed in this environment")

import ray.train
from ray import cloudpickle
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

import horo
from horo.ray import HorovodTrainer, RayExecutor

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
LIMIT_SECONDS = 240
long = pytest.mark.skipif(not os.environ.get("LONG_TESTS"), reason="takes long: make test-all")
# Workers know nothing of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


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


def tell_place() -> list[dict[str, Any]]:
    """Joins, leaves and joins again; rank 0 returns what all ranks found."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    environment = dict(os.environ)
    for _ in range(2):
        horo.init()
        assert horo.allreduce(np.full(1000, horo.rank() + 1.0), op=horo.Sum)[0] == sum(range(horo.size() + 1))
        horo.shutdown()
    horo.init()
    place = {
        "rank": horo.rank(),
        "local": (horo.local_rank(), horo.local_size()),
        "cross": (horo.cross_rank(), horo.cross_size()),
        "ray": ray.train.get_context().get_world_rank(),
        "node": ray.get_runtime_context().get_node_id(),
        "variables": [int(os.environ[f"HOROVOD_{name}"]) for name in ("RANK", "SIZE", "LOCAL_RANK", "CROSS_SIZE")],
        "main thread": threading.current_thread() is threading.main_thread(),
        "handlers kept": handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "environment kept": environment == dict(os.environ),
        "keys": [name for name in os.environ if "KEY" in name and name.startswith("HORO")],
    }
    return horo.allgather_object(place)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_workers_of_a_trainer_are_ranks_wherever_they_are(count: int, run_config: RunConfig) -> None:
    places = fit(tell_place, count, run_config).return_value
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


def train_with_torch(config: dict[str, Any]) -> None:
    """Four epochs, a checkpoint after each; in its first life rank 1 dies in the third."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters())
    checkpoint, first = ray.train.get_checkpoint(), 0
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    with open(f"{config['diary']}.{hvd.rank()}", "a", encoding="ascii") as diary:
        for epoch in range(first, 4):
            print(epoch, file=diary, flush=True)
            if epoch == 2 and first == 0 and hvd.rank() == 1:
                # Ray takes reports in its own time, and its workers begin anew after the last that it has taken.
                ray.train.get_all_reported_checkpoints(timeout_s=60)
                os.kill(os.getpid(), signal.SIGKILL)
            data = torch.randn(16, 4)
            optimizer.zero_grad()
            loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            weights = hvd.allgather(model.weight.detach())
            assert (weights == weights[0]).all()
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"model": model.state_dict(), "epoch": epoch}, Path(folder) / "state.pt")
                saved = Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
                ray.train.report({"epoch": epoch, "loss": loss.item()}, checkpoint=saved)


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


def raise_on_rank_1() -> None:
    horo.init()
    if horo.rank() == 1:
        raise LookupError("nothing to be found")
    horo.barrier()


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
        value = config["value"]
        run_config = RunConfig(name=f"value{value}", storage_path=config["storage"])
        result = fit(sum_up, 2, run_config, train_loop_config={"value": value})
        tune.report({"sums": result.return_value})

    space = {"value": tune.grid_search([1, 10]), "storage": str(tmp_path)}
    run_config = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    results = tune.Tuner(
        tune.with_resources(trial, {"CPU": 0, "GPU": 0.1}), param_space=space, run_config=run_config
    ).fit()
    assert sorted(result.metrics["sums"] for result in results) == [[2.0] * 3, [20.0] * 3]


def train_with_tensorflow() -> tuple[float, int]:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    return float(hvd.allreduce(tf.fill([3], float(hvd.rank() + 1)), op=hvd.Sum)[0]), hvd.size()


def test_a_train_function_of_tensorflow_reduces(run_config: RunConfig) -> None:
    if find_spec("tensorflow") is None or find_spec("horo.tensorflow") is None:
        pytest.skip("TensorFlow, or horo's front end for it, is not installed in this environment")
    assert fit(train_with_tensorflow, 2, run_config).return_value == (3.0, 2)


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


# ---- Executors -------------------------------------------------------------------------------------------------------


class Counter:
    def __init__(self, start: int, step: int) -> None:
        self.value = start
        self.step = step

    def count(self) -> int:
        self.value += self.step
        return self.value


def reduce_value(value: float, *, times: float = 1) -> tuple[int, float]:
    horo.init()
    return horo.rank(), float(horo.allreduce(np.full(10, value * times), op=horo.Sum)[0])


def fail_on_rank_0() -> None:
    horo.init()
    if horo.rank() == 0:
        raise LookupError("nothing to be found")
    horo.barrier()


def die_on_rank_1() -> None:
    horo.init()
    if horo.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    horo.barrier()


def test_an_executor_runs_functions_until_a_worker_dies(cluster: str) -> None:
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=2)
    executor.start(Counter, [10], {"step": 5}, extra_env_vars={"SAID": "before"})
    try:
        assert executor.run(reduce_value, [2.0], {"times": 3}) == [(0, 12.0), (1, 12.0)]
        assert ray.get(executor.run_remote(reduce_value, [1.0])) == [(0, 2.0), (1, 2.0)]
        assert executor.execute(lambda counter: (counter.count(), os.environ["SAID"])) == [(15, "before")] * 2
        assert executor.execute_single(lambda counter: counter.count()) == 20
        assert executor.execute(lambda counter: counter.count()) == [25, 20]
        with pytest.raises(LookupError, match="nothing to be found"):
            executor.run(fail_on_rank_0)
        assert executor.run(reduce_value, [4.0]) == [(0, 8.0), (1, 8.0)], "a new job after the failure"
        with pytest.raises(ray.exceptions.RayActorError):
            executor.run(die_on_rank_1)
        with pytest.raises(ray.exceptions.RayActorError):
            executor.run(reduce_value, [4.0])
    finally:
        executor.shutdown()
    executor.start()
    assert executor.run(reduce_value, [1.0]) == [(0, 2.0), (1, 2.0)]
    executor.shutdown()
    executor.shutdown()


def tell_devices(_: Any) -> tuple[int, int, str]:
    horo.init()
    return horo.local_rank(), horo.cross_rank(), os.environ["CUDA_VISIBLE_DEVICES"]


def test_an_executor_spreads_over_hosts_and_shares_their_devices(cluster: str) -> None:
    settings = RayExecutor.create_settings(timeout_s=60, placement_group_timeout_s=60)
    executor = RayExecutor(settings, num_hosts=2, num_workers_per_host=2, use_gpu=True)
    executor.start()
    try:
        told = executor.execute(tell_devices)
    finally:
        executor.shutdown()
    assert [place[:2] for place in told] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert {"".join(sorted(place[2])) for place in told} == {",01"}


def test_an_executor_without_room_says_what_there_is(cluster: str) -> None:
    settings = RayExecutor.create_settings(placement_group_timeout_s=0)
    with pytest.raises(TimeoutError, match=r"no place for .* on 3 different nodes.*CPU"):
        RayExecutor(settings, num_hosts=3).start()


def test_an_executor_in_a_task_uses_its_placement_group(cluster: str) -> None:
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_cpus=0)
    def inside() -> list[tuple[int, float]]:
        executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=2)
        executor.start()
        try:
            return executor.run(reduce_value, [1.0])
        finally:
            executor.shutdown()

    # All that there is: another placement group would find no room.
    group = placement_group([{"CPU": CPUS}] * 2, strategy="STRICT_SPREAD")
    try:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
        assert ray.get(inside.options(scheduling_strategy=strategy).remote()) == [(0, 2.0), (1, 2.0)]
    finally:
        remove_placement_group(group)


# ---- Horovod's names, and examples -----------------------------------------------------------------------------------


OLD_SCRIPT = """
import sys
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.horovod import HorovodTrainer

def train():
    import os
    import horovod.torch as hvd
    import torch
    hvd.init()
    assert "HORO_KEY" not in os.environ
    value = hvd.allreduce(torch.ones(3) * (hvd.rank() + 1), op=hvd.Sum)
    ray.train.report({"value": value[0].item(), "size": hvd.size(), "local": hvd.local_size()})

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
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    if find_spec("ray.train.horovod") is None:
        pytest.skip(f"Ray {ray.__version__} has dropped its HorovodTrainer")
    script = tmp_path / "script.py"
    script.write_text(OLD_SCRIPT)
    out = run_script(script, cluster, str(tmp_path / "storage"), RAY_TRAIN_V2_ENABLED="0")
    assert "sum 3.0 of 2 on 2" in out, out


@pytest.mark.parametrize("name", ["ray_train.py", "ray_executor.py"])
def test_an_example_learns(name: str, cluster: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    words = ["--storage", str(tmp_path)] if name == "ray_train.py" else []
    out = run_script(FOLDER / name, cluster, *words)
    found = re.search(r"(\d) workers: loss ([0-9.]+) -> ([0-9.]+), all equal", out)
    assert found is not None, out
    assert int(found[1]) == 2
    assert float(found[3]) < float(found[2]) / 2, out
