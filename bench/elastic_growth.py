"""How long a process that enters a running job takes until it trains: `python bench/elastic_growth.py --rounds 9`.

Two ranks train on this host with a state of --mib MiB, committing after every step. In each round one process comes
to the door, enters, and leaves again. Two times are taken on its own clock: from the call of init(), which waits until
the others have committed and take it in, to the end of its first step; and of that the part after it is in, which is
for the state. And on the clock of rank 1, who neither comes nor gives the state: from the end of its last step before
somebody enters or leaves to the call of its training function, where it goes on, and to the end of its first step with
the others, which in this bench has nothing to compute and so waits for the newcomer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def train(folder: Path, mib: int) -> None:
    import numpy as np

    import horo
    import horo.elastic
    from horo.resize import is_newcomer, own_seat

    asked = time.monotonic()
    horo.init()
    entered = time.monotonic()
    times: list[float] = []
    last = [0.0, 0.0]  # The end of the last step, and the size then.
    pauses: list[tuple[bool, float, float]] = []  # Whether the job grew, and how long.

    class Weights(horo.elastic.ObjectState):
        """An array that is saved, restored and synchronised in place, as models are."""

        def __init__(self) -> None:
            self.weights = np.zeros(mib << 18, np.float32)
            self.saved = self.weights.copy()
            super().__init__(lambda obj: horo.broadcast_object(obj, 0), horo.rank, step=0)

        def save(self) -> None:
            self.saved[:] = self.weights
            super().save()

        def restore(self) -> None:
            self.weights[:] = self.saved
            super().restore()

        def sync(self) -> None:
            self._give(horo.global_process_set)
            self._share()

        def _gives(self) -> bool:
            return True

        def _share(self) -> None:
            super().sync()

        def _give(self, process_set: horo.ProcessSet) -> None:
            horo.broadcast_(self.weights, 0, name="weights", process_set=process_set)
            self.saved[:] = self.weights

        def _contents(self) -> list[np.ndarray]:
            return [self.saved]

    def steps(state: Weights) -> None:
        began = time.monotonic()
        while True:
            told = np.array([(folder / "stop").exists()], np.int32)
            if horo.broadcast(told, 0, name="told")[0]:
                return
            state.weights += horo.allreduce(np.ones(1, np.float32), name="one")[0]
            now = time.monotonic()
            if last[1] == 0:
                (folder / f"seat{own_seat()}.trains").touch()
            elif last[1] != horo.size():
                pauses.append((horo.size() > last[1], began - last[0], now - last[0]))
                (folder / f"seat{own_seat()}.pause{len(pauses)}").touch()
            last[:] = now, horo.size()
            if is_newcomer() and not times:
                times.extend([now - asked, now - entered])
                path = folder / f"seat{own_seat()}"
                path.with_suffix(".new").write_text(f"{times[0]} {times[1]}")
                path.with_suffix(".new").rename(path)
            state.step += 1
            state.commit()

    horo.elastic.run_fn(steps)(Weights())
    if own_seat() == 1:
        (folder / "pauses").write_text("\n".join(f"{int(grew)} {held} {still}" for grew, held, still in pauses))


def start(folder: Path, address: str, mib: int, seat: int, rank: int | None) -> subprocess.Popen[bytes]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("HORO_", "HOROVOD_"))}
    place = {} if rank is None else {"HORO_RANK": str(rank), "HORO_SIZE": "2"}
    job = {"HORO_SEAT": str(seat), "HORO_STORE": address, "HORO_JOB_ID": "growth", "HORO_KEY_FILE": str(folder / "key")}
    words = [sys.executable, __file__, "--folder", str(folder), "--mib", str(mib)]
    return subprocess.Popen(words, env={**known, **place, **job}, stderr=subprocess.DEVNULL)


def wait_for(path: Path, writer: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            writer.wait(0.01)
            end = 0.0
        if time.monotonic() > end:
            raise SystemExit(f"nobody wrote {path.name}")


def measure(rounds: int, mib: int) -> dict[str, list[float]]:
    """Seconds."""
    from horo._horo import Store

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key = secrets.token_bytes(32)
        (folder / "key").touch(0o600)
        (folder / "key").write_bytes(key)
        store = Store("127.0.0.1:0", "growth", key)
        processes = [start(folder, store.address, mib, rank, rank) for rank in range(2)]
        wait_for(folder / "seat0.trains", processes[0])
        taken = []
        for seat in range(2, 2 + rounds):
            newcomer = start(folder, store.address, mib, seat, None)
            processes.append(newcomer)
            wait_for(folder / f"seat{seat}", newcomer)
            first, second = map(float, (folder / f"seat{seat}").read_text().split())
            taken.append((first, second))
            store.ask_to_leave(seat, "its round is over")
            newcomer.wait(60)
            wait_for(folder / f"seat0.pause{2 * len(taken)}", processes[0])  # The others train again.
        (folder / "stop").touch()
        for process in processes:
            process.wait(60)
        pauses = [line.split() for line in (folder / "pauses").read_text().splitlines()]
        return {
            "from init() to the end of the first step": [one for one, _ in taken],
            "of that with the job, for the state": [one for _, one in taken],
            "the others go on when one enters after": [float(held) for grew, held, _ in pauses if grew == "1"],
            "and have made a step with it after": [float(still) for grew, _, still in pauses if grew == "1"],
            "the others make a step when one leaves after": [float(still) for grew, _, still in pauses if grew == "0"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.folder is not None:
        return train(chosen.folder, chosen.mib)
    for index, (what, taken) in enumerate(measure(chosen.rounds, chosen.mib).items()):
        p50, most = 1000 * statistics.median(taken), 1000 * max(taken)
        aim = " (aim: max 500)" if index == 0 else ""
        print(f"{chosen.mib} MiB, {what}: p50 {p50:.0f} ms, max {most:.0f} ms{aim}")
    return None


if __name__ == "__main__":
    main()
