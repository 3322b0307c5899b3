"""This folder runs inside the ranks of a process group: test_torch_distributed.py starts it on 2, 3 and 4 of them.

All ranks run the same tests in the same order. A rank that fails ends, and the others with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

if "DISTRIBUTED_SUITE" not in os.environ:
    collect_ignore_glob = ["*"]
else:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "torch"))  # values.py


@pytest.fixture(scope="session")
def _joined() -> Iterator[ModuleType]:
    import torch
    import torch.distributed as dist

    import horo.torch  # noqa: F401  Registers the back end.

    torch.set_num_threads(1)
    dist.init_process_group("horo", init_method=os.environ["DISTRIBUTED_SUITE"], timeout=timedelta(seconds=60))
    yield dist
    dist.destroy_process_group()


@pytest.fixture
def dist(_joined: ModuleType, request: pytest.FixtureRequest) -> ModuleType:
    """torch.distributed, initialised with the back end, with all ranks in the same test."""
    here = request.node.name
    names: list[str | None] = [None] * _joined.get_world_size()
    _joined.all_gather_object(names, here)
    assert names == [here] * _joined.get_world_size()
    return _joined


@pytest.fixture
def rank(dist: ModuleType) -> int:
    return dist.get_rank()


@pytest.fixture
def size(dist: ModuleType) -> int:
    return dist.get_world_size()
