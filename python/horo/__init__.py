"""horo: data-parallel training with collectives that are fast and survive."""

from __future__ import annotations

from horo._horo import build_info
from horo.paths import include_dir, library_path

__version__: str = build_info()["version"]

__all__ = ["__version__", "build_info", "include_dir", "library_path"]
