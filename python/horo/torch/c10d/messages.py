"""Messages between two ranks: matched by sender and tag, in no order with the collectives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch

from horo import _horo
from horo.torch.c10d.memory import place_of
from horo.torch.c10d.work import Work, error_of

ANYBODY = -1
# torch's tags are ints of 32 bits, which may be negative; above them are those of this package.
_TAGS = 1 << 32
FIRST_OWN_TAG = _TAGS


class Messages:
    """What the process group does with the messages of its engine. Mixed into it."""

    # Of the process group and its collectives.
    _timeout: timedelta
    _members: Callable[[], _horo.Group]
    _work: Callable[..., Work]

    def send(self, tensors: list[torch.Tensor], to: int, tag: int = 0) -> Work:
        return self._send(tensors, to, tag % _TAGS, self._timeout)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> Work:
        return self._receive(tensors, source, tag % _TAGS, self._timeout)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        return self._receive(tensors, ANYBODY, tag % _TAGS, self._timeout)

    def _send(self, tensors: list[torch.Tensor], to: int, tag: int, timeout: timedelta) -> Work:
        given = _one(tensors, "send")
        if isinstance(given[0], torch.Tensor) and given[0].is_cuda:
            given = [given[0].detach().cpu()]
        place = place_of(given, "send", read=True, write=False)
        bytes_sent = place.counts[0] * place.memory.element_size()
        try:
            request = self._members().send(to, tag, place.address, bytes_sent, place.memory, timeout.total_seconds())
        except RuntimeError as error:
            raise error_of(error) from None
        return self._work([request], list(tensors), [], None)

    def _receive(self, tensors: list[torch.Tensor], source: int, tag: int, timeout: timedelta) -> Work:
        target = _one(tensors, "recv")[0]
        if isinstance(target, torch.Tensor) and target.is_cuda:
            host = torch.empty(target.shape, dtype=target.dtype)
            place = place_of([host], "recv", read=False, write=True)
            place.back = lambda: target.detach().copy_(host)
        else:
            place = place_of([target], "recv", read=False, write=True)
        room = place.counts[0] * place.memory.element_size()
        try:
            request = self._members().receive(source, tag, place.address, room, place.memory, timeout.total_seconds())
        except RuntimeError as error:
            raise error_of(error) from None
        return self._work([request], list(tensors), [place], None)


def _one(tensors: list[torch.Tensor], what: str) -> list[torch.Tensor]:
    if len(tensors) != 1:
        raise ValueError(f"{what} takes one tensor, not {len(tensors)}")
    return tensors
