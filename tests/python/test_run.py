"""horo.run(): a function on every rank."""

from __future__ import annotations

import inspect
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import horo
from horo import job, pickling

LIMIT_SECONDS = 90


def identify(base: int, scale: int = 1) -> tuple[int, int, float]:
    import numpy as np

    horo.init()
    total = horo.allreduce(np.array([base + horo.rank()], np.int64), op=horo.Sum, name="total")
    return horo.rank(), horo.size(), int(total[0]) * scale


class OddError(Exception):
    """Cannot be made again from its arguments alone."""

    def __init__(self, number: int, word: str) -> None:
        super().__init__(f"{number} {word}")
        self.number = number


class LockedError(Exception):
    def __init__(self) -> None:
        super().__init__("held")
        self.lock = threading.Lock()


def fail_on(culprit: int, how: str) -> int:
    """The others wait for the culprit in an operation."""
    import numpy as np

    horo.init()
    if horo.rank() == culprit:
        print(f"the last words of rank {culprit}", flush=True)
        if how == "raise":
            raise KeyError("lost the key")
        if how == "odd":
            raise OddError(7, "seven")
        if how == "locked":
            raise LockedError()
        if how == "exit":
            os._exit(7)
        if how == "sys.exit":
            sys.exit(9)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    horo.allreduce(np.ones(4), name="never")
    return 0


def test_results_come_in_the_order_of_ranks() -> None:
    assert horo.run(identify, args=(10,), kwargs={"scale": 2}, num_proc=3) == [(rank, 3, 66) for rank in range(3)]


def test_lambdas_and_closures_go_by_value() -> None:
    word = "closed over"
    assert horo.run(lambda n: (word, n, os.environ["HORO_RANK"]), args=(5,), num_proc=2) == [
        ("closed over", 5, "0"),
        ("closed over", 5, "1"),
    ]


def test_large_arguments_and_results_travel() -> None:
    blob = os.urandom(5_000_000)
    assert horo.run(lambda data: data[::-1], args=(blob,), num_proc=2) == [blob[::-1]] * 2


def test_an_exception_is_raised_here_with_its_rank_and_traceback() -> None:
    with pytest.raises(KeyError, match="lost the key") as caught:
        horo.run(fail_on, args=(1, "raise"), num_proc=3)
    cause = caught.value.__cause__
    assert isinstance(cause, horo.RankTraceback)
    assert cause.rank == 1
    assert "in fail_on" in cause.traceback
    shown = "".join(traceback.format_exception(caught.value))
    assert "raised by rank 1" in shown
    assert 'raise KeyError("lost the key")' in shown


def test_an_exception_that_cannot_be_brought_here_is_described() -> None:
    for how, words in (("odd", "OddError: 7 seven"), ("locked", "LockedError: held")):
        with pytest.raises(horo.RankFailedError, match=words) as caught:
            horo.run(fail_on, args=(0, how), num_proc=2)
        assert caught.value.rank == 0
        assert "in fail_on" in caught.value.__cause__.traceback


def test_a_rank_that_dies_is_named_with_its_end_and_last_lines(capfd: pytest.CaptureFixture[str]) -> None:
    ends = {"exit": (7, 0, "exit code 7"), "kill": (0, 9, "SIGKILL")}
    for how, (code, number, words) in ends.items():
        with pytest.raises(horo.RankFailedError, match=words) as caught:
            horo.run(fail_on, args=(1, how), num_proc=2)
        assert (caught.value.rank, caught.value.exit_code, caught.value.signal) == (1, code, number)
        assert "the last words of rank 1" in str(caught.value)
    assert "[1]<stdout>:the last words of rank 1" in capfd.readouterr().out


def test_a_rank_that_exits_is_named() -> None:
    with pytest.raises(horo.RankFailedError, match=r"rank 1 called sys.exit\(9\)") as caught:
        horo.run(fail_on, args=(1, "sys.exit"), num_proc=2)
    assert (caught.value.rank, caught.value.exit_code) == (1, 9)
    with pytest.raises(horo.RankFailedError, match=r"rank 0 called sys.exit\(None\)"):
        horo.run(sys.exit)


def test_a_result_that_cannot_be_pickled_is_an_error_of_its_rank() -> None:
    with pytest.raises(TypeError, match="cannot be pickled") as caught:
        horo.run(threading.Lock, num_proc=1)
    assert caught.value.__cause__.rank == 0


def test_output_appears_where_sys_stdout_leads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # Else the launcher has something to say.
    # capsys has no descriptor, as in a notebook.
    horo.run(lambda: print("out", os.environ["HORO_RANK"]) or print("err", file=sys.stderr), num_proc=2)
    seen = capsys.readouterr()
    assert sorted(seen.out.splitlines()) == ["[0]<stdout>:out 0", "[1]<stdout>:out 1"]
    assert sorted(seen.err.splitlines()) == ["[0]<stderr>:err", "[1]<stderr>:err"]


def test_the_call_lies_where_only_this_user_can_read_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = {}
    before = job._run_launcher

    def look(command: list[str]) -> tuple[int, str]:
        folder = Path(next(word for word in command if word.startswith("--result-folder=")).split("=", 1)[1])
        outcome = before(command)
        seen.update({path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]})
        return outcome

    monkeypatch.setattr(job, "_run_launcher", look)
    assert horo.run(os.getppid, num_proc=1)
    assert all(mode & 0o077 == 0 for mode in seen.values()), seen
    assert {"call", "rank.0", "outcome.json"} < set(seen)
    assert list(tmp_path.iterdir()) == [], "nothing stays behind"


def test_without_cloudpickle_names_still_work_and_the_rest_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickling, "cloudpickle_module", lambda: None)
    assert horo.run(os.getcwd, num_proc=1) == [os.getcwd()]
    # A module that only this process's sys.path has: the path goes along.
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert len(horo.run(identify, args=(1,), num_proc=1)) == 1
    with pytest.raises(ValueError, match="pip install cloudpickle"):
        horo.run(lambda: 1)
    monkeypatch.setattr(identify, "__module__", "__main__")
    with pytest.raises(ValueError, match="pip install cloudpickle"):
        horo.run(identify, args=(1,))


def test_the_signature_is_horovods() -> None:
    words = """
        func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile
        host_discovery_script start_timeout ssh_port ssh_identity_file disable_cache output_filename verbose use_gloo
        use_mpi mpi_args network_interface network_interfaces executable np min_np max_np"""
    parameters = inspect.signature(horo.run).parameters
    names = list(parameters)
    assert names == words.split()
    assert parameters["args"].default == ()
    assert parameters["num_proc"].default == 1
    assert all(parameters[name].default is None for name in names[4:])


def test_old_names_work() -> None:
    with pytest.warns(DeprecationWarning, match="num_proc"):
        assert horo.run(os.getcwd, np=2) == [os.getcwd()] * 2
    with pytest.warns(DeprecationWarning, match="network_interfaces"):
        assert horo.run(os.getcwd, network_interface="lo") == [os.getcwd()]


def test_use_mpi_changes_nothing_and_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    assert horo.run(os.getcwd, num_proc=2, use_mpi=True, mpi_args="--x") == [os.getcwd()] * 2
    said = capfd.readouterr().err
    assert "--mpi changes nothing" in said
    assert "--mpi-args changes nothing" in said


def test_elastic_arguments_reach_the_launcher() -> None:
    variables = horo.run(
        lambda: [os.environ[name] for name in ("HORO_SEAT", "HORO_ELASTIC_MIN_RANKS", "HORO_ELASTIC_MAX_RANKS")],
        num_proc=2,
        max_num_proc=3,
        host_discovery_script="echo localhost",
        slots=5,
        cooldown_range=(1, 5),
    )
    assert variables == [["0", "2", "3"], ["1", "2", "3"], ["2", "2", "3"]]
    with pytest.raises(ValueError, match="pair of seconds"):
        horo.run(os.getcwd, min_num_proc=1, cooldown_range=(1,))
    with pytest.raises(ValueError, match="not above the second"):
        horo.run(os.getcwd, min_num_proc=1, cooldown_range=(5, 1))
    with pytest.raises(ValueError, match="code 3"):
        horo.run(os.getcwd, host_discovery_script="exit 3")


def die_or(survive: Callable[[], object]) -> int:
    if os.environ["HORO_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    survive()
    return int(os.environ["HORO_RANK"])


def test_of_an_elastic_job_those_return_that_are_left() -> None:
    assert horo.run(die_or, (os.getcwd,), num_proc=3, min_num_proc=2) == [0, 2]
    with pytest.raises(horo.RankFailedError) as caught:
        horo.run(die_or, (signal.pause,), num_proc=3, min_np=3, reset_limit=5)
    assert (caught.value.rank, caught.value.signal) == (1, signal.SIGKILL)


def test_arguments_reach_the_launcher(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    ranks = horo.run(
        lambda: os.environ["HORO_LOCAL_SIZE"],
        num_proc=2,
        hostfile=str(tmp_path / "hosts"),
        output_filename=str(tmp_path / "logs"),
        start_timeout=20,
        verbose=1,
        use_gloo=True,
        disable_cache=True,
        mpi_args="-x Y",
        network_interfaces=["lo"],
    )
    assert ranks == ["2", "2"]
    assert (tmp_path / "logs" / "rank.1" / "stdout").exists()
    said = capfd.readouterr().err
    assert "through:" in said
    for flag in ("--gloo", "--disable-cache", "--mpi-args"):
        assert f"{flag} changes nothing" in said
    with pytest.raises(ValueError, match="exclude each other"):
        horo.run(os.getcwd, hosts="localhost:1", hostfile=str(tmp_path / "hosts"))
    with pytest.raises(ValueError, match="hosts offer 2"):
        horo.run(os.getcwd, num_proc=3, hosts="localhost:2")
    with pytest.raises(ValueError, match="num_proc"):
        horo.run(os.getcwd, num_proc=0)


def test_the_executable_is_honoured(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nMARK=seen exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    assert horo.run(lambda: os.environ.get("MARK"), executable=str(other)) == ["seen"]
    with pytest.raises(horo.RankFailedError, match="did not start") as caught:
        horo.run(os.getcwd, executable=str(tmp_path / "absent"))
    assert caught.value.exit_code == 127


def run_script(body: Callable[[], None] | str, tmp_path: Path, **popen: object) -> subprocess.Popen[str]:
    source = body if isinstance(body, str) else textwrap.dedent(inspect.getsource(body)) + f"\n{body.__name__}()\n"
    script = tmp_path / "program.py"
    script.write_text(source)
    return subprocess.Popen(
        [sys.executable, script], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen
    )


def test_functions_and_classes_of_a_script_are_its_own_again(tmp_path: Path) -> None:
    script = """
        import horo

        class Mine(Exception):
            pass

        class Point:
            def __init__(self, x): self.x = x

        def work(x):
            horo.init()
            if x < 0: raise Mine(x)
            return Point(x * horo.rank())

        if __name__ == "__main__":
            points = horo.run(work, (3,), num_proc=2)
            assert [type(point) for point in points] == [Point, Point], points
            assert [point.x for point in points] == [0, 3]
            try:
                horo.run(work, (-1,), num_proc=2)
            except Mine as error:
                print("mine", error, error.__cause__.rank in (0, 1))
    """
    done = run_script(textwrap.dedent(script), tmp_path)
    out, err = done.communicate(timeout=LIMIT_SECONDS)
    assert done.returncode == 0, err
    assert "mine -1 True" in out


def test_ctrl_c_and_the_callers_death_end_the_ranks(tmp_path: Path) -> None:
    def program() -> None:
        import os
        import signal
        import sys

        import horo

        def wait(folder: str) -> None:
            rank = os.environ["HORO_RANK"]
            with open(f"{folder}/{rank}.new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(f"{folder}/{rank}.new", f"{folder}/{rank}.pid")
            signal.pause()

        try:
            horo.run(wait, (os.path.dirname(sys.argv[0]),), num_proc=2)
        except KeyboardInterrupt:
            print("interrupted")

    for number in (signal.SIGINT, signal.SIGKILL):
        folder = tmp_path / str(int(number))
        folder.mkdir()
        # A shell would have ignored Ctrl-C for what it runs in the background.
        done = run_script(program, folder, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        files = [folder / "0.pid", folder / "1.pid"]
        until(lambda files=files: all(file.exists() for file in files))
        ranks = [int(file.read_text()) for file in files]
        done.send_signal(number)
        out, _ = done.communicate(timeout=LIMIT_SECONDS)
        assert ("interrupted" in out) == (number == signal.SIGINT)
        until(lambda ranks=ranks: not any(Path(f"/proc/{rank}").exists() for rank in ranks))


def until(condition: Callable[[], bool]) -> None:
    gone = threading.Event()
    for _ in range(LIMIT_SECONDS * 100):
        if condition():
            return
        gone.wait(0.01)
    raise AssertionError("it never came true")
