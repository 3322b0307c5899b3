"""A script for Horovod as its users write them, with Horovod's names and nothing of horo's.

horo run -np 2 python examples/python/torch_horovod_script.py
"""

import argparse

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

hvd.init()
cuda = torch.cuda.is_available()
if cuda:
    torch.cuda.set_device(hvd.local_rank())
torch.manual_seed(args.seed)

digits = load_digits()
train_dataset = torch.utils.data.TensorDataset(
    torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
)
train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset, num_replicas=hvd.size(), rank=hvd.rank())
train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=args.batch_size, sampler=train_sampler)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
if cuda:
    model.cuda()

optimizer = optim.SGD(model.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

hvd.broadcast_parameters(model.state_dict(), root_rank=0)

for epoch in range(args.epochs):
    train_sampler.set_epoch(epoch)
    for batch_idx, (images, target) in enumerate(train_loader):
        if cuda:
            images = images.cuda(non_blocking=True)  # noqa: PLW2901
            target = target.cuda(non_blocking=True)  # noqa: PLW2901
        output = model(images)
        loss = F.cross_entropy(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch_idx == 0:
            average = hvd.allreduce(loss.detach(), name="loss").item()
            if hvd.rank() == 0:
                print(f"epoch {epoch}: loss {average:.3f}")

sums = hvd.allgather(sum(p.detach().double().sum() for p in model.parameters()).reshape(1))
assert (sums == sums[0]).all(), sums
if hvd.rank() == 0:
    print(f"{hvd.size()} ranks: loss {average:.3f} in the end, all equal")
