"""A variational autoencoder through horo.backends: the same script for every back end.

horo run -np 2 python examples/python/torch_vae.py --distributed_backend horo
torchrun --nproc-per-node 2 examples/python/torch_vae.py --distributed_backend torch
python examples/python/torch_vae.py
"""

from __future__ import annotations

import argparse
import hashlib

import torch
from digits_data import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from horo import backends


class Autoencoder(nn.Module):
    def __init__(self, pixels: int = 64, latent: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, 128), nn.ReLU(), nn.Linear(128, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 128), nn.ReLU(), nn.Linear(128, pixels))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The loss: how badly the images are drawn again, and how far the code is from a normal distribution."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        drawn = functional.binary_cross_entropy_with_logits(self.decoder(code), images, reduction="sum")
        divergence = 0.5 * (mean.pow(2) + log_variance.exp() - log_variance - 1).sum()
        return (drawn + divergence) / len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    args = backends.wrap_arg_parser(parser).parse_args()
    distributed = backends.set_backend_from_args(args)
    distributed.initialize()
    distributed.check_batch_size(args.batch_size)

    torch.manual_seed(args.seed)
    dataset = TensorDataset(torch.tensor(load_digits()[0].reshape(-1, 64), dtype=torch.float32) / 16)
    sampler = DistributedSampler(
        dataset, num_replicas=distributed.get_world_size(), rank=distributed.get_rank(), seed=args.seed
    )
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
    wrapped, distributed_optimizer, loader, _ = distributed.distribute(
        args=args,
        model=model,
        optimizer=optimizer,
        model_parameters=model.parameters(),
        training_data=loader,
        lr_scheduler=scheduler,
    )

    torch.manual_seed(args.seed + distributed.get_rank())  # Every rank draws its own noise.
    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for (images,) in loader:
            distributed_optimizer.zero_grad()
            loss = wrapped(images)
            loss.backward()
            distributed_optimizer.step()
        losses.append(distributed.average_all(loss.detach()).item())
        scheduler.step()
        if distributed.is_root_worker():
            print(f"epoch {epoch + 1}: loss {losses[-1]:.2f}, learning rate {scheduler.get_last_lr()[0]:.5f}")

    digest = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters()))
    number = torch.tensor(float(int(digest.hexdigest()[:6], 16)), dtype=torch.float64)
    if distributed.average_all(number).item() != number.item():
        raise SystemExit("the ranks have different parameters")
    if distributed.is_root_worker():
        print(f"{distributed.get_world_size()} ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}, all equal")


if __name__ == "__main__":
    main()
