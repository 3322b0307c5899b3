"""The back end "horo" of torch.distributed: its suite on 2, 3 and 4 ranks, how it boots and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest

SUITE = Path(__file__).parent / "torch_distributed"
LIMIT_SECONDS = 240

torch = find_spec("torch")
pytestmark = pytest.mark.skipif(
    torch is None or torch.origin is None, reason="PyTorch is not installed in this environment"
)


def environment(**settings: str) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    # Without GPUs: some of torch's own hooks take it that who has one uses it.
    return {**inherited, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **settings}


def run_ranks(count: int, command: list[str], seconds: float = LIMIT_SECONDS, **settings: str) -> list[str]:
    """All ranks must succeed. Returns what they said."""
    ranks = [
        subprocess.Popen(
            command,
            env=environment(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), **settings),
            cwd=SUITE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    job = jobs.Job(ranks)
    codes = job.wait(seconds)
    report = "\n".join(f"--- rank {rank}, exit code {codes[rank]}\n{job.outputs[rank]}" for rank in range(count))
    assert codes == [0] * count, report
    return job.outputs


def init_methods(tmp_path: Path) -> dict[int, dict[str, str]]:
    """How the groups of each size come together. The variables are there for libraries that look for them anyway."""
    port = str(jobs.free_port())
    where = {
        2: f"file://{tmp_path}/store?rank={{rank}}&world_size=2",
        3: f"tcp://127.0.0.1:{port}?rank={{rank}}&world_size=3",
        4: "env://",
    }
    return {
        count: {"DISTRIBUTED_SUITE": place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for count, place in where.items()
    }


@pytest.mark.parametrize("count", [2, 3, pytest.param(4, marks=jobs.long)])
def test_the_suite_passes_on_ranks(count: int, tmp_path: Path) -> None:
    settings = init_methods(tmp_path)[count]
    # Addresses of files and of tcp carry the rank themselves.
    program = """
        import os, sys, pytest
        os.environ["DISTRIBUTED_SUITE"] = os.environ["DISTRIBUTED_SUITE"].format(rank=os.environ["RANK"])
        sys.exit(pytest.main(sys.argv[1:]))
    """
    # Training does not change with the number of ranks as collectives do.
    left_out = {2: [], 3: ["libraries"], 4: ["libraries", "training"]}[count]
    words = ["-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore"]
    words += [str(path) for path in sorted(SUITE.glob("test_*.py")) if path.stem.removeprefix("test_") not in left_out]
    outputs = run_ranks(count, [sys.executable, "-u", "-c", textwrap.dedent(program), *words], **settings)
    assert all(" passed" in output for output in outputs), outputs


def script(body: str) -> list[str]:
    """A program with the back end's usual imports."""
    prelude = """
        import os, signal, sys, threading, time
        from datetime import timedelta
        import pytest, torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
        import horo.torch
        torch.set_num_threads(1)
        rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    """
    return [sys.executable, "-u", "-c", textwrap.dedent(prelude) + textwrap.dedent(body)]


def test_groups_begin_and_end_as_they_should(tmp_path: Path) -> None:
    program = [sys.executable, "-u", str(SUITE.parent / "distributed_life.py"), str(tmp_path)]
    done = subprocess.run(
        program, env=environment(), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 12, done.stdout


def test_processes_of_mp_spawn_need_nothing_but_the_import(tmp_path: Path) -> None:
    program = tmp_path / "spawned.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import torch
            import torch.distributed as dist
            import torch.multiprocessing as mp
            import horo.torch

            def train(rank, size):
                where = "tcp://127.0.0.1:{jobs.free_port()}"
                dist.init_process_group("horo", init_method=where, rank=rank, world_size=size)
                value = torch.ones(2)
                dist.all_reduce(value)
                assert (value == size).all()
                if rank == 0:
                    print("transport", dist.group.WORLD.native_group.transport())

            if __name__ == "__main__":
                mp.spawn(train, (2,), 2)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(program)], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "transport shm" in done.stdout


def test_importing_does_no_work_and_tells_torch_of_the_back_end() -> None:
    body = """
        assert dist.is_backend_available("horo")
        assert "horo.torch.c10d.process_group" not in sys.modules
        from horo.torch.c10d import register
        register()
        from importlib.metadata import entry_points
        found = [one for one in entry_points(group="torch.distributed.backends") if one.name == "horo"]
        assert found and found[0].load() is register
        assert threading.active_count() == 1
    """
    run_ranks(1, script(body))


def test_a_job_has_its_process_group_beside_init_on_any_number_of_ranks() -> None:
    def body() -> None:
        import os
        import tempfile

        import torch
        import torch.distributed as dist

        import horo.torch as hvd

        hvd.init()
        where = hvd.broadcast_object(os.path.join(tempfile.mkdtemp(), "store") if hvd.rank() == 0 else None, 0)
        dist.init_process_group("horo", init_method=f"file://{where}", rank=hvd.rank(), world_size=hvd.size())
        ones = torch.ones(4)
        dist.all_reduce(ones)
        hvd.allreduce_(ones, op=hvd.Sum)
        assert ones.tolist() == [float(hvd.size() ** 2)] * 4
        dist.destroy_process_group()
        hvd.shutdown()
        os.write(1, b"went well\n")

    for count in (1, 2):
        assert jobs.launch(count, body).count("went well") == count
