"""A training step of a transformer of about 100 million parameters, all ranks on one GPU: without communication, with
horo's DistributedOptimizer and DistributedDataParallel, and with torch's over the back end horo, in turns. Run by horo
run; rank 0 prints."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

import horo.torch as hvd

ROUNDS, WIDTH, LAYERS, WORDS, LENGTH, BATCH = 16, 768, 12, 16384, 128, 4


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.words(tokens)))


def stepper(module: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            words = module(tokens)
        nn.functional.cross_entropy(words.float().flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return step


def variants(tokens: torch.Tensor) -> dict[str, Callable[[], None]]:
    made: dict[str, Callable[[], None]] = {}
    for name in ("none", "optimizer", "ddp", "horo ddp", "horo bf16", "horo int8"):
        torch.manual_seed(1)
        module: nn.Module = Transformer().cuda()
        if name == "ddp":
            module = nn.parallel.DistributedDataParallel(module)
        elif name.startswith("horo"):
            module = hvd.DistributedDataParallel(module, gradient_as_bucket_view=True)
            if name != "horo ddp":
                module.register_comm_hook(None, name[5:])
        optimizer: torch.optim.Optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        if name == "optimizer":
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=module.named_parameters())
        made[name] = stepper(module, optimizer, tokens)
    return made


def main() -> int:
    from horo.torch import c10d

    hvd.init()
    torch.cuda.set_device(0)
    c10d.register()
    os.environ.setdefault("RANK", str(hvd.rank()))
    os.environ.setdefault("WORLD_SIZE", str(hvd.size()))
    dist.init_process_group(
        "horo", store=dist.FileStore(sys.argv[1], hvd.size()), rank=hvd.rank(), world_size=hvd.size()
    )
    tokens = torch.randint(0, WORDS, (BATCH, LENGTH), device="cuda")
    steps = variants(tokens)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(ROUNDS + 2):
        for name, step in steps.items():
            torch.cuda.synchronize()
            hvd.barrier()
            begin = time.perf_counter()
            step()
            torch.cuda.synchronize()
            if turn >= 2:
                times[name].append(1e3 * (time.perf_counter() - begin))
    if hvd.rank() == 0:
        parameters = sum(one.numel() for one in Transformer().parameters())
        print(f"ranks {hvd.size()}, step of a transformer with {parameters / 1e6:.0f} M parameters")
        usual = statistics.median(times["none"])
        for name, all_times in times.items():
            middle = statistics.median(all_times)
            print(f"  {name:<12} {middle:8.2f} ms, {100 * (middle / usual - 1):+6.1f} % more than none", flush=True)
    dist.destroy_process_group()
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
