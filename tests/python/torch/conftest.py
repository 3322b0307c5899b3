"""This folder runs inside the ranks of a job: test_torch.py starts it on 1, 2, 3 and 4 of them.

All ranks run the same tests in the same order. A rank that fails ends, and the others with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType

import pytest

if "TORCH_SUITE" not in os.environ:
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def _joined() -> Iterator[ModuleType]:
    import torch

    import horo.torch

    torch.set_num_threads(1)
    horo.torch.init()
    yield horo.torch
    horo.torch.shutdown()


@pytest.fixture
def hvd(_joined: ModuleType, request: pytest.FixtureRequest) -> ModuleType:
    """horo.torch, initialised, with all ranks in the same test."""
    here = request.node.name
    assert _joined.allgather_object(here, "test") == [here] * _joined.size()
    return _joined


@pytest.fixture
def compiler(hvd: ModuleType) -> None:
    """For tests of compiled models."""
    if hvd.size() != 2 and not os.environ.get("LONG_TESTS"):
        pytest.skip("compiled models run on two ranks; on others make test-all: each imports the compiler for seconds")
