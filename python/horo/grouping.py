"""Which tensors travel together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def in_groups(
    wanted: Sequence[int],
    tensors: Sequence[Any],
    groups: int | Sequence[Sequence[Any]] | None,
    limit: int | None,
    bytes_of: Callable[[Any], int],
) -> list[list[int]]:
    """The places `wanted` of `tensors`, in their order, in groups.

    `groups` is the number of them, or lists of tensors that belong together, and others travel alone. Without it a
    group is full with `limit` bytes; None: there is one group.
    """
    if groups is None:
        return _in_groups_of_bytes(wanted, limit, lambda place: bytes_of(tensors[place]))
    if isinstance(groups, int):
        return _in_so_many(wanted, groups)
    number = {id(one): index for index, group in enumerate(groups) for one in group}
    chosen: dict[Any, list[int]] = {}
    for place in wanted:
        chosen.setdefault(number.get(id(tensors[place]), ("alone", place)), []).append(place)
    return list(chosen.values())


def _in_groups_of_bytes(wanted: Sequence[int], limit: int | None, bytes_of: Callable[[int], int]) -> list[list[int]]:
    made: list[list[int]] = []
    filled = 0
    for place in wanted:
        if not made or (limit is not None and filled >= limit):
            made.append([])
            filled = 0
        made[-1].append(place)
        filled += bytes_of(place)
    return made


def _in_so_many(wanted: Sequence[int], count: int) -> list[list[int]]:
    share, more = divmod(len(wanted), count)
    made = []
    begin = 0
    for index in range(min(count, len(wanted))):
        end = begin + share + (index < more)
        made.append(list(wanted[begin:end]))
        begin = end
    return made
