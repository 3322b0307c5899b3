"""One rank of test_ddp_peers.py: horo's DistributedDataParallel beside torch's own on gloo, feature by feature.

Both train the same model on the same data in the same process. What is exact must be equal to the last bit on a number
of ranks that is a power of two, where a division by it is exact; on others within the rounding of float32.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as TorchModel
from torch.utils.checkpoint import checkpoint

import horo.torch as hvd

STEPS = 5


class Net(torch.nn.Module):
    def __init__(self, checkpointed: bool | None = None, normal: bool = False, sparse: bool = False) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.words = torch.nn.Embedding(10, 6, sparse=sparse)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(4))
        self.normal = torch.nn.BatchNorm1d(6) if normal else torch.nn.Identity()
        self.left, self.right = torch.nn.Linear(6, 2), torch.nn.Linear(6, 2)
        self.checkpointed = checkpointed

    def forward(self, inputs: torch.Tensor, numbers: torch.Tensor, sides: tuple[bool, bool]) -> dict[str, Any]:
        hidden = inputs + self.words(numbers)
        for layer in self.layers:
            if self.checkpointed is None:
                hidden = torch.tanh(layer(hidden))
            else:
                hidden = checkpoint(
                    lambda value, one=layer: torch.tanh(one(value)), hidden, use_reentrant=self.checkpointed
                )
        hidden = self.normal(hidden)
        return {
            "left": self.left(hidden) if sides[0] else None,
            "more": (self.right(hidden) if sides[1] else None,),
        }


def loss_of(output: dict[str, Any], targets: torch.Tensor) -> torch.Tensor:
    outputs = [one for one in (output["left"], output["more"][0]) if one is not None]
    return sum((one - targets).square().mean() * weight for weight, one in enumerate(outputs, 1))


Step = Callable[[Any, int], None]


def batch(step: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + hvd.rank())
    inputs = torch.randn(4, 6, generator=generator) * scale
    return inputs, torch.randint(0, 10, (4,), generator=generator), torch.randn(4, 2, generator=generator)


def both_sides(model: Any, step: int) -> None:
    inputs, numbers, targets = batch(step)
    loss_of(model(inputs, numbers, (True, True)), targets).backward()


def one_side(model: Any, step: int) -> None:
    """Different ones on different ranks."""
    inputs, numbers, targets = batch(step)
    left = (step + hvd.rank()) % 2 == 0
    loss_of(model(inputs, numbers, (left, not left)), targets).backward()


def left_only(model: Any, step: int) -> None:
    inputs, numbers, targets = batch(step)
    loss_of(model(inputs, numbers, (True, False)), targets).backward()


def accumulated(model: Any, step: int) -> None:
    for part in range(3):
        inputs, numbers, targets = batch(10 * step + part)
        with model.no_sync() if part < 2 else contextlib.nullcontext():
            loss_of(model(inputs, numbers, (True, True)), targets).backward()


def two_forwards(model: Any, step: int) -> None:
    losses = []
    for part in range(2):
        inputs, numbers, targets = batch(10 * step + part)
        losses.append(loss_of(model(inputs, numbers, (True, True)), targets))
    sum(losses).backward()


def uneven(model: Any, step: int) -> None:
    with model.join(divide_by_initial_world_size=step % 2 == 0):
        for part in range(1 + hvd.rank()):
            inputs, numbers, targets = batch(10 * step + part)
            loss_of(model(inputs, numbers, (True, True)), targets).backward()


# A name, arguments of both, of Net, what a step does, and whether gradients are set to None between steps.
FEATURES: list[tuple[str, dict[str, Any], dict[str, Any], Step, bool]] = [
    ("plain", {}, {}, both_sides, True),
    ("zeroed gradients", {}, {}, both_sides, False),
    ("views", {"gradient_as_bucket_view": True}, {}, both_sides, True),
    ("views, zeroed", {"gradient_as_bucket_view": True}, {}, both_sides, False),
    ("small buckets", {"bucket_cap_mb": 0.0001}, {}, both_sides, True),
    ("buckets by a list", {"bucket_cap_mb_list": [0.0001, 0.0002]}, {}, both_sides, True),
    ("one copy for many", {"batched_grad_copy": True}, {}, both_sides, True),
    ("unused", {"find_unused_parameters": True}, {}, one_side, True),
    ("unused, zeroed", {"find_unused_parameters": True}, {}, one_side, False),
    ("unused, views", {"find_unused_parameters": True, "gradient_as_bucket_view": True}, {}, one_side, True),
    ("unused on all ranks", {"find_unused_parameters": True}, {}, left_only, True),
    ("skipped", {"find_unused_parameters": True, "skip_all_reduce_unused_params": True}, {}, left_only, True),
    ("static", {"static_graph": True}, {}, both_sides, True),
    ("static, unused", {"static_graph": True}, {}, left_only, True),
    ("static, views", {"static_graph": True, "gradient_as_bucket_view": True}, {}, both_sides, True),
    ("added up", {}, {}, accumulated, True),
    ("added up, views", {"gradient_as_bucket_view": True}, {}, accumulated, True),
    ("two forwards", {}, {}, two_forwards, True),
    ("checkpoints", {}, {"checkpointed": False}, both_sides, True),
    ("reentrant checkpoints", {"static_graph": True}, {"checkpointed": True}, both_sides, True),
    ("buffers", {}, {"normal": True}, both_sides, True),
    ("own buffers", {"forward_sync_buffers": False}, {"normal": True}, both_sides, True),
    ("sparse", {}, {"sparse": True}, both_sides, True),
    ("uneven", {}, {"normal": True}, uneven, True),
    ("uneven, unused", {"find_unused_parameters": True}, {}, uneven, True),
]


def train(model: Any, step: Step, set_to_none: bool) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        step(model, number)
        optimizer.step()
    values = [one.detach() for one in [*model.module.parameters(), *model.module.buffers()]]
    return values + [one.grad.to_dense() for one in model.parameters() if one.grad is not None]


def compare(name: str, ours: list[torch.Tensor], theirs: list[torch.Tensor], exact: bool) -> None:
    assert len(ours) == len(theirs), f"{name}: {len(ours)} and {len(theirs)} tensors with a value"
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if exact:
            assert torch.equal(one, other), f"{name}: tensor {number} is off by {(one - other).abs().max()}"
        else:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=lambda words: f"{name}: {words}")


def run_features() -> int:
    power_of_two = hvd.size() & (hvd.size() - 1) == 0
    known = inspect.signature(TorchModel.__init__).parameters  # An older torch's has fewer.
    for name, arguments, of_net, step, set_to_none in FEATURES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = train(hvd.DistributedDataParallel(Net(**of_net), **arguments), step, set_to_none)
            if not set(arguments) <= set(known):
                continue
            theirs = train(TorchModel(Net(**of_net), **arguments), step, set_to_none)
        # More than two ranks add up in another order than gloo's; sparse rows are added up in another one always.
        exact = power_of_two and hvd.size() <= 2 and not of_net.get("sparse")
        compare(name, ours, theirs, exact)
        print(f"equal: {name}", flush=True)
    return len(FEATURES)


def run_hooks() -> int:
    """torch's own with horo under it, and torch's hooks beside those of the library."""
    theirs = train(TorchModel(Net()), both_sides, True)
    for arguments in ({}, {"bucket_cap_mb": 0.0001}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        carried = TorchModel(Net(), **arguments)
        carried.register_comm_hook(None, hvd.comm_hook)
        compare(f"comm_hook {arguments}", train(carried, both_sides, True), theirs, exact=False)
    halved = TorchModel(Net())
    halved.register_comm_hook(None, default_hooks.fp16_compress_hook)
    ours = hvd.DistributedDataParallel(Net())
    ours.register_comm_hook(None, "fp16")
    for one, other in zip(train(ours, both_sides, True), train(halved, both_sides, True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
    print("equal: hooks", flush=True)
    return 5


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    store = dist.FileStore(sys.argv[1], hvd.size())
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=store, rank=hvd.rank(), world_size=hvd.size(), timeout=timedelta(seconds=60))
    count = run_features() + run_hooks()
    hvd.barrier()
    print(f"rank {hvd.rank()}: all {count} equal", flush=True)
    hvd.shutdown()
    os._exit(0)  # Gloo's end hangs now and then.


if __name__ == "__main__":
    main()
