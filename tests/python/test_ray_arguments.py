"""What trainers and executors of Ray take and refuse, and Horovod's names for them. No Ray is started."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed in this environment")

from ray.train import Checkpoint, ScalingConfig

from horo.ray import (
    BaseHorovodWorker,
    ElasticRayExecutor,
    HorovodConfig,
    HorovodTrainer,
    RayExecutor,
    discovery,
)
from horo.ray.discovery import RayHostDiscovery


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
        {"num_workers": 1, "max_workers": 2},
        {"num_workers": 1, "min_workers": 1},
        {"min_workers": 2, "max_workers": 1},
        {"min_workers": 1, "elastic_timeout": 0},
        {"min_workers": 1, "cooldown_range": (3, 2)},
        {"min_workers": 1, "override_discovery": False},
    ):
        words = r"num_workers|gpus_per_worker|1 or more|less than min_workers|elastic_timeout|cooldown_range|discovery"
        with pytest.raises(ValueError, match=words):
            RayExecutor(settings, **arguments)
    elastic = RayExecutor(settings, min_workers=1, max_workers=2)
    for executor in (elastic, RayExecutor(settings, num_workers=1)):
        with pytest.raises(RuntimeError, match="start"):
            executor.run(nothing)
    with pytest.raises(NotImplementedError, match="come and go"):
        elastic.execute_single(nothing)


def test_an_elastic_executor_has_settings_of_its_own() -> None:
    settings = ElasticRayExecutor.create_settings(2, 4, reset_limit=3, elastic_timeout=60, cooldown_range=(1, 8))
    assert settings.limits.variables() == {
        "HOROVOD_ELASTIC": "1",
        "HORO_ELASTIC_MIN_RANKS": "2",
        "HORO_ELASTIC_MAX_RANKS": "4",
        "HORO_ELASTIC_TIMEOUT": "60",
        "HORO_RESET_LIMIT": "3",
    }
    with pytest.warns(DeprecationWarning, match="max_np is called max_num_proc now"):
        assert ElasticRayExecutor.create_settings(max_np=1).max_num_proc == 1
    with pytest.raises(ValueError, match="gpus_per_slot"):
        ElasticRayExecutor(settings, gpus_per_slot=1)
    with pytest.raises(TypeError, match="unheard_of"):
        ElasticRayExecutor.create_settings(unheard_of=1)


def test_slots_of_nodes_are_what_they_have_and_not_more_than_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"NodeID": "c", "Alive": True, "NodeManagerAddress": "10.0.0.2", "Resources": {"CPU": 4.0, "GPU": 1.0}},
        {"NodeID": "b", "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 5.0, "GPU": 4.0}},
        {"NodeID": "a", "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 2.0}},
        {"NodeID": "d", "Alive": False, "NodeManagerAddress": "10.0.0.3", "Resources": {"CPU": 8.0}},
    ]
    monkeypatch.setattr(discovery.ray, "nodes", lambda: nodes)
    room = RayHostDiscovery(cpus_per_slot=2)
    assert room.find_available_hosts_and_slots() == {"10.0.0.1": 3, "10.0.0.2": 2}
    assert RayHostDiscovery(True, 1, 2).find_available_hosts_and_slots() == {"10.0.0.1": 2}
    assert discovery.slots_by_node(room, None) == {"a": 1, "b": 2, "c": 2}
    told = SimpleNamespace(find_available_hosts_and_slots=lambda: {"10.0.0.1": 2, "10.0.0.9": 4})
    assert discovery.slots_by_node(room, told) == {"a": 1, "b": 1}


def test_horovods_names_resolve() -> None:
    import horovod.ray
    from horovod.ray import ray_logger
    from horovod.ray.elastic import ElasticRayExecutor as Elastic
    from horovod.ray.elastic import RayHostDiscovery as Discovery
    from horovod.ray.runner import MiniSettings
    from horovod.ray.utils import detect_nics, nics_to_env_var
    from horovod.ray.worker import BaseHorovodWorker as Worker
    from horovod.runner.elastic.discovery import HostDiscovery

    assert issubclass(Discovery, HostDiscovery)
    assert (horovod.ray.RayExecutor, horovod.ray.BaseHorovodWorker, Worker) == (RayExecutor, *[BaseHorovodWorker] * 2)
    assert (horovod.ray.ElasticRayExecutor, Elastic, Discovery) == (*[ElasticRayExecutor] * 2, RayHostDiscovery)
    ray_logger.log({"nobody": "listens"})
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
