"""`import horovod.spark`: horo.spark under Horovod's name."""

from horo.spark import run

__all__ = ["run"]
