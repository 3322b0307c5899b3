"""Starting jobs."""

from horo.launch import run
from horo.legacy.runner import HorovodArgs as _HorovodArgs

__all__ = ["_HorovodArgs", "run"]
