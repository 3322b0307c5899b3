"""Mixed precision: bfloat16 in the forward pass, a scaled loss, and gradients that are clipped after they are averaged.

horo run -np 2 python examples/python/torch_mixed_precision.py
"""

from __future__ import annotations

import digits
import torch
from torch.nn import functional

import horo.torch as hvd


def main() -> None:
    args = digits.arguments(__doc__, epochs=4).parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    training, testing = digits.load()
    loader, sampler = digits.shard(training, args.batch_size, args.seed)

    model = digits.Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    scaler = torch.amp.GradScaler("cpu")

    # Without instructions for it PyTorch is 60 times slower with 16 bits than with 32.
    has_bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if not has_bfloat16 and hvd.rank() == 0:
        print("this processor has no instructions for bfloat16: the forward pass runs in float32", flush=True)

    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=has_bfloat16):
                loss = functional.cross_entropy(model(images), labels)
            # Gradients are averaged when backward() returns: what follows sees the same numbers on all ranks.
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        losses.append(digits.mean_over_ranks(total / len(loader)))

    digits.check_equal(model)
    digits.report(losses, digits.accuracy(model, testing))


if __name__ == "__main__":
    main()
