"""What trainers and executors of Ray take and refuse, and Horovod's names for them. No Ray is started."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="Ray is not installed in this environment")

from ray.train import Checkpoint, ScalingConfig

from horo.ray import BaseHorovodWorker, HorovodConfig, HorovodTrainer, RayExecutor


def nothing() -> None:
    pass


def test_what_ray_train_no_longer_takes_is_refused_in_its_own_words() -> None:
    with pytest.raises(DeprecationWarning, match="resume_from_checkpoint"):
        HorovodTrainer(nothing, resume_from_checkpoint=Checkpoint("/nowhere"))
    with pytest.raises(DeprecationWarning, match="metadata"):
        HorovodTrainer(nothing, metadata={"a": 1})


def test_the_guides_wrong_argument_is_told_the_right_one() -> None:
    with pytest.raises(TypeError, match=r"'tensorflow_backend'.*horovod_config=HorovodConfig"):
        HorovodTrainer(nothing, tensorflow_backend=HorovodConfig(), scaling_config=ScalingConfig(num_workers=2))


def test_without_ray_train_v2_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    with pytest.raises(RuntimeError, match="RAY_TRAIN_V2_ENABLED=0"):
        HorovodTrainer(nothing)


def test_a_config_keeps_its_fields_and_its_secrets() -> None:
    config = HorovodConfig(nics={"eth0"}, key="my secret", ssh_str="my ssh key", timeout_s=7)
    assert "secret" not in repr(config)
    assert "ssh key" not in repr(config)
    assert config.to_dict() == {"nics": ["eth0"], "timeout_s": 7}
    assert 6 < config.start_timeout.remaining() <= 7
    assert HorovodConfig().placement_group_timeout_s == 100


def test_without_ray_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['ray'] = None\nimport horo.ray"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "ModuleNotFoundError: horo.ray needs Ray, which is not installed here: pip install" in done.stderr


def test_an_executor_refuses_what_it_cannot_do() -> None:
    settings = RayExecutor.create_settings()
    for arguments in (
        {},
        {"num_workers": 1, "num_hosts": 1},
        {"num_workers": 0},
        {"num_workers": 1, "gpus_per_worker": 1},
    ):
        with pytest.raises(ValueError, match=r"num_workers|gpus_per_worker|1 or more"):
            RayExecutor(settings, **arguments)
    with pytest.raises(NotImplementedError, match=r"min_workers.*HorovodTrainer"):
        RayExecutor(settings, min_workers=1, max_workers=2)
    with pytest.raises(RuntimeError, match="start"):
        RayExecutor(settings, num_workers=1).run(nothing)


def test_horovods_names_resolve() -> None:
    import horovod.ray
    from horovod.ray.runner import MiniSettings
    from horovod.ray.utils import detect_nics, nics_to_env_var
    from horovod.ray.worker import BaseHorovodWorker as Worker

    assert (horovod.ray.RayExecutor, horovod.ray.BaseHorovodWorker, Worker) == (RayExecutor, *[BaseHorovodWorker] * 2)
    assert isinstance(RayExecutor.create_settings(nics={"eth0"}), MiniSettings)
    assert detect_nics(MiniSettings(nics={"b", "a"}), ["host"]) == ["a", "b"]
    assert nics_to_env_var(["a", "b"]) == {"HOROVOD_GLOO_IFACE": "a", "NCCL_SOCKET_IFNAME": "a,b"}
    assert nics_to_env_var([]) == {}


def test_a_coordinator_counts_workers_by_node() -> None:
    from horovod.ray.runner import Coordinator

    coordinator = Coordinator(HorovodConfig())
    for rank, node in enumerate(["n1", "n2", "n1"]):
        coordinator.register("host", node, rank)
    assert (coordinator.world_size, coordinator.hostnames) == (3, {"n1", "n2"})
    assert coordinator.node_id_string == "n1:2,n2:1"
    places = coordinator.finalize_registration()
    numbers = ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")
    assert [[places[rank][name] for name in numbers] for rank in range(3)] == [list("0202"), list("0112"), list("1201")]
