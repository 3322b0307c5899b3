"""The back end "horo" of torch.distributed: its suite on 2, 3 and 4 ranks, how it boots and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
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
    return {**inherited, "OMP_NUM_THREADS": "1", **settings}


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
    """How the groups of each size come together."""
    port = str(jobs.free_port())
    return {
        2: {"DISTRIBUTED_SUITE": f"file://{tmp_path}/store?rank={{rank}}&world_size=2"},
        3: {"DISTRIBUTED_SUITE": f"tcp://127.0.0.1:{port}?rank={{rank}}&world_size=3"},
        4: {"DISTRIBUTED_SUITE": "env://", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
    }


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_suite_passes_on_ranks(count: int, tmp_path: Path) -> None:
    settings = init_methods(tmp_path)[count]
    # Addresses of files and of tcp carry the rank themselves.
    program = """
        import os, sys, pytest
        os.environ["DISTRIBUTED_SUITE"] = os.environ["DISTRIBUTED_SUITE"].format(rank=os.environ["RANK"])
        sys.exit(pytest.main(sys.argv[1:]))
    """
    words = ["-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore", str(SUITE)]
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


def test_a_group_can_be_destroyed_and_made_again(tmp_path: Path) -> None:
    body = f"""
        for round in range(3):
            dist.init_process_group("horo", init_method="file://{tmp_path}/store", rank=rank, world_size=size)
            value = torch.ones(1)
            dist.all_reduce(value)
            assert value == size
            group = dist.new_group([0, 1])
            dist.barrier(group)
            dist.destroy_process_group()
            assert not dist.is_initialized()
            try:
                group.barrier()
                raise SystemExit("a destroyed group went on")
            except RuntimeError as error:
                assert "destroyed" in str(error), error
    """
    run_ranks(2, script(body))


def test_it_stands_beside_another_back_end_and_beside_horo_itself(tmp_path: Path) -> None:
    body = f"""
        import horo
        dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=rank, world_size=size)
        first, second = dist.new_group(backend="horo"), dist.new_group([0, 1], backend="horo")
        os.environ.update(HORO_RANK=str(rank), HORO_SIZE=str(size), HORO_INTERFACE="127.0.0.1")
        horo.init()
        value = torch.full((1000,), float(rank))
        works = [dist.all_reduce(value, group=first, async_op=True)]
        horo.allreduce(value.numpy() * 0, name="named")
        works[0].wait()
        dist.all_reduce(value, group=second)
        dist.all_reduce(value)
        assert (value == 4).all(), value
        assert first.engine is not second.engine
        horo.shutdown()
        dist.destroy_process_group()
    """
    run_ranks(2, script(body), HORO_STORE=f"127.0.0.1:{jobs.free_port()}")


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


def test_hosts_that_differ_meet_at_an_address_of_rank_0() -> None:
    body = """
        os.environ["HORO_HOST_ID"] = f"host{rank}"
        dist.init_process_group("horo")
        value = torch.ones(5)
        dist.all_reduce(value)
        assert (value == size).all()
        assert dist.group.WORLD.native_group.transport() == "tcp"
        got = torch.zeros(100_000)
        if rank == 0:
            dist.send(torch.ones(100_000), 1)
        else:
            dist.recv(got, 0)
            assert (got == 1).all()
        dist.destroy_process_group()
    """
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(jobs.free_port()), "HORO_INTERFACE": "lo"}
    run_ranks(2, script(body), **settings)


def test_the_key_is_taken_out_of_the_store_and_nothing_else_may_join() -> None:
    body = """
        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0)
        dist.init_process_group("horo", store=store, rank=rank, world_size=size)
        dist.barrier()
        keys = [key for key in store.list_keys() if "meeting" in str(key)] if hasattr(store, "list_keys") else []
        assert not keys, keys
        dist.destroy_process_group()
    """
    run_ranks(2, script(body), MASTER_PORT=str(jobs.free_port()))


def test_a_killed_rank_ends_collectives_and_messages_of_the_others() -> None:
    body = """
        dist.init_process_group("horo")
        group = dist.new_group([1, 2])
        dist.barrier()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        waits = [
            lambda: dist.all_reduce(torch.ones(10)),
            lambda: dist.recv(torch.ones(1), 0),
            lambda: dist.recv(torch.ones(1), tag=9),
            lambda: dist.send(torch.ones(1_000_000), 0),
            lambda: dist.all_reduce(torch.ones(10), async_op=True).get_future().wait(),
        ]
        began = time.monotonic()
        for wait in waits:
            try:
                wait()
                raise SystemExit("it went on without rank 0")
            except RuntimeError as error:
                assert "rank 0" in str(error), error
        assert time.monotonic() - began < 5
        # Those of the others go on.
        got = torch.zeros(1)
        if rank == 1:
            dist.send(torch.ones(1), 2)
        else:
            dist.recv(got, 1)
            assert got == 1
        dist.destroy_process_group()
    """
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(jobs.free_port())}
    ranks = [
        subprocess.Popen(
            script(body),
            env=environment(RANK=str(rank), WORLD_SIZE="3", **settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    job = jobs.Job(ranks)
    codes = job.wait(60)
    assert codes[1:] == [0, 0], job.outputs
    assert codes[0] == -9


def test_what_takes_too_long_ends_with_the_timeout_of_the_group(tmp_path: Path) -> None:
    body = f"""
        dist.init_process_group(
            "horo", init_method="file://{tmp_path}/store", rank=rank, world_size=size, timeout=timedelta(seconds=20)
        )
        quick = dist.new_group(timeout=timedelta(seconds=0.5))
        dist.barrier()
        if rank == 0:
            for wait in (
                lambda: dist.recv(torch.ones(1), 1, group=quick),
                lambda: dist.all_reduce(torch.ones(1), group=quick),
            ):
                began = time.monotonic()
                try:
                    wait()
                    raise SystemExit("it did not time out")
                except RuntimeError as error:
                    assert "Timed out" in str(error), error
                assert 0.3 < time.monotonic() - began < 5
        dist.barrier()
        dist.destroy_process_group()
    """
    run_ranks(2, script(body))


def test_an_aborted_group_ends_on_all_ranks_and_can_be_made_again(tmp_path: Path) -> None:
    body = f"""
        from torch.distributed import distributed_c10d as c10d
        where = "file://{tmp_path}/store"
        dist.init_process_group("horo", init_method=where, rank=rank, world_size=size)
        dist.barrier()
        work = dist.all_reduce(torch.ones(3), async_op=True) if rank == 0 else None
        if rank == 0:
            c10d._abort_process_group()
            try:
                work.wait()
                raise SystemExit("an aborted collective succeeded")
            except RuntimeError as error:
                pass
        else:
            try:
                dist.recv(torch.ones(1), 0)
                raise SystemExit("a message of an aborted group came")
            except RuntimeError as error:
                pass
            c10d._abort_process_group()
        dist.init_process_group("horo", init_method=where, rank=rank, world_size=size)
        dist.barrier()
        dist.destroy_process_group()
    """
    run_ranks(2, script(body))


def test_ctrl_c_ends_a_wait() -> None:
    body = """
        dist.init_process_group("horo")
        dist.barrier()
        if rank == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
            began = time.monotonic()
            try:
                dist.recv(torch.ones(1), 1)
                raise SystemExit("it came")
            except KeyboardInterrupt:
                assert time.monotonic() - began < 5
            dist.send(torch.ones(1), 1, tag=3)
        else:
            dist.recv(torch.ones(1), 0, tag=3)
        dist.destroy_process_group()
    """
    run_ranks(2, script(body), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(jobs.free_port()))


def test_a_program_may_end_without_destroying_its_group() -> None:
    body = """
        dist.init_process_group("horo")
        work = dist.all_reduce(torch.ones(3), async_op=True)
        future = work.get_future()
        future.wait()
        pending = dist.irecv(torch.ones(1), 1 - rank).get_future()
        print("the end")
    """
    began = time.monotonic()
    outputs = run_ranks(2, script(body), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(jobs.free_port()))
    assert all("the end" in output and "Traceback" not in output for output in outputs), outputs
    assert time.monotonic() - began < 60


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
