"""What operations need to be right inside a graph: names that all ranks agree on, and a token."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from horo.world import world

# Function graphs of a condition or a loop belong to the function around them.
_FUNCTION = "FuncGraph"
# Of functions that TensorFlow makes of others: the gradient of one that another function calls, say.
_MADE = ("__backward_", "__forward_")
# What TensorFlow keeps the token under.
_TOKEN = "horo.token"
# Added to numbers that are the same in all calls of a function: the path of calls tells them apart (kByPath in
# plugins/tensorflow/call.h).
_BY_PATH = 1 << 20
# More numbers than what TensorFlow copies into a graph as a constant; others become inputs of the graph.
_TOKEN_SIZE = 256

# Keeps AutoGraph away: it would rewrite every function of this package, which takes milliseconds for each operation.
unconverted = tf.autograph.experimental.do_not_convert


class _Names:
    """Of the operations of a graph, and of those in functions that it calls, as if these were written out in it.

    A function is traced once and called from many places, so that its operations learn their numbers when it runs:
    with each call it is handed a token, which holds the number of every operation in it. Who calls it counts them. If
    that is a function too, it is handed these numbers by its own caller. So the outermost function counts.
    """

    def __init__(self) -> None:
        self.names: list[tuple[int, str]] = []  # With the process set, at the place that the operation has in tokens.
        self.numbers: list[int] = []  # 2 for the second operation of a name, which is known as name#2.
        self._next: dict[tuple[int, str], int] = {}
        self._taken: set[tuple[int, str]] = set()
        self._values: Any = None

    def number(self, process_set: int, name: str) -> int:
        """The lowest that makes another name of it."""
        number = self._next.get((process_set, name), 1)
        while (process_set, _numbered(name, number)) in self._taken:
            number += 1
        self._next[process_set, name] = number + 1
        self._taken.add((process_set, _numbered(name, number)))
        return number

    def place(self, process_set: int, name: str, number: int) -> int:
        self.names.append((process_set, name))
        self.numbers.append(number)
        return len(self.names) - 1

    def at_call(self) -> tf.Tensor:
        """The token of a call of this function. TensorFlow asks for it with each."""
        if save_context.in_save_context():
            return _eager_token()
        if tf.executing_eagerly():
            if self._values is None:
                self._values = _constant(self.numbers)
            return self._values
        outer = _names_here()
        start = len(outer.names)
        for process_set, name in self.names:
            outer.place(process_set, name, outer.number(process_set, name))
        numbers = outer.numbers[start:]
        graph = _function_graph()
        if graph is None:
            return tf.constant(numbers, tf.int32)
        if not _is_asked(graph):
            # Not a constant either: an operation would be run while the graph is optimised, if its other input is one.
            return token()[0] + tf.constant([_BY_PATH + number for number in numbers], tf.int32)
        return token()[start : start + len(self.names)]


_names: weakref.WeakKeyDictionary[Any, _Names] = weakref.WeakKeyDictionary()


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}#{number}"


def _constant(numbers: list[int]) -> tf.Tensor:
    with tf.device("CPU:0"):
        return tf.constant(numbers, tf.int32)


@functools.cache
def _eager_token() -> tf.Tensor:
    with tf.init_scope():
        return _constant([0] * _TOKEN_SIZE)


def token() -> tf.Tensor:
    """An input with the numbers of operations, which is no constant of the graph.

    An operation whose inputs are all constants would be run once by those who optimise the graph, on each rank at
    another time and as often as that rank traces; and collective operations cannot be marked as stateful, which would
    run them one after the other.
    """
    graph = _function_graph()
    if tf.executing_eagerly():
        return _eager_token()
    if graph is None:
        return tf.zeros([_TOKEN_SIZE], tf.int32)
    if not _is_asked(graph):
        return _brought(_eager_token(), graph)
    captures = getattr(graph, "function_captures", None)
    if not hasattr(captures, "by_ref_external"):
        return _brought(_eager_token(), graph)  # An old TensorFlow, with which calls cannot be told apart.
    if _TOKEN not in captures.by_ref_internal:
        at_call = _names_here().at_call
        graph.capture_call_time_value(at_call, tf.TensorSpec([None], tf.int32, "horo_token"), _TOKEN)
        if _is_traced(graph):
            graph.capture(_eager_token())  # What takes its place in a saved model.
        captures.by_ref_external[_TOKEN] = at_call  # Around it TensorFlow has put what lets all calls share a value.
    return _brought(captures.by_ref_internal[_TOKEN], graph)


def _brought(tensor: tf.Tensor, function: Any) -> tf.Tensor:
    """Into the condition or loop that is being traced, through those around it: gradients of conditions fail for what
    comes from further out."""
    inside = []
    graph = tf.compat.v1.get_default_graph()
    while graph is not function:
        inside.append(graph)
        graph = graph.outer_graph
    for one in (function, *reversed(inside)):
        tensor = one.capture(tensor)
    return tensor


def _function_graph() -> Any:
    """The graph of the tf.function that is being traced, or None."""
    return None if tf.executing_eagerly() else _function_of(tf.compat.v1.get_default_graph())


def _function_of(graph: Any) -> Any:
    while graph is not None and type(graph).__name__ != _FUNCTION and hasattr(graph, "outer_graph"):
        graph = graph.outer_graph
    return graph if graph is not None and type(graph).__name__ == _FUNCTION else None


def _is_traced(graph: Any) -> bool:
    """Whether the program has written that function, and not TensorFlow."""
    return graph is None or not graph.name.startswith(_MADE)


def _is_asked(graph: Any) -> bool:
    """Whether TensorFlow asks for a token with each call of that function.

    For one tape in a function TensorFlow traces the gradient of a call inside of the function that was called, when
    that is complete, and calls it as it calls others. For several it makes a function of it where the tapes are, which
    has the inputs of one call of the other.
    """
    return _is_traced(graph) or (type(graph.outer_graph).__name__ == _FUNCTION and bool(graph.outer_graph.outputs))


def _names_here() -> _Names:
    return _names.setdefault(_function_graph() or tf.compat.v1.get_default_graph(), _Names())


def identity(family: str, name: str | None, process_set: int) -> dict[str, Any]:
    """What the ranks know an operation by, as arguments of it.

    Outside of graphs unnamed operations are counted, as everywhere. Inside they are named after the function and
    counted there; where a name comes again in one function it gets a number. So tracing once more, on one rank alone,
    gives the same names.
    """
    if tf.executing_eagerly():
        return _at(world.name(family, name, process_set), _eager_token())
    if name is None:
        graph = _function_graph() or tf.compat.v1.get_default_graph()
        name = f"{getattr(graph, 'name', 'graph')}.noname"
    return _in_graph(f"{family}.{name}", process_set)


def identity_of_gradient(op: Any) -> dict[str, Any]:
    """The same for an operation through which a gradient flows back to `op`."""
    name = op.get_attr("tensor_name")
    name = f"{name.decode() if isinstance(name, bytes) else name}.grad"
    if tf.executing_eagerly():
        return _at(name, _eager_token())
    known = _in_graph(name, op.get_attr("process_set_id"))
    return {**known, "token": op.inputs[-1], "place": op.get_attr("place")} if known["at_call"] else known


def _in_graph(name: str, process_set: int) -> dict[str, Any]:
    names = _names_here()
    asked = _is_asked(_function_graph())
    name = _numbered(name, names.number(process_set, name))
    return _at(name, token(), names.place(process_set, name, 1) if asked else 0, at_call=not asked)


def _at(name: str, where: tf.Tensor, place: int = 0, at_call: bool = False) -> dict[str, Any]:
    """`at_call`: the path of calls by which the node came into the graph is a part of the name."""
    return {"tensor_name": name, "token": where, "place": place, "at_call": at_call}
