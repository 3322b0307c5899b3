"""What horo raises."""

from __future__ import annotations

import re

# What plugins write into the errors of a framework: "horo: peer-lost[2,3]: words".
_WORDS = re.compile(r"horo: ([a-z-]+)(?:\[([\d,]+)\])?: (.*)", re.DOTALL)


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


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job have changed. With ``skip_sync`` the state need not be synchronised again."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework is not the version that horo was made for."""

    def __init__(self, name: str = "", version: str = "", installed_version: str = "") -> None:
        super().__init__(f"horo was made for {name} {version}, but {installed_version} is installed")
        self.name = name
        self.version = version
        self.installed_version = installed_version


class RankFailedError(RuntimeError):
    """A rank of horo.run() ended without returning anything, or with an exception that cannot be brought here."""

    def __init__(self, message: str = "", rank: int = -1, exit_code: int = 0, signal: int = 0) -> None:
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code
        self.signal = signal


class RankTraceback(Exception):
    """The cause of an exception that horo.run() raises: the rank that raised it, and its traceback as text."""

    def __init__(self, rank: int, traceback: str) -> None:
        super().__init__(rank, traceback)
        self.rank = rank
        self.traceback = traceback

    def __str__(self) -> str:
        return f"raised by rank {self.rank}:\n\n{self.traceback}"


def exception_of(code: str, message: str, lost_ranks: list[int]) -> Exception:
    """What the library's failure `code` becomes."""
    if code == "invalid-argument":
        return ValueError(message)
    return HorovodInternalError(message, code, tuple(lost_ranks))


def exception_in(words: str) -> Exception | None:
    """What a failure becomes whose words stand in the error of a framework; None where there are none of horo's."""
    found = _WORDS.search(words)
    if found is None:
        return None
    code, lost, message = found.groups()
    return exception_of(code, message, [int(rank) for rank in lost.split(",")] if lost else [])
