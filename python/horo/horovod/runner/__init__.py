"""Starting jobs."""

from horo.launch import run

__all__ = ["run"]
