"""Libraries that train on torch.distributed, on the back end. They are skipped where they are not installed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

CASES = torch.Generator().manual_seed(1)
INPUTS = torch.randn(64, 8, generator=CASES)
TARGETS = INPUTS @ torch.randn(8, 2, generator=CASES)


def data() -> torch.utils.data.TensorDataset:
    return torch.utils.data.TensorDataset(INPUTS, TARGETS)


def check_equal(dist: ModuleType, module: nn.Module) -> None:
    mine = torch.cat([one.detach().flatten() for one in module.parameters()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    assert all(torch.equal(one, mine) for one in every)


def test_accelerate_trains(dist: ModuleType, size: int) -> None:
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed in this environment")
    # On CPUs it makes groups of gloo and mpi only, and takes what is there.
    accelerator = accelerate.Accelerator(cpu=True)
    assert accelerator.num_processes == size
    assert dist.get_backend() == "horo"
    torch.manual_seed(2)
    module = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True)
    module, optimizer, loader = accelerator.prepare(module, optimizer, loader)
    assert isinstance(module, nn.parallel.DistributedDataParallel)
    losses = []
    for _ in range(4):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(module(inputs), targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
    assert losses[-1] < losses[0] / 2
    accelerator.wait_for_everyone()
    check_equal(dist, accelerator.unwrap_model(module))


def test_lightning_trains(dist: ModuleType, rank: int, size: int, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed in this environment")
    from lightning.fabric.plugins.environments import LightningEnvironment
    from lightning.pytorch.strategies import DDPStrategy

    class Place(LightningEnvironment):
        """The ranks are there already."""

        @property
        def creates_processes_externally(self) -> bool:
            return True

        def world_size(self) -> int:
            return size

        def global_rank(self) -> int:
            return rank

        def local_rank(self) -> int:
            return rank

        def node_rank(self) -> int:
            return 0

        def set_world_size(self, size: int) -> None: ...

        def set_global_rank(self, rank: int) -> None: ...

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 2)
            self.losses: list[float] = []

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
            self.losses.append(loss.item())
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(2)
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=size,
        strategy=DDPStrategy(process_group_backend="horo", cluster_environment=Place()),
        max_epochs=4,
        default_root_dir=tmp_path,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(data(), batch_size=8))
    assert module.losses[-1] < module.losses[0] / 2
    assert trainer.world_size == size
    check_equal(dist, module)
