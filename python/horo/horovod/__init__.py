"""Horovod's names: what `import horovod` finds where Horovod itself is not installed (docs/migrate-from-horovod.md).

Every module here hands on what others have; none does anything itself.
"""

from horo import __version__ as _version
from horo.launch import run

# The interface that these names keep, and by whom: larger than 0.28.1 and equal to it for `~=0.28.1`.
__version__ = f"0.28.1+horo.{_version}"

__all__ = ["__version__", "run"]
