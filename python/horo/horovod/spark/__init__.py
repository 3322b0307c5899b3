"""`import horovod.spark`: horo.spark under Horovod's name."""

from horo.spark import run, run_elastic

__all__ = ["run", "run_elastic"]
