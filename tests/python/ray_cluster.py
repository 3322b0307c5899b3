"""A Ray cluster for tests: two nodes of this machine, on loopback, with a folder of its own, gone at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

CPUS = 2  # Of each node.


@contextlib.contextmanager
def ray_cluster() -> Iterator[str]:
    """Its address; this process is connected to it."""
    folder = Path(tempfile.mkdtemp(prefix="horo-ray-"))  # Short: sockets lie in it.
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    settings = {
        "RAY_TMPDIR": str(folder),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Addresses stay those of loopback.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # Of 15 by default, behind whatever else runs here.
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HORO_", "HOROVOD_"))}
    with mock.patch.dict(os.environ, {**inherited, **settings}, clear=True):
        try:
            yield from _running()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _running() -> Iterator[str]:
    from ray._raylet import Config
    from ray.cluster_utils import Cluster

    # Ray has read its settings when it was imported.
    Config.initialize("")
    with mock.patch("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False):
        yield from _nodes(Cluster())


def _nodes(cluster: Any) -> Iterator[str]:
    import ray

    node = {
        "num_cpus": CPUS,
        "num_gpus": CPUS,  # Nobody looks whether they are there.
        "node_ip_address": "127.0.0.1",
        "object_store_memory": 80 << 20,
        "include_dashboard": False,
    }
    try:
        for _ in range(2):
            cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()
