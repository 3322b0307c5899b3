"""horo.backends: one interface for whatever joins the processes of a script."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jobs
import numpy as np
import pytest
from jobs import launcher

import horo
from horo import backends
from horo.backends import selection

torch = pytest.importorskip("torch", reason="PyTorch is not installed in this environment")

LIMIT_SECONDS = 90
ABSTRACT = ["_initialize", "_get_world_size", "_get_rank", "_get_local_rank", "_local_barrier"]


@pytest.fixture(autouse=True)
def _as_at_the_start() -> Iterator[None]:
    known = list(selection.BACKENDS)
    yield
    selection.BACKENDS[:] = known
    selection.backend = selection.is_distributed = None
    for one in known:
        one.is_initialized, one.backend_module = False, None


def run_program(ranks: int, body: Callable[[], None] | Path, tmp_path: Path, *words: str, **settings: str) -> str:
    script = body if isinstance(body, Path) else tmp_path / "program.py"
    if not isinstance(body, Path):
        script.write_text(f"{textwrap.dedent(inspect.getsource(body))}\n{body.__name__}()\n")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    done = subprocess.run(
        [launcher(), "run", "-np", str(ranks), sys.executable, str(script), *words],
        env={**inherited, "OMP_NUM_THREADS": "1", "SCRIPT_FOLDER": str(tmp_path), **settings},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Nearby(backends.DistributedBackend):
    """A back end of one's own: the least that it takes."""

    BACKEND_MODULE_NAME = "json"
    BACKEND_NAME = "Nearby"

    def wrap_arg_parser(self, parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        parser.add_argument("--nearby", type=int, default=3)
        return parser

    def _initialize(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def _get_world_size(self) -> int:
        return 4

    def _get_rank(self) -> int:
        return 2

    def _get_local_rank(self) -> int:
        return 0

    def _local_barrier(self) -> None:
        self.calls.append(("barrier",))

    def _distribute(self, *arguments: object, **more: object) -> tuple[object, ...]:
        self.calls.append((*arguments, more))
        return arguments[1], arguments[2], arguments[4], arguments[5]

    def _average_all(self, tensor: object) -> object:
        return ("average", tensor)


def test_the_interface_has_the_attributes_and_methods_of_its_contract() -> None:
    base = backends.DistributedBackend
    defaults = (base.BACKEND_MODULE_NAME, base.BACKEND_NAME, base.ROOT_RANK, base.backend_module, base.is_initialized)
    assert defaults == (None, None, 0, None, False)
    expected = ["self", "args", "model", "optimizer", "model_parameters", "training_data", "lr_scheduler", "kwargs"]
    assert list(inspect.signature(base.distribute).parameters) == expected
    with pytest.raises(NotImplementedError, match="BACKEND_MODULE_NAME"):
        base()
    with pytest.raises(NotImplementedError, match="BACKEND_NAME"):
        type("Nameless", (base,), {"BACKEND_MODULE_NAME": "json"})()
    bare = type("Bare", (base,), {"BACKEND_MODULE_NAME": "json", "BACKEND_NAME": "bare"})()
    calls = [(getattr(bare, name), ()) for name in ABSTRACT]
    for call, arguments in [*calls, (bare.wrap_arg_parser, (None,)), (bare._distribute, ()), (bare._average_all, (1,))]:
        with pytest.raises(NotImplementedError):
            call(*arguments)


def test_nothing_works_before_initialize() -> None:
    nearby = Nearby()
    questions = [nearby.get_world_size, nearby.get_rank, nearby.get_local_rank, nearby.is_root_worker]
    questions += [nearby.is_local_root_worker, nearby.local_barrier, nearby.distribute, nearby.require_init]
    for question in [*questions, lambda: nearby.average_all(1), lambda: nearby.check_batch_size(1)]:
        with pytest.raises(AssertionError, match="Nearby was not initialized"):
            question()


def test_a_back_end_answers_through_the_interface() -> None:
    nearby = Nearby()
    nearby.initialize()
    assert (nearby.is_initialized, nearby.backend_module) == (True, json)
    assert (nearby.get_world_size(), nearby.get_rank(), nearby.get_local_rank()) == (4, 2, 0)
    assert (nearby.is_root_worker(), nearby.is_local_root_worker()) == (False, True)
    nearby.check_batch_size(4)
    with pytest.raises(AssertionError, match="a batch of 3 cannot be divided among 4 processes"):
        nearby.check_batch_size(3)
    nearby.local_barrier()
    assert nearby.distribute("args", "model", lr_scheduler="schedule", extra=1) == ("model", None, None, "schedule")
    assert nearby.calls == [("barrier",), ("args", "model", None, None, None, "schedule", {"extra": 1})]
    assert nearby.average_all(5) == ("average", 5)


def test_only_a_missing_module_means_that_a_back_end_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken_back_end.py").write_text("raise RuntimeError('broken')\n")
    absent = type("Absent", (Nearby,), {"BACKEND_MODULE_NAME": "no_such_back_end", "BACKEND_NAME": "absent"})()
    assert not absent.has_backend()
    with pytest.raises(ModuleNotFoundError, match="absent needs the module no_such_back_end") as caught:
        absent.initialize()
    assert caught.value.name == "no_such_back_end"
    broken = type("Broken", (Nearby,), {"BACKEND_MODULE_NAME": "broken_back_end", "BACKEND_NAME": "broken"})()
    with pytest.raises(RuntimeError, match="broken"):
        broken.has_backend()


def parse(*words: str) -> argparse.Namespace:
    return backends.wrap_arg_parser(argparse.ArgumentParser()).parse_args(words)


def test_the_command_line_chooses() -> None:
    backends.register(Nearby)
    for words, name, distributed in [
        ((), "Dummy", False),
        (("--distributed_backend", "dummy"), "Dummy", False),
        (("--distributed_backend", "HORO"), "horo", True),
        (("--distr_backend", "horovod"), "Horovod", True),
        (("--distr_backend=Torch",), "torch", True),
        (("--distr_backend=nearby", "--nearby", "4"), "Nearby", True),
    ]:
        args = parse(*words)
        chosen = backends.set_backend_from_args(args)
        assert (chosen.BACKEND_NAME, backends.is_distributed, backends.backend) == (name, distributed, chosen)
        assert backends.using_backend(name)
        assert backends.using_backend(name.upper())
        assert backends.using_backend(type(chosen))
        assert not backends.using_backend("another")
    assert args.nearby == 4
    with pytest.raises(ValueError, match="no distributed back end called 'nobody'; there are Dummy, horo"):
        backends.set_backend_from_args(parse("--distributed_backend", "nobody"))
    with pytest.raises(AttributeError):
        _ = backends.nonsense


def test_before_a_choice_there_is_none() -> None:
    assert (backends.backend, backends.is_distributed) == (None, None)
    for question in (backends.require_set_backend, lambda: backends.using_backend("dummy")):
        with pytest.raises(AssertionError, match="set_backend_from_args"):
            question()


def test_two_back_ends_cannot_have_one_name() -> None:
    assert backends.register(Nearby) is Nearby
    with pytest.raises(ValueError, match="Nearby is called Nearby already"):
        backends.register(type("Other", (Nearby,), {"BACKEND_NAME": "NEARBY"}))


def test_the_dummy_hands_everything_back() -> None:
    dummy = backends.set_backend_from_args(parse())
    dummy.initialize()
    assert (dummy.get_world_size(), dummy.get_rank(), dummy.get_local_rank()) == (1, 0, 0)
    assert dummy.is_root_worker()
    assert dummy.is_local_root_worker()
    dummy.local_barrier()
    dummy.check_batch_size(1)
    assert dummy.distribute(None, "model", "optimizer", "parameters", "data", "schedule", more=1) == (
        "model",
        "optimizer",
        "data",
        "schedule",
    )
    assert dummy.average_all(7) == 7


@pytest.fixture
def deepspeed(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Not DeepSpeed: a module of its name that notes how it is called. What DeepSpeed itself does is not tested."""
    seen = SimpleNamespace(initialized=[], joined=0)
    module = ModuleType("deepspeed")

    def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        parser.add_argument("--deepspeed", action="store_true")
        parser.add_argument("--deepspeed_config", type=str, default=None)
        return parser

    def init_distributed() -> None:
        seen.joined += 1
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

    def initialize(**arguments: object) -> tuple[object, ...]:
        seen.initialized.append(arguments)
        return "engine", arguments["optimizer"] or "its optimizer", "its data", arguments["lr_scheduler"]

    module.add_config_arguments, module.init_distributed = add_config_arguments, init_distributed
    module.initialize = initialize
    monkeypatch.setitem(sys.modules, "deepspeed", module)
    monkeypatch.setenv("LOCAL_RANK", "0")
    yield seen
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_deepspeed_is_called_as_it_wants_to_be(deepspeed: SimpleNamespace, tmp_path: Path) -> None:
    args = parse("--deepspeed", "--local_rank", "0", "--distributed_backend", "horo")
    chosen = backends.set_backend_from_args(args)
    assert type(chosen) is backends.DeepSpeedBackend, "--deepspeed goes before --distributed_backend"
    chosen.initialize()
    assert deepspeed.joined == 1
    assert (chosen.get_world_size(), chosen.get_rank(), chosen.get_local_rank()) == (1, 0, 0)
    chosen.local_barrier()
    chosen.check_batch_size(1)
    given = torch.tensor([4.0], requires_grad=True)
    assert chosen.average_all(given * 1).tolist() == [4.0]
    result = chosen.distribute(args, "model", "optimizer", "parameters", "data", "schedule", config_params={"fp16": 1})
    assert result == ("engine", "optimizer", "its data", "schedule")
    assert deepspeed.initialized[0] == {
        "args": args,
        "model": "model",
        "optimizer": "optimizer",
        "model_parameters": "parameters",
        "training_data": "data",
        "lr_scheduler": "schedule",
        "config_params": {"fp16": 1},
    }
    config = {"optimizer": {"type": "Adam"}, "scheduler": {}}
    with pytest.warns(UserWarning, match="DeepSpeed's configuration has a"):
        assert chosen.distribute(args, "model", "optimizer", lr_scheduler="schedule", config=config)[1:] == (
            "its optimizer",
            "its data",
            None,
        )
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"optimizer": {}}))
    args.deepspeed_config = str(file)
    with pytest.warns(UserWarning, match="has a optimizer|has an optimizer"):
        assert chosen.distribute(args, "model", "optimizer", lr_scheduler="schedule")[3] == "schedule"


def test_without_deepspeed_its_arguments_are_known_and_asking_for_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    assert parse("--local_rank", "3").local_rank == 3
    assert parse().local_rank == -1
    for words in (["--deepspeed"], ["--distributed_backend", "deepspeed"]):
        with pytest.raises(ModuleNotFoundError, match="DeepSpeed needs the module deepspeed"):
            backends.set_backend_from_args(parse(*words))


def train() -> None:
    """On any back end: gradients of different data, one step, equal parameters that are those of the average."""
    import argparse
    import sys

    import torch

    from horo import backends

    args = backends.wrap_arg_parser(argparse.ArgumentParser()).parse_args()
    distributed = backends.set_backend_from_args(args)
    distributed.initialize()
    distributed.check_batch_size(1)
    rank, size = distributed.get_rank(), distributed.get_world_size()
    assert distributed.is_root_worker() == (rank == 0)
    assert distributed.get_local_rank() == rank
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(model.weight, 1.0 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine, stepper, data, schedule = distributed.distribute(
        args, model, optimizer, model.parameters(), "data", "schedule", config_params={"ignored": True}
    )
    assert (data, schedule) == ("data", "schedule")
    stepper.zero_grad()
    loss = engine(torch.full((1, 2), float(rank + 1))).sum()
    loss.backward()
    stepper.step()
    mean = sum(range(1, size + 1)) / size
    expected = torch.full((1, 2), 1.0 - mean)  # From the root's weights, by the average of the gradients.
    assert torch.allclose(model.weight, expected), model.weight
    averaged = distributed.average_all(loss.detach())
    assert torch.allclose(averaged, torch.tensor(2.0 * mean)), averaged
    assert loss.item() == 2.0 * (rank + 1), "the argument stays as it is"
    distributed.local_barrier()
    # In one piece: torchrun's ranks write to one pipe, and print() writes its words one by one.
    sys.stdout.write(f"done {distributed.BACKEND_NAME} {size}\n")


def wait_for_neighbours() -> None:
    """Two hosts of two ranks each: the second waits for its neighbours only after the first has."""
    os.environ["HORO_HOST_ID"] = f"host{int(os.environ['HORO_RANK']) // 2}"
    import torch

    from horo import backends

    for backend in (backends.HoroBackend(), backends.TorchBackend()):
        backend.initialize()
        rank = backend.get_rank()
        if rank < 2:
            backend.local_barrier()
        horo.broadcast(np.zeros(1), root_rank=0)
        if rank >= 2:
            backend.local_barrier()
    torch.distributed.destroy_process_group()
    print("done")


def test_a_local_barrier_waits_for_the_host_alone() -> None:
    # An interface may be given by its name: torch is told its address.
    outputs = jobs.run(4, wait_for_neighbours, HORO_INTERFACE="lo")
    assert [said.split()[-1] for said in outputs] == ["done"] * 4


@pytest.mark.parametrize("name", ["horo", "Horovod", "torch"])
def test_every_back_end_trains_alike(name: str, tmp_path: Path) -> None:
    out = run_program(2, train, tmp_path, "--distributed_backend", name)
    assert out.count(f"done {name} 2") == 2, out


def test_torch_works_under_its_own_launcher_and_alone(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"{inspect.getsource(train)}\ntrain()\n")
    words = [str(script), "--distributed_backend", "torch"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for command, ranks in ((torchrun, 2), ([], 1)):
        done = subprocess.run(
            [sys.executable, *command, *words],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.stdout.count(f"done torch {ranks}") == ranks, done.stdout + done.stderr


def test_a_script_with_a_back_end_for_horovod_runs_unchanged(tmp_path: Path) -> None:
    out = run_program(2, Path(__file__).parent / "backend_script.py", tmp_path)
    assert out.count("trained: ") == 2, out
