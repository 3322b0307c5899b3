"""Whoever reaches a socket of a job and has no key: nothing of what he sends is run, and the job goes on."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import jobs
import pytest
import strangers

import horo


def test_the_canary_appears_when_a_request_is_unpickled(tmp_path: Path) -> None:
    """Or the tests below could not fail."""
    canary = tmp_path / "canary"
    blob = strangers.requests(str(canary))["pickle, protocol 4"][0]
    pickle.loads(blob)
    assert canary.is_dir()


def test_all_listening_sockets_of_a_process_are_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as inet, socket.socket(socket.AF_UNIX) as unix:
        name = f"horo-test-{os.getpid()}"
        unix.bind("\0" + name)
        unix.listen()
        found = {door.address for door in strangers.doors_of(os.getpid())}
        assert {f"127.0.0.1:{inet.getsockname()[1]}", f"@{name}"} <= found
        if socket.has_dualstack_ipv6():
            with socket.create_server(("::1", 0), family=socket.AF_INET6) as six:
                assert f"::1:{six.getsockname()[1]}" in {door.address for door in strangers.doors_of(os.getpid())}


@pytest.mark.parametrize("flags", [(), ("--metrics-port", "PORT", "--min-np", "1")], ids=["plain", "elastic, metrics"])
def test_a_job_of_horo_run_goes_on_among_strangers(flags: tuple[str, ...], tmp_path: Path) -> None:
    port = str(jobs.free_port(2))
    script = (
        f"import sys, json; sys.path.insert(0, {str(Path(__file__).parent)!r}); import strangers\n"
        f"result = strangers.go_on_among_strangers({str(tmp_path)!r})\n"
        "import horo; print('RESULT', json.dumps(result), flush=True)\n"
    )
    words = [port if flag == "PORT" else flag for flag in flags]
    done = subprocess.run(
        [jobs.launcher(), "run", "-np", "2", *words, sys.executable, "-u", "-c", script],
        capture_output=True,
        text=True,
        timeout=jobs.LIMIT_SECONDS * 2,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ":RESULT " in line]
    results = [json.loads(line.partition(":RESULT ")[2]) for line in sorted(lines)]
    assert len(results) == 2, done.stdout
    assert len(results[0]["metrics"]) == (2 if flags else 0), done.stderr
    # A tcp and a Unix socket of each rank, and the store in the launcher.
    strangers.expect_unharmed(results, 5 + (2 if flags else 0))
    assert not (tmp_path / "canary").exists()


def test_a_job_of_the_function_run_goes_on_among_strangers(tmp_path: Path) -> None:
    strangers.expect_unharmed(horo.run(strangers.go_on_among_strangers, args=(str(tmp_path),), num_proc=2), 5)
    assert not (tmp_path / "canary").exists()
