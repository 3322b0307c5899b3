"""Where the compiled parts of the package lie."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def library_path() -> Path:
    """The shared library: link a C or C++ program against it."""
    return next(_PACKAGE.glob("libhoro.so*"))


def plugin_path(name: str) -> Path:
    """What a framework loads: "tensorflow" or "jax"."""
    found = _PACKAGE / f"libhoro_{name}.so"
    if not found.exists():
        raise FileNotFoundError(f"{found} is missing: this build of horo has no plugin for {name}")
    return found


def program_path() -> Path:
    """The program `horo` of this package: beside this interpreter's scripts, else the first in the PATH."""
    found = shutil.which("horo", path=sysconfig.get_path("scripts")) or shutil.which("horo")
    if found is None:
        raise FileNotFoundError("the program horo is neither among this interpreter's scripts nor in the PATH")
    return Path(found)


def include_dir() -> Path:
    """The folder to pass to a compiler with -I for ``#include <horo/api/horo.h>``."""
    return _PACKAGE / "include"
