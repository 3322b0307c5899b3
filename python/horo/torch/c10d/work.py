"""What collectives and messages return: work that is waited for in C++, and futures where somebody asks for one."""

from __future__ import annotations

import atexit
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from horo import _horo
from horo.exceptions import HorovodInternalError
from horo.world import SLICE_SECONDS


class HoroError(dist.DistBackendError, HorovodInternalError):
    """What a collective or a message of the back end failed with: an error of torch's and of horo's."""

    def __init__(self, message: str, code: str, lost_ranks: tuple[int, ...]) -> None:
        HorovodInternalError.__init__(self, message, code, lost_ranks)


def error_of(error: BaseException) -> BaseException:
    """The same as users of torch.distributed expect it."""
    if isinstance(error, HorovodInternalError) and not isinstance(error, HoroError):
        words = str(error)
        if error.code == "timeout":
            words = f"the back end horo Timed out in this operation: {words}"
        return HoroError(words, error.code, error.lost_ranks)
    return error


class Completer:
    """One thread that completes futures; it exists once somebody has asked for one.

    One, so that what follows futures begins its collectives in the same order on all ranks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, Work] = {}
        self._left: dict[int, int] = {}  # Requests that have not ended, of each.
        self._completions: _horo.Completions | None = None
        self._thread: threading.Thread | None = None

    def watch(self, work: Work) -> None:
        """Calls work.complete() once all of its requests have ended."""
        with self._lock:
            if self._completions is None:
                self._completions = _horo.Completions()
                self._thread = threading.Thread(
                    target=self._run, args=(self._completions,), name="horo-futures", daemon=True
                )
                self._thread.start()
                atexit.register(self.stop)
            number = next(self._numbers)
            self._waiting[number] = work
            self._left[number] = len(work.requests)
            completions = self._completions
        for request in work.requests:
            request.tell(completions, number)

    def _run(self, completions: _horo.Completions) -> None:
        while self._completions is completions:
            for number in completions.take(1.0):
                self._left[number] -= 1
                if self._left[number] == 0:
                    del self._left[number]
                    self._waiting.pop(number).complete()

    def is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Before the interpreter ends."""
        with self._lock:
            completions, self._completions = self._completions, None
            thread = self._thread
        if completions is not None and thread is not None:
            completions.close()
            if thread is not threading.current_thread():
                thread.join(2)


_completer = Completer()


class Work(dist._Work):
    """Requests under way, what they leave in which tensors, and what is to be done when they have ended."""

    def __init__(
        self,
        requests: Sequence[_horo.Request],
        results: list[Any],
        finish: Callable[[], None] | None = None,
        is_async: bool = True,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.requests = list(requests)
        self._results = results
        self._finish = finish
        self._lock = threading.Lock()
        self._ended = False
        self._error: BaseException | None = None
        self._future: torch.futures.Future | None = None
        self._told = False  # The future has its result.
        # Nobody need wait for it: what lies elsewhere is brought where it belongs all the same.
        self._device = device  # Of tensors on one: streams wait there, and the future tells them.
        self._finished: torch.cuda.Event | None = None  # There: the last steps are in some stream.
        self._watched = finish is not None and is_async and bool(self.requests)
        if self._watched:
            _completer.watch(self)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Of tensors on a GPU: for what is put into the current stream next. The thread waits for the other ranks'."""
        limit = time.monotonic() + timeout.total_seconds() if timeout > timedelta(0) else None
        stream = None if self._device is None else torch.cuda.current_stream(self._device)
        for request in self.requests:
            self._wait_for(request, limit, None if stream is None else stream.cuda_stream)
        self._end(stream)
        if self._error is not None:
            raise self._error
        return True

    def _wait_for(self, request: _horo.Request, limit: float | None, stream: int | None) -> None:
        try:
            # In slices, so that Ctrl-C ends the waiting.
            while not request.wait(SLICE_SECONDS, stream):
                if limit is not None and time.monotonic() > limit:
                    raise HoroError("this wait() Timed out before the operation was done; it goes on", "timeout", ())
        except HoroError:
            raise
        except (HorovodInternalError, ValueError) as error:
            if self._error is None:
                self._error = error_of(error)

    def _end(self, stream: torch.cuda.Stream | None) -> None:
        """Once, by whoever comes first: the last steps of this rank. Whoever comes later waits for these in its stream,
        too."""
        with self._lock:
            if self._ended:
                if stream is not None and self._finished is not None:
                    stream.wait_event(self._finished)
                return
            if self._finish is not None and self._error is None:
                self._finish()
                if stream is not None:
                    self._finished = stream.record_event()
            self._finish = None
            self._ended = True

    def complete(self) -> None:
        """All requests are done: the result goes into the future, if there is one."""
        try:
            self.wait()
        except BaseException as error:
            self._error = error
        with self._lock:
            future = None if self._told else self._future
            self._told = future is not None
        if future is None:
            return
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._results)

    def get_future(self) -> torch.futures.Future:
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future(devices=[self._device]) if self._device else torch.futures.Future()
            watch = not self._watched and bool(self.requests)
            self._watched = True
        if self.is_completed() or _completer.is_this_thread():
            # What follows a future may wait for the next one, on the very thread that would complete it.
            self.complete()
        elif watch:
            _completer.watch(self)
        return self._future

    def is_completed(self) -> bool:
        return all(request.done() for request in self.requests)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        if self.is_completed():
            try:
                self.wait()
            except BaseException as error:
                return error
        return None

    def result(self) -> list[Any]:
        self.wait()
        return self._results

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        return self.requests[0].source()

    def _source_rank(self) -> int:
        return self.source_rank()
