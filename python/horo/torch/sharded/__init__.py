"""Optimizer state that is divided among the ranks (ZeRO stage 1)."""

from horo.torch.sharded.optimizer import ShardedOptimizer

__all__ = ["ShardedOptimizer"]
