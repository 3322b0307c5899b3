"""What horo raises."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """An operation failed: the ranks disagree about it, a rank was lost, or horo was shut down.

    ``code`` says which ("mismatch", "peer-lost", "stopped", ...), ``lost_ranks`` who is gone.
    """

    def __init__(self, message: str = "", code: str = "internal", lost_ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.lost_ranks = lost_ranks


class InitializationError(HorovodInternalError, ValueError):
    """The job could not be joined. Also a ValueError, which Horovod raises there."""


def exception_of(code: str, message: str, lost_ranks: list[int]) -> Exception:
    """What the library's failure `code` becomes."""
    if code == "invalid-argument":
        return ValueError(message)
    return HorovodInternalError(message, code, tuple(lost_ranks))
