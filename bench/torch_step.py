"""One training step: without communication, with horo's DistributedOptimizer and DistributedDataParallel (with and
without gradients as views of the buckets), and with torch's DDP over gloo, and over gloo with its buckets over horo.

    OMP_NUM_THREADS=1 horo run -np 2 python bench/torch_step.py --json build/torch_step.json

All variants run in the same processes, in turns, in every round. "none" is the same step at the same
time, without communication. The overhead of a variant is its time less that of "none" in the same round.

A turn is a second: single steps of any variant may take 10 ms more, and in turns of a few steps that is in the median.

Allocators are told to keep the memory that is freed: the C library's, and mimalloc, which torch has on aarch64.
Otherwise they give back what happens to lie at the end of a heap, or is not used for 10 ms, and that variant alone pays
for new pages: a gradient of 25 MB is 6104 page faults, 15 ms on a virtual machine.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")  # Read when torch is loaded.
import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

import horo.torch as hvd

OURS = ("horo", "horo-buckets", "horo-ddp", "horo-ddp-views", "ddp-comm-hook", "ddp-comm-hook-views")
PEER = "ddp-gloo"
FEW_FAULTS = 1000
VARIANTS = ("none", PEER, "ddp-gloo-views", *OURS)


def keep_freed_memory() -> None:
    mmap_threshold, trim_threshold = -3, -1  # Of mallopt(); the greatest that it takes.
    for option, value in ((mmap_threshold, 32 << 20), (trim_threshold, (1 << 31) - 1)):
        ctypes.CDLL(None).mallopt(option, value)


def mlp() -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for _ in range(4):
        layers += [torch.nn.Linear(2500, 2500), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def small_tensors() -> torch.nn.Module:
    layers = [torch.nn.Linear(64, 64, bias=False) for _ in range(300)]
    for layer in layers:
        torch.nn.init.orthogonal_(layer.weight)
    return torch.nn.Sequential(*layers)


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], int]] = {"mlp": (mlp, 2500), "small": (small_tensors, 64)}


class Variant:
    def __init__(self, name: str, make: Callable[[], torch.nn.Module], width: int) -> None:
        torch.manual_seed(1)
        self.plain = self.model = make()
        optimizer = torch.optim.SGD(self.plain.parameters(), lr=1e-3)
        views = name.endswith("-views")
        if name.startswith("ddp"):
            self.model = DistributedDataParallel(self.plain, gradient_as_bucket_view=views)
            if name.startswith("ddp-comm-hook"):
                self.model.register_comm_hook(None, hvd.comm_hook)
        elif name.startswith("horo-ddp"):
            self.model = hvd.DistributedDataParallel(self.plain, gradient_as_bucket_view=views)
        elif name.startswith("horo"):
            optimizer = hvd.DistributedOptimizer(
                optimizer, self.plain.named_parameters(), gradient_as_bucket_view=name == "horo-buckets"
            )
        self.optimizer = optimizer
        generator = torch.Generator().manual_seed(100 + hvd.rank())
        self.inputs = torch.randn(64, width, generator=generator)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.inputs).pow(2).mean().backward()
        self.optimizer.step()

    def steps(self, count: int) -> float:
        """Seconds per step of the slowest rank."""
        hvd.barrier()
        begin = time.perf_counter()
        for _ in range(count):
            self.step()
        seconds = (time.perf_counter() - begin) / count
        return float(hvd.allreduce(torch.tensor(seconds, dtype=torch.float64), op=hvd.Max, name="seconds"))


def check(variants: dict[str, Variant]) -> None:
    """All variants but the one without communication have done the same."""
    reference = list(variants[PEER].plain.parameters())
    for name in OURS:
        for one, other in zip(variants[name].plain.parameters(), reference, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5, msg=f"{name} went another way than DDP")


def measure(model: str, rounds: int, steps: int) -> dict[str, Any]:
    make, width = MODELS[model]
    variants = {name: Variant(name, make, width) for name in VARIANTS}
    for variant in variants.values():
        variant.steps(3)  # Warm, and with everything allocated.
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    faults = dict.fromkeys(VARIANTS, 0)
    for turn in range(rounds):
        for index in range(len(VARIANTS)):
            name = VARIANTS[(turn + index) % len(VARIANTS)]
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            times[name].append(variants[name].steps(steps))
            faults[name] += resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    check(variants)
    milliseconds = {name: [1000 * one for one in all_of] for name, all_of in times.items()}
    none = milliseconds["none"]
    quarter = statistics.quantiles(none, n=4)
    overheads = {
        name: statistics.median(one - base for one, base in zip(milliseconds[name], none, strict=True))
        for name in VARIANTS[1:]
    }
    peer = overheads[PEER]
    return {
        "model": model,
        "rounds": rounds,
        "steps": steps,
        "median_ms": {name: statistics.median(all_of) for name, all_of in milliseconds.items()},
        "none_spread_ms": quarter[2] - quarter[0],
        "overhead_ms": overheads,
        "overhead_ratio": {name: overheads[name] / peer for name in OURS},
        "page_faults_per_step": {name: round(count / rounds / steps) for name, count in faults.items()},
        "counts": peer > 3 * (quarter[2] - quarter[0]),
        "all_ms": milliseconds,
    }


def start_gloo() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = hvd.broadcast_object(probe.getsockname()[1])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.distributed.init_process_group("gloo", rank=hvd.rank(), world_size=hvd.size())


def show(result: dict[str, Any]) -> None:
    print(f"{result['model']}: {result['rounds']} rounds of {result['steps']} steps, ms per step")
    for name in VARIANTS:
        line = f"  {name:<20}{result['median_ms'][name]:9.2f}"
        if name != "none":
            line += f"   overhead {result['overhead_ms'][name]:8.2f}"
        if name in result["overhead_ratio"]:
            line += f"   {result['overhead_ratio'][name]:6.2f} of DDP's"
        if result["page_faults_per_step"][name] > FEW_FAULTS:
            line += f"   {result['page_faults_per_step'][name]} page faults"
        print(line)
    print(f"  spread of none: {result['none_spread_ms']:.2f} (half of the rounds)", end="")
    print("" if result["counts"] else "; DDP's overhead is within 3 times that: the ratio says nothing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*MODELS, "both"], default="both")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1, help="about how long a variant runs in a round")
    parser.add_argument("--json", help="where the figures go")
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    hvd.init()
    start_gloo()
    results = []
    for model in MODELS if arguments.model == "both" else [arguments.model]:
        make, width = MODELS[model]
        once = Variant("none", make, width)
        once.steps(2)
        steps = max(2, round(arguments.seconds / once.steps(2)))
        del once
        results.append(measure(model, arguments.rounds, steps))
        if hvd.rank() == 0:
            show(results[-1])
    if hvd.rank() == 0 and arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"ranks": hvd.size(), "torch": torch.__version__, "results": results}, file, indent=1)
    hvd.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
