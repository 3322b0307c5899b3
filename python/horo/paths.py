"""Where the parts of the package for C and C++ programs lie."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def library_path() -> Path:
    """The shared library: link a C or C++ program against it."""
    return next(_PACKAGE.glob("libhoro.so*"))


def include_dir() -> Path:
    """The folder to pass to a compiler with -I for ``#include <horo/api/horo.h>``."""
    return _PACKAGE / "include"
