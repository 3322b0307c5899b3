#!/usr/bin/env python3
"""Trains a network on 1 and on 2 ranks of this machine, and writes down how it went.

The network is that of examples/python/torch_digits.py. Needs the installed package, torch and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from charts import Curve, chart, page, table

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "examples" / "python" / "torch_digits.py"


@dataclass
class Outcome:
    ranks: int
    records: list[dict[str, Any]] = field(default_factory=list)

    def rates(self) -> list[float]:
        """Images per second of each rank, the median. The first epoch warms up, unless it is the only one."""
        late = [record["rates"] for record in self.records if record["epoch"] > 1] or [r["rates"] for r in self.records]
        return [statistics.median(column) for column in zip(*late, strict=True)]

    def total(self) -> float:
        return sum(self.rates())

    def share(self) -> float:
        return statistics.mean(record["share"] for record in self.records)

    def last(self, what: str) -> float:
        return next(record[what] for record in reversed(self.records) if what in record)

    def curve(self, what: str) -> Curve:
        points = [(record["seconds"], record[what]) for record in self.records if what in record]
        return Curve(plural(self.ranks), points)


def plural(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def program() -> str:
    found = shutil.which("horo", path=sysconfig.get_path("scripts")) or shutil.which("horo")
    if found is None:
        raise SystemExit("demo: the program horo is not installed; run: make demo")
    return found


def records_of(command: list[str], fifo: Path, variables: dict[str, str], log: Path) -> Iterator[dict[str, Any]]:
    """What rank 0 writes into `fifo`, as soon as it does. Raises SystemExit when the job fails."""
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    holder = os.open(fifo, os.O_WRONLY)  # So that there is no end of file before the job has opened it.
    with log.open("w") as output:
        job = subprocess.Popen(command, env={**os.environ, **variables}, stdout=output, stderr=output)
    rest = b""
    try:
        while True:
            ended = job.poll() is not None
            while select.select([reader], [], [], 0 if ended else 0.2)[0]:
                chunk = os.read(reader, 1 << 16)
                *lines, rest = (rest + chunk).split(b"\n")
                yield from map(json.loads, lines)
            if ended:
                break
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait(15)
        os.close(reader)
        os.close(holder)
    if job.returncode != 0:
        raise SystemExit(f"demo: the job ended with {job.returncode}:\n{log.read_text()}")


def bar(outcome: Outcome, epochs: int) -> str:
    record = outcome.records[-1]
    done = int(20 * record["epoch"] / epochs)
    rates = " + ".join(f"{rate:,.0f}" for rate in record["rates"])
    return (
        f"{plural(outcome.ranks):7} [{'#' * done}{'.' * (20 - done)}] epoch {record['epoch']:4.1f} of {epochs}, "
        f"{rates} images/s, loss {record['loss']:.3f}, communication {record['share']:.0%}"
    )


def train(ranks: int, args: argparse.Namespace, folder: Path, *flags: str, epochs: int) -> Outcome:
    outcome = Outcome(ranks)
    fifo = folder / f"records.{ranks}.{epochs}"
    command = [program(), "run", "-np", str(ranks), *flags, sys.executable, str(SCRIPT)]
    command += ["--epochs", str(epochs), "--batch-size", str(args.batch_size), "--width", str(args.width)]
    command += ["--seed", str(args.seed), "--record", str(fifo)]
    # As many threads for each rank in both runs, and waiting where it can be timed.
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    variables = {"OMP_NUM_THREADS": str(threads), "HORO_WAIT_IN_BACKWARD": "0"}
    interactive = sys.stdout.isatty() and not flags
    for record in records_of(command, fifo, variables, folder / f"log.{ranks}"):
        outcome.records.append(record)
        if interactive:
            print(f"\r{bar(outcome, epochs)}\x1b[K", end="", flush=True)
        elif "accuracy" in record and not flags:
            print(bar(outcome, epochs), flush=True)
    if interactive:
        print()
    return outcome


def record_timeline(args: argparse.Namespace, folder: Path) -> Path:
    """Of one epoch on two ranks: recording is not part of what is timed."""
    train(2, args, folder, "--timeline-filename", str(folder / "timeline.json"), epochs=1)
    merged = args.output / "timeline.json"
    command = [program(), "timeline", "merge", str(merged), *map(str, sorted(folder.glob("timeline*.json")))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return merged


def write_report(outcomes: list[Outcome], speedup: float, path: Path) -> None:
    rows = []
    for one in outcomes:
        rates = " + ".join(f"{rate:,.0f}" for rate in one.rates())
        rows.append([plural(one.ranks), f"{one.last('accuracy'):.1%}", f"{one.last('loss'):.4f}", rates])
        rows[-1].append(f"{one.share():.1%}")
    body = table(["", "accuracy", "loss", "images/s of each rank", "waiting for others"], rows)
    body += f"<p>Two ranks are {speedup:.2f} times as fast as one.</p>\n"
    body += chart("Loss", "seconds", [one.curve("loss") for one in outcomes])
    body += chart("Accuracy on images that were not trained on", "seconds", [one.curve("accuracy") for one in outcomes])
    speeds = []
    for one in outcomes:
        for rank in range(one.ranks):
            points = [(record["seconds"], record["rates"][rank]) for record in one.records]
            speeds.append(Curve(f"{plural(one.ranks)}, rank {rank}", points))
    body += chart("Images per second", "seconds", speeds)
    body += chart("Share of time spent waiting for others", "seconds", [one.curve("share") for one in outcomes])
    path.write_text(page("horo: digits on 1 and 2 ranks", body))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--width", type=int, default=64, help="channels of the network's first layer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "demo", help="folder for what is written")
    args = parser.parse_args()
    args.output = args.output.resolve()
    args.output.mkdir(parents=True, exist_ok=True)

    print(f"A convolutional network learns digits, {args.epochs} epochs, on one rank and then on two of this machine.")
    print(
        "Each rank computes gradients of its own share of the data; horo averages them, and all take the same step.\n"
    )
    with tempfile.TemporaryDirectory(prefix="horo-demo-") as name:
        folder = Path(name)
        outcomes = [train(ranks, args, folder, epochs=args.epochs) for ranks in (1, 2)]
        timeline = record_timeline(args, folder)
    speedup = outcomes[1].total() / outcomes[0].total()
    report = args.output / "report.html"
    write_report(outcomes, speedup, report)

    print()
    for one in outcomes:
        print(f"{plural(one.ranks):7} {one.last('accuracy'):.1%} of unseen images right, {one.total():,.0f} images/s")
    print(f"speed-up {speedup:.2f}\n")
    print(f"curves    {report}")
    print(f"timeline  {timeline}  (one epoch on two ranks; open it in chrome://tracing or ui.perfetto.dev)")
    print("\nWhat to try next:")
    print("  .venv/bin/horo run -np 2 .venv/bin/python examples/python/torch_vae.py --distributed_backend horo")
    print("  make demo-cpp    the same idea in C++; docs/migrate-from-horovod.md tells how to bring a script along")


if __name__ == "__main__":
    main()
