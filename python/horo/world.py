"""This process's place in its job: the one runtime that the functions of this package use."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from horo._horo import Runtime
from horo.communicators import handle_of
from horo.exceptions import HorovodInternalError, InitializationError
from horo.meeting import Meeting, Place, place_of_environment, trusts_store

_Value = TypeVar("_Value")

# How long a wait lasts at most until Python looks for signals.
SLICE_SECONDS = 0.1
_DECLINE_SECONDS = 2


def interruptibly(call: Callable[[], _Value]) -> _Value:
    """Runs a call that waits for other ranks so that Ctrl-C ends the waiting. The call itself goes on then."""
    outcome: list[_Value] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="horo-call", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SLICE_SECONDS)
    if failure:
        # Else the exception holds this frame, and the frame the exception.
        error = failure.pop()
        try:
            raise error
        finally:
            del error
    return outcome[0]


def own_seat() -> int | None:
    """This process's number for the launcher; None in jobs that do not change their size."""
    words = os.environ.get("HORO_SEAT", "")
    return int(words) if words.strip().isdigit() else None


def is_newcomer() -> bool:
    """Whether this process entered a job that was running already."""
    return own_seat() is not None and not any(name in os.environ for name in ("HORO_RANK", "HOROVOD_RANK"))


class World:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runtime: Runtime | None = None
        # Shut down, but it knows the job's key and how often the job was joined.
        self._before: Runtime | None = None
        self._place: Place | None = None
        self._meeting: Meeting | None = None  # That this process opened, for those who come again.
        self._sets: list[list[int]] = []  # That the job was started with.
        self.communicator: Any | None = None
        self._exit_hook = False
        self._era = 0
        self._counters: dict[tuple[int, str], int] = {}

    @property
    def initialized(self) -> bool:
        return self._runtime is not None

    @property
    def era(self) -> int:
        """Another number after every change of the ranks: the job was joined anew, or goes on without some of them."""
        return self._era

    @property
    def runtime(self) -> Runtime:
        runtime = self._runtime
        if runtime is None:
            raise ValueError("Horovod has not been initialized; use hvd.init().")
        return runtime

    def last_rank(self) -> int:
        """In the job that this process is in, or was in since it was told its place; -1: in none."""
        runtime = self._runtime or self._before
        return -1 if runtime is None else runtime.rank()

    def stand_at(self, place: Place | None) -> None:
        """Where the next start() joins, instead of what the environment says; None: that again."""
        with self._lock:
            if self._runtime is not None:
                raise RuntimeError("this process is in a job, which it has to leave first: shutdown()")
            self._place = place
            self._before = None

    def start(
        self, process_sets: Sequence[Sequence[int]], communicator: Any | None = None, ranks: Sequence[int] = ()
    ) -> bool:
        """False when it was started before. Of all processes `communicator` or `ranks` choose those of the job."""
        with self._lock:
            if self._runtime is not None:
                return False
            sets = [list(ranks) for ranks in process_sets]
            handed = place_of_environment() or self._place_of_trusted_store()
            if handed is not None:
                self._place, self._before = handed, None
            handle = None if communicator is None else handle_of(communicator)
            try:
                runtime = interruptibly(lambda: Runtime(sets, self._before, self._place, handle, list(ranks)))
            except HorovodInternalError as error:
                if error.code == "stopped" and is_newcomer():
                    print(f"horo: {error}: this process ends", file=sys.stderr)
                    raise SystemExit(0) from None
                message = f"Horovod initialization failed: {error}"
                raise InitializationError(message, error.code, error.lost_ranks) from None
            self._counters.clear()
            self._runtime = runtime
            self._sets = sets
            self._era += 1
            runtime.publish()
            self.communicator = communicator
            if not self._exit_hook:
                atexit.register(self.shutdown)
                self._exit_hook = True
            return True

    def _place_of_trusted_store(self) -> Place | None:
        """Under torchrun on several hosts, where the user trusts its store. Once: who comes again knows the key."""
        if self._before is not None or self._place is not None or not trusts_store():
            return None
        # Only there torch is known to be installed.
        boot = importlib.import_module("horo.torch.torchrun")
        place, self._meeting = boot.place_of_store()
        return place

    def decline(self) -> None:
        """Instead of the next start(), where stand_at() has put this process: ranks that wait for it there, or will,
        are told at once that it does not come. Whoever has lost the store is told by that."""
        with self._lock:
            if self._runtime is not None or self._place is None or self._place.store is None:
                return
            place = self._place._replace(settings=(*self._place.settings, f"HORO_TIMEOUT={_DECLINE_SECONDS}"))
            # Whatever goes wrong here, it is not what the user should hear of.
            with contextlib.suppress(Exception):
                Runtime.decline(self._before, place)

    def reform(self, timeout: float) -> None:
        """Goes on without the ranks that are lost. All that are left call it; `timeout` seconds for all to come."""
        runtime = self.runtime
        interruptibly(lambda: runtime.reform(timeout))
        with self._lock:
            # The ranks were not at the same point when their operations failed.
            self._counters.clear()
            self._era += 1

    def grow(self, generation: str, size: int) -> None:
        """Goes on as a job of `size` ranks, with those who enter it. All ranks call it. If the larger job does not come
        about, this one goes on as it was."""
        old = self.runtime
        terms = (generation, old.rank(), size)
        runtime = interruptibly(lambda: Runtime(self._sets, old, self._place, None, [], terms))
        with self._lock:
            self._counters.clear()
            self._runtime = runtime
            self._era += 1
            runtime.publish()
        old.shutdown()

    def shutdown(self) -> None:
        with self._lock:
            runtime, self._runtime = self._runtime, None
            if runtime is None:
                return
            runtime.shutdown()
            self._before = runtime

    def name(self, operation: str, name: str | None, process_set: int) -> str:
        """Unnamed operations are counted: the n-th of a kind is the same operation on all ranks."""
        if name is not None:
            return f"{operation}.{name}"
        key = (process_set, operation)
        with self._lock:
            count = self._counters.get(key, 0)
            self._counters[key] = count + 1
        return f"{operation}.noname.{count}"

    def take_back(self, name: str, operation: str, process_set: int) -> None:
        """A name that name() gave was refused here, and no other rank hears of it: it is the next one's."""
        key = (process_set, operation)
        with self._lock:
            count = self._counters.get(key, 0) - 1
            if name == f"{operation}.noname.{count}":
                self._counters[key] = count

    def forget_names(self, process_set: int) -> None:
        """When all ranks are at the same point, however many operations each has run until then."""
        with self._lock:
            for key in [key for key in self._counters if key[0] == process_set]:
                del self._counters[key]


world = World()
