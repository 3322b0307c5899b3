"""What autograd's graph tells: the tensors of an output, the parameters that they depend on, when a backward pass
begins and ends."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in what a module takes or returns: in tuples, lists, dicts and dataclasses, in each other."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_of(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_of(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(getattr(value, field.name))


def reached(outputs: Iterable[torch.Tensor], numbers: dict[int, int]) -> set[int]:
    """Which parameters outputs depend on. `numbers` has the parameters' numbers by their id()."""
    # Nodes are held, not their ids: a node of Python's is made anew when nobody holds it.
    seen: set[Any] = set()
    found: set[int] = set()
    waiting: list[Any] = []
    for output in outputs:
        if output.grad_fn is not None:
            waiting.append(output.grad_fn)
        elif id(output) in numbers:
            found.add(numbers[id(output)])
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            number = numbers.get(id(variable))
            if number is not None:
                found.add(number)
        waiting.extend(after for after, _ in node.next_functions if after is not None and after not in seen)
    return found


class Mark:
    """Stands for an output. Only the graph behind the output holds it, so it lives as long as that graph does."""

    __slots__ = ("__weakref__", "passed")

    def __init__(self) -> None:
        self.passed = False


def watch(outputs: Iterable[torch.Tensor], begin: Callable[[bool], None]) -> list[weakref.ref[Mark]]:
    """Calls `begin` when a backward pass comes to one of the outputs, which stay what they are; with True when it is
    the first one that does.

    A node of its own behind the outputs would do the same, but it needs a copy of each of them, and does not see into
    objects that torch cannot take apart.
    """
    marks = []
    for output in outputs:
        if output.grad_fn is not None:  # A leaf would keep the hook for good.
            mark = Mark()
            output.register_hook(_passing(mark, begin))
            marks.append(weakref.ref(mark))
    return marks


def _passing(mark: Mark, begin: Callable[[bool], None]) -> Callable[[torch.Tensor], None]:
    def passed(gradient: torch.Tensor) -> None:
        first, mark.passed = not mark.passed, True
        begin(first)

    return passed


def any_left(marks: Iterable[weakref.ref[Mark]]) -> bool:
    """Whether there is an output that no backward pass has come to yet, and that one still can come to."""
    alive = [mark for mark in (one() for one in marks) if mark is not None]
    return any(not mark.passed for mark in alive)


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Runs `call` when the backward pass that is going on is over."""
    torch.autograd.Variable._execution_engine.queue_callback(call)
