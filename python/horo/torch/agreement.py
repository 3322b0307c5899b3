"""Whether all ranks have handed in the gradients of the same parameters. Only then may a backward pass wait for them: a
rank that lacks one hands in zeros for it in synchronize(), and until then may wait for something else itself.

At the end of a backward pass the ranks compare what they have handed in: a *round*, which is one small reduction. A
step has rounds until all gradients are there on all ranks, or ranks differ, or one of them has come to synchronize().
Nobody begins a round before it knows how the last one has ended, so that all ranks have the same rounds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from types import SimpleNamespace

import torch

from horo import _horo
from horo.handles import Handle
from horo.process_sets import ProcessSet
from horo.torch.parcels import Slot

# What a rank says of itself; the largest counts.
_COMPLETE, _INCOMPLETE, _LAST = range(3)
_MOST = 1 << 62


class Agreement:
    """Of the ranks about one optimizer."""

    def __init__(self, arrivals: _horo.Arrivals, process_set: ProcessSet) -> None:
        self._arrivals = arrivals
        self._process_set = process_set
        words = torch.zeros(3, dtype=torch.int64)
        self._words = words.numpy()  # Quicker to read and to write.
        self._slot = _horo.Slot(SimpleNamespace(grad=words), arrivals, lambda: None, 1)
        self._round: Handle | None = None
        self._compared = 0  # So many gradients had come when the last round began.
        self._equal = False  # As of the last round.
        self.rounds = 0  # Of this step that have ended.
        self.closed = False  # This step has no more of them.

    def reset(self) -> None:
        """A step begins."""
        self._round = None
        self._compared = self.rounds = 0
        self._equal = self.closed = False

    def under_way(self) -> bool:
        return self._round is not None

    def is_due(self) -> bool:
        """Whether gradients have come that were not compared, and can be."""
        if self._round is not None and self._round.done():
            self._end()
        return not self.closed and self._round is None and self._arrivals.sent > self._compared

    def begin(self, name: str, missing: Sequence[Slot], *, waits: bool, last: bool = False) -> None:
        """A round. `missing` have not come; `last`: no backward pass follows; `waits`: it is waited for next."""
        self._compared = self._arrivals.sent
        mark = self._compared
        if missing:
            names = "\n".join(sorted(slot.name for slot in missing))
            mark = int.from_bytes(hashlib.blake2b(names.encode(), digest_size=7).digest(), "little")
        # Two largest values are the largest and the smallest mark.
        self._words[:] = mark, _MOST - mark, _LAST if last else _INCOMPLETE if missing else _COMPLETE
        if self._slot.native is None:
            number, largest = _horo.DTYPES["int64"], _horo.REDUCTIONS["max"]
            self._slot.native = _horo.Reduction(f"allreduce.{name}.end_of_backward", number, largest, 1.0, 1.0, [3])
        batch = self._arrivals.hand_in([self._slot], self._process_set.number(), False, waits)
        self._round = Handle(batch, None)

    def reached(self, seconds: float | None = None) -> bool | None:
        """How the round under way ends. None: not within so many seconds."""
        if self._round is None:
            return self._equal
        if seconds is not None and not self._round.wait_until(time.monotonic() + seconds):
            return None
        self._end()
        return self._equal

    def settle(self, name: str) -> None:
        """The last round of a step, in synchronize(): others may have begun one."""
        while not self.closed:
            if self._round is None:
                self.begin(name, (), waits=True, last=True)
            self._end()

    def _end(self) -> None:
        handle, self._round = self._round, None
        assert handle is not None
        handle.wait()
        largest, rest, said = self._words.tolist()
        self.rounds += 1
        self._equal = largest == _MOST - rest and said != _LAST
        self.closed = said != _INCOMPLETE or not self._equal
