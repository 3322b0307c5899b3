"""`import horovod` where there is no Horovod: the names of scripts and of libraries that were written for it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from importlib import metadata
from pathlib import Path

import pytest
from jobs import launcher

import horo
import horo.elastic

LIMIT_SECONDS = 60


def run(code: str, *flags: str, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own. `path` comes before everything installed."""
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    if path is not None:
        settings["PYTHONPATH"] = str(path)
    return subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(code)],
        env={**settings, **variables},
        cwd="/",  # The source tree has a folder called horo.
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def said(code: str, *flags: str, path: Path | None = None, **variables: str) -> str:
    done = run(code, *flags, path=path, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def real_horovod(tmp_path: Path) -> Path:
    """A folder with another package of the name."""
    package = tmp_path / "horovod"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = 'the real one'\n")
    return tmp_path


def test_names_are_those_of_horo() -> None:
    pairs = {
        "horovod": (["run"], horo),
        "horovod.runner": (["run"], horo),
        "horovod.common.exceptions": (["HorovodInternalError", "HostsUpdatedInterrupt"], horo),
        "horovod.common.elastic": (["State", "ObjectState", "run_fn"], horo.elastic),
        "horovod.common.process_sets": (["ProcessSet", "global_process_set", "add_process_set"], horo),
    }
    for module, (names, origin) in pairs.items():
        for name in names:
            assert getattr(importlib.import_module(module), name) is getattr(origin, name), f"{module}.{name}"


def test_names_of_torch_are_those_of_horo_torch() -> None:
    import horovod.torch as hvd
    from horovod.torch import compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm
    from horovod.torch.elastic import sampler, state

    import horo.torch

    # Made here, so that what it wraps bears the name that libraries look for.
    own = {"DistributedOptimizer", "elastic"}
    for name in horo.torch.__all__:
        if name not in own:
            assert getattr(hvd, name) is getattr(horo.torch, name), name
    assert hvd.elastic.run is elastic.run is horo.torch.elastic.run
    assert mpi_ops.allreduce_async_ is horo.torch.allreduce_async_
    assert mpi_ops.synchronize is horo.torch.synchronize
    assert mpi_ops.is_homogeneous is horo.torch.is_homogeneous
    assert functions.broadcast_object is horo.torch.broadcast_object
    assert compression.Compression is horo.torch.Compression
    assert sync_batch_norm.SyncBatchNorm is horo.torch.SyncBatchNorm
    assert optimizer.DistributedOptimizer is hvd.DistributedOptimizer
    assert state.StateHandler is horo.torch.elastic.state.StateHandler
    assert state.TorchState is elastic.TorchState is horo.torch.elastic.TorchState
    assert sampler.ElasticSampler is elastic.ElasticSampler is horo.torch.elastic.ElasticSampler


def test_the_version_is_one_that_libraries_accept() -> None:
    version = pytest.importorskip("packaging.version").Version
    import horovod

    assert horovod.__version__ == f"0.28.1+horo.{horo.__version__}"
    assert version("0.28.1") <= version(horovod.__version__) < version("0.28.2")


def test_no_distribution_claims_to_be_horovod() -> None:
    # pip would take it for the real one, and refuse or remove it.
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("horovod")


def test_an_installed_horovod_wins(real_horovod: Path) -> None:
    assert said("import horovod; print(horovod.__version__)", path=real_horovod) == "the real one"
    done = run("import horovod.tensorflow", path=real_horovod)
    assert "No module named 'horovod.tensorflow'\n" in done.stderr, "what the real one lacks is its own affair"


def test_shadowing_puts_these_names_in_front(real_horovod: Path) -> None:
    code = "import horovod; print('horo' in horovod.__version__)"
    for value, expected in (("1", "True"), ("true", "True"), ("0", "False"), ("", "False")):
        assert said(code, path=real_horovod, HORO_SHADOW_HOROVOD=value) == expected, value
    # Submodules come from the package that was taken, and what is absent is explained as ever.
    done = run("import horovod.runner, horovod.mxnet", path=real_horovod, HORO_SHADOW_HOROVOD="1")
    assert "horovod.mxnet': this horovod is horo's" in done.stderr, done.stderr
    # The engine knows the name, and does not take it for a misspelt one.
    done = run("import horo; horo.init()", HORO_SHADOW_HOROVOD="1", HORO_LOG_LEVEL="warning")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_of_that_name_is_named_when_it_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    done = run("import horovod.torch", path=tmp_path)
    assert f"the folder {tmp_path / 'horovod'} hides" in done.stderr, done.stderr
    assert said("import horovod.runner; print('found')", path=tmp_path, HORO_SHADOW_HOROVOD="1") == "found"


@pytest.mark.parametrize("name", ["mxnet", "data", "_keras"])
def test_what_is_not_there_yet_says_so(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"\.keras, \.ray and \.spark, and not this") as caught:
        importlib.import_module(f"horovod.{name}")
    assert caught.value.name == f"horovod.{name.split('.')[0]}"


def test_a_misspelt_module_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'horovod.torhc'$"):
        importlib.import_module("horovod.torhc")
    assert importlib.util.find_spec("horovod.torhc") is None


def test_without_torch_the_error_says_what_to_install() -> None:
    done = run("import sys; sys.modules['torch'] = None\nimport horovod.torch")
    assert "ModuleNotFoundError: horo.torch needs PyTorch" in done.stderr, done.stderr
    code = """
        import sys
        sys.modules['torch'] = None
        try:
            import horovod.torch
        except ModuleNotFoundError as error:
            print(error.name)
    """
    assert said(code) == "torch"


def test_names_are_there_however_python_is_started() -> None:
    code = "import horovod.runner; print('found')"
    for flags in ([], ["-E"], ["-I"], ["-s"], ["-O"], ["-X", "importtime"]):
        assert said(code, *flags) == "found", flags


def test_spawned_children_find_the_names(tmp_path: Path) -> None:
    program = """
        import multiprocessing, horovod
        def tell(queue): queue.put(__import__("horovod").__version__)
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            child = context.Process(target=tell, args=(queue,))
            child.start()
            print(queue.get(timeout=30) == horovod.__version__)
            child.join()
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    assert done.stdout.strip() == "True"


def test_without_site_packages_there_is_neither() -> None:
    assert run("import horovod", "-S").returncode != 0
    assert run("import horo", "-S").returncode != 0


def test_the_start_of_python_loads_only_the_finder() -> None:
    loaded = said("import sys; print(*sorted(name for name in sys.modules if 'horo' in name))")
    assert loaded == "_horo_names"
    found = importlib.util.find_spec("_horo_names")
    assert found is not None
    assert found.origin is not None
    tree = ast.parse(Path(found.origin).read_text())
    imported = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in imported if isinstance(node, ast.ImportFrom)}
    assert names == {"sys", "os"}, "both are loaded before any .pth file is read"


def test_exceptions_are_pickled_under_their_own_names() -> None:
    from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

    again = pickle.loads(pickle.dumps(HorovodInternalError("lost")))
    assert type(again) is horo.HorovodInternalError
    assert pickle.loads(pickle.dumps(HostsUpdatedInterrupt(True))).args == HostsUpdatedInterrupt(True).args


def test_horovod_run_starts_ranks() -> None:
    import horovod

    assert horovod.run(lambda: int(os.environ["HOROVOD_RANK"]), num_proc=2) == [0, 1]


def test_the_command_line_of_the_runner_is_the_launchers() -> None:
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "sh", "-c", "echo rank $HOROVOD_RANK"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:rank 0", "[1]<stdout>:rank 1"]


SCRIPT = """
import torch
import horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
weights = hvd.allgather(model.weight.detach().reshape(1, -1))
assert (weights == weights[0]).all()
print("size", hvd.size())
# Libraries recognise a wrapped optimizer by the name of its module.
import horo.torch
own = horo.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
assert isinstance(optimizer, torch.optim.SGD) and isinstance(own, torch.optim.SGD)
names = [f"{type(one).__module__} {type(one).__name__}" for one in (optimizer, own)]
assert names == ["horovod.torch.optimizer SGD", "horo.torch.optimizer SGD"], names
"""


@pytest.mark.parametrize("way", ["horo run", "horovodrun", "python"])
def test_a_script_runs_unchanged_and_its_optimizer_bears_horovods_name(way: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    horovodrun = shutil.which("horovodrun", path=sysconfig.get_path("scripts"))
    starts = {"horo run": [launcher(), "run", "-np", "2"], "horovodrun": [str(horovodrun), "-np", "2"], "python": []}
    command = [*starts[way], sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("size 2" if way != "python" else "size 1") == (2 if way != "python" else 1)


def test_secrets_and_digests_keep_their_contract() -> None:
    from horovod.runner.common.util import secret

    key = secret.make_secret_key()
    assert (len(key), secret.SECRET_LENGTH, secret.DIGEST_LENGTH) == (32, 32, 32)
    assert key != secret.make_secret_key()
    assert secret.HOROVOD_SECRET_KEY == "_HOROVOD_SECRET_KEY"
    digest = secret.compute_digest(b"key", b"message")
    assert digest.hex() == "6e9ef29b75fffc5b7abae527d58fdadb2fe42e7219011976917343065f58ed4a"
    assert secret.check_digest(b"key", b"message", digest)
    assert not secret.check_digest(b"key", b"massage", digest)


def test_timeouts_keep_their_contract() -> None:
    from horovod.runner.common.util import timeout

    long = timeout.Timeout(1000, "{activity} takes too long; give it more time.")
    assert 999 < long.remaining() <= 1000
    assert not long.timed_out()
    long.check_time_out_for("starting")
    copied = pickle.loads(pickle.dumps(long))
    assert 999 < copied.remaining() <= long.remaining() + 1
    past = timeout.Timeout(0, "{activity} takes too long; give it more time.")
    assert past.timed_out()
    assert past.remaining() == 0
    with pytest.raises(timeout.TimeoutException, match="starting takes too long"):
        past.check_time_out_for("starting")


def test_questions_about_the_build_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod.common import util
    from horovod.common.basics import HorovodBasics

    assert util.mpi_built()
    assert not any([util.gloo_built(verbose=True), util.nccl_built(), util.cuda_built()])
    assert not util.gpu_available("torch")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    assert not util.extension_available("mxnet")
    with pytest.raises(ImportError, match="no front end for mxnet"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")
    assert util.split_list(list(range(5)), 3) == [[0, 1], [2, 3], [4]]
    assert [util.num_rank_is_power_2(count) for count in (0, 1, 2, 3, 4, 6, 8)] == [0, 1, 1, 0, 1, 0, 1]
    monkeypatch.setenv("SET_BEFORE", "before")
    with util.env(SET_BEFORE="within", SET_WITHIN="new"):
        assert (os.environ["SET_BEFORE"], os.environ["SET_WITHIN"]) == ("within", "new")
    assert os.environ["SET_BEFORE"] == "before"
    assert "SET_WITHIN" not in os.environ
    basics = HorovodBasics(__file__, "mpi_lib_v2")
    assert basics.is_initialized() is horo.is_initialized()
    assert (basics.Average, basics.Adasum) == (horo.Average, horo.Adasum)


def test_hosts_have_slots_and_ranks(tmp_path: Path) -> None:
    from horovod.runner.common.util.hosts import HostInfo, SlotInfo, get_host_assignments, parse_host_files, parse_hosts

    hosts = parse_hosts("a:2, b:1,c")
    assert hosts == [HostInfo("a", 2), HostInfo("b", 1), HostInfo("c", 1)]
    assert parse_hosts("[::1]:4,::2") == [HostInfo("::1", 4), HostInfo("::2", 1)]
    for wrong in ("a:0", "a:x", ":2"):
        with pytest.raises(ValueError, match="host:slots"):
            parse_hosts(wrong)
    slots = get_host_assignments(hosts, min_num_proc=2, max_num_proc=3)
    assert slots == [
        SlotInfo("a", rank=0, local_rank=0, cross_rank=0, size=3, local_size=2, cross_size=2),
        SlotInfo("a", rank=1, local_rank=1, cross_rank=0, size=3, local_size=2, cross_size=1),
        SlotInfo("b", rank=2, local_rank=0, cross_rank=1, size=3, local_size=1, cross_size=2),
    ]
    assert len(get_host_assignments(hosts, 1)) == 4
    with pytest.raises(ValueError, match="5 processes need as many slots, and the hosts have 4"):
        get_host_assignments(hosts, 5)
    assert slots[2].to_response_string() == "2,3,0,1,1,2"
    assert SlotInfo.from_response_string("2,3,0,1,1,2").cross_rank == 1
    file = tmp_path / "hosts"
    file.write_text("a slots=2\n\n# nobody\nb\n")
    assert parse_host_files(str(file)) == "a:2,b:1"


def test_addresses_of_this_host_are_known() -> None:
    from horovod.runner.common.util.host_hash import host_hash
    from horovod.runner.util import network

    assert "127.0.0.1" in network.get_local_host_addresses()
    assert network.get_local_intfs("lo") == {"lo"}
    assert network.get_driver_ip(["absent", "lo"]) == "127.0.0.1"
    with pytest.raises(RuntimeError, match="none of the interfaces absent is here"):
        network.get_driver_ip(["absent"])
    assert network.resolve_host_address("localhost") == "127.0.0.1"
    assert network.filter_local_addresses(["localhost", "192.0.2.77"]) == ["192.0.2.77"]
    assert host_hash() == host_hash()
    assert host_hash() != host_hash(salt="salt")


def test_a_job_is_started_with_arguments_in_an_object(capfd: pytest.CaptureFixture[str]) -> None:
    from horovod.runner import _HorovodArgs
    from horovod.runner.launch import _run

    args = _HorovodArgs()
    args.num_proc = 2
    args.use_gloo = True
    args.command = ["sh", "-c", "echo rank $HOROVOD_RANK of $HOROVOD_SIZE"]
    assert _run(args) is None
    assert {"[0]<stdout>:rank 0 of 2", "[1]<stdout>:rank 1 of 2"} <= set(capfd.readouterr().out.splitlines())
    args.command = ["false"]
    with pytest.raises(RuntimeError, match="of false ended with exit code"):
        _run(args)
    args.run_func = lambda: int(os.environ["HOROVOD_RANK"])
    assert _run(args) == [0, 1]
