"""The command line of the launcher: `python -m horovod.runner.launch -np 2 python train.py`."""

from horo.launch import run_commandline
from horo.legacy.runner import run_args as _run

__all__ = ["_run", "run_commandline"]

if __name__ == "__main__":
    run_commandline()
