"""A job that grows from two ranks to four while it trains, and shrinks back.

echo localhost:2 > hosts
horo run -np 2 --min-np 1 --host-discovery-script "cat hosts" python examples/python/elastic_resize.py hosts

The launcher runs the script again and again. Whoever manages the machines would change the list; here rank 0 does, so
that one command shows everything: twenty steps with two ranks, twenty with four, twenty with two.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import horo
import horo.elastic

SIZES = (2, 4, 2)
STEPS_EACH = 20


def offer(slots: int, path: Path) -> None:
    """As one change, so that the script never sees half of it."""
    other = path.with_suffix(".new")
    other.write_text(f"localhost:{slots}\n")
    other.rename(path)


def main() -> None:
    hosts = Path(sys.argv[1])
    horo.init()
    target = np.arange(8.0)

    def train(state: horo.elastic.ObjectState) -> None:
        while state.stage < len(SIZES):
            gradient = horo.allreduce(state.weights - target, name="gradient")
            state.weights -= 0.01 * gradient
            state.sizes = [*state.sizes, horo.size()]
            # Steps count once the job has the size of its stage; until then training goes on with whom there is.
            state.steps += horo.size() == SIZES[state.stage]
            if state.steps == STEPS_EACH:
                state.stage, state.steps = state.stage + 1, 0
                if horo.rank() == 0 and state.stage < len(SIZES):
                    offer(SIZES[state.stage], hosts)
            state.commit()  # Here processes enter and leave.

    state = horo.elastic.ObjectState(
        lambda obj: horo.broadcast_object(obj, 0), horo.rank, stage=0, steps=0, sizes=[], weights=np.zeros(8)
    )
    horo.elastic.run_fn(train)(state)
    weights = horo.allgather_object(state.weights.tobytes())
    assert all(one == weights[0] for one in weights)
    if horo.rank() == 0:
        story = [size for size, before in zip(state.sizes, [0, *state.sizes], strict=False) if size != before]
        print("sizes:", " -> ".join(map(str, story)), f"in {len(state.sizes)} steps, all equal")
    print(f"seat {os.environ.get('HORO_SEAT')} ends as rank {horo.rank()} of {horo.size()}")


if __name__ == "__main__":
    main()
