"""What tests of clusters let the ranks of elastic jobs do."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

import horo
import horo.elastic


def train_elastically(goes_on: Callable[[Any], bool]) -> dict[str, Any]:
    """Adds one to all weights at each step, however many ranks there are. No step may be lost or done twice."""
    horo.init()
    pause = threading.Event()

    def train(state: Any) -> None:
        while goes_on(state):
            total = horo.allreduce(np.ones(100), op=horo.Sum, name="ones")
            state.weights += total / horo.size()
            state.sizes.append(horo.size())
            state.step += 1
            state.commit()
            pause.wait(0.01)

    state = horo.elastic.ObjectState(
        lambda obj: horo.broadcast_object(obj, 0), horo.rank, step=0, weights=np.zeros(100), sizes=[]
    )
    horo.elastic.run_fn(train)(state)
    assert (state.weights == state.step).all(), (state.step, state.weights)
    assert len(state.sizes) == state.step
    sizes = [size for size, _ in groupby(state.sizes)]
    return {"seat": int(os.environ["HORO_SEAT"]), "rank": horo.rank(), "step": state.step, "sizes": sizes}


def die_in_seat_1(state: Any) -> None:
    if state.step == 5 and os.environ["HORO_SEAT"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
