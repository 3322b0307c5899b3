"""The state of a divided optimizer, brought together and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from horo import _horo
from horo.process_sets import ProcessSet
from horo.torch.functions import allgather_object
from horo.torch.sharded.bucket import Bucket, Member, Piece


def _is_per_element(value: Any, elements: int) -> bool:
    """A tensor with a value for every element; and not a counter of steps, which is a tensor too."""
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.numel() == elements


def gather_state(
    local: torch.optim.Optimizer,
    buckets: Sequence[Bucket],
    process_set: ProcessSet,
    wait: Callable[[_horo.Request], None],
) -> dict[int, dict[str, Any]]:
    """By number of the parameter, as the undivided optimizer has it. By all ranks, which all get all of it."""
    whole: dict[int, dict[str, Any]] = {}
    for number, values in _merged(allgather_object(_described(local, buckets), "sharded_state", process_set)):
        whole[number] = values
    for bucket in buckets:
        kinds = {
            (key, dtype)
            for member in bucket.members
            for key, dtype in whole.get(member.number, {}).items()
            if isinstance(dtype, _Divided)
        }
        for key, kind in sorted(kinds):
            own = torch.zeros(bucket.slice, dtype=kind.dtype, device=bucket.flat.device)
            for piece in bucket.pieces:
                value = local.state.get(piece.values, {}).get(key)
                if value is not None:
                    piece.of(own).copy_(value)
            request, everything = bucket.gather_like(own)
            wait(request)
            for member in bucket.members:
                if key in whole.get(member.number, {}):
                    whole[member.number][key] = member.view(everything).clone(memory_format=torch.preserve_format)
    return dict(sorted(whole.items()))


class _Divided(str):
    """The dtype of a state that has a value for every element."""

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self)


def _described(local: torch.optim.Optimizer, buckets: Sequence[Bucket]) -> dict[int, dict[str, Any]]:
    """Of this rank's pieces: what is one value for a parameter, and the dtype of what is one for each element."""
    return {
        piece.member.number: {
            key: _Divided(str(value.dtype).removeprefix("torch."))
            if _is_per_element(value, piece.end - piece.begin)
            else value
            for key, value in local.state[piece.values].items()
        }
        for bucket in buckets
        for piece in bucket.pieces
        if piece.values in local.state
    }


def _merged(described: Sequence[dict[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """Ranks that have pieces of the same parameter say the same about it."""
    merged: dict[int, dict[str, Any]] = {}
    for one in described:
        for number, values in one.items():
            merged.setdefault(number, dict(values))
    return list(merged.items())


def take_state(local: torch.optim.Optimizer, buckets: Sequence[Bucket], whole: dict[int, dict[str, Any]]) -> None:
    """This rank's part of the state of an undivided optimizer. What does not fit fails on all ranks."""
    for bucket in buckets:
        for member in bucket.members:
            for key, value in whole.get(member.number, {}).items():
                _check(member, key, value)
    local.state.clear()
    for bucket in buckets:
        for piece in bucket.pieces:
            if piece.member.number in whole:
                local.state[piece.values] = {
                    key: _part(piece, key, value) for key, value in whole[piece.member.number].items()
                }


def _check(member: Member, key: str, value: Any) -> None:
    if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape != member.shape:
        raise ValueError(
            f"state '{key}' of parameter {member.number} has the shape {tuple(value.shape)}, the parameter "
            f"{tuple(member.shape)}: it cannot be divided"
        )


def _part(piece: Piece, key: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.shape != piece.member.shape:
        return value.detach().clone()
    part = piece.cut(value).clone()
    # As torch does when it loads: what belongs to a parameter has the parameter's dtype and device; counters of steps
    # stay where they are.
    device = value.device if key == "step" else piece.values.device
    return part.to(device, piece.values.dtype if part.is_floating_point() else part.dtype)
