"""This folder runs inside the ranks of a job: test_keras.py starts it on up to 3 of them, on each back end.

All ranks run the same tests in the same order. A rank that fails ends, and the others with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType

import pytest

if "KERAS_SUITE" not in os.environ:
    collect_ignore_glob = ["*"]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture(scope="session")
def _joined() -> Iterator[ModuleType]:
    import horo.keras

    if os.environ["KERAS_BACKEND"] == "tensorflow":
        import tensorflow as tf

        # So few that kernels which wait for other ranks would leave none.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    horo.keras.init()
    yield horo.keras
    horo.keras.shutdown()


@pytest.fixture
def hvd(_joined: ModuleType, request: pytest.FixtureRequest) -> ModuleType:
    """horo.keras, initialised, with all ranks in the same test."""
    here = request.node.name
    assert _joined.allgather_object(here, name="test") == [here] * _joined.size()
    return _joined
