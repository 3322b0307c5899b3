"""What operations need to be right inside a graph: names that all ranks agree on, and a token."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import tensorflow as tf

from horo.world import world

# Function graphs of a condition or a loop belong to the function around them.
_FUNCTION = "FuncGraph"
# More bytes than what TensorFlow copies into a graph as a constant; others become inputs of the graph.
_TOKEN_BYTES = 256

# Keeps AutoGraph away: it would rewrite every function of this package, which takes milliseconds for each operation.
unconverted = tf.autograph.experimental.do_not_convert

_used: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()


@functools.cache
def _eager_token() -> tf.Tensor:
    with tf.init_scope():
        return tf.zeros([_TOKEN_BYTES], tf.uint8)


def token() -> tf.Tensor:
    """An input that nobody reads, and that is no constant of the graph.

    An operation whose inputs are all constants would be run once by those who optimise the graph, on each rank at
    another time and as often as that rank traces; and collective operations cannot be marked as stateful, which would
    run them one after the other.
    """
    if tf.executing_eagerly() or _function_graph() is not None:
        return _eager_token()
    return tf.zeros([_TOKEN_BYTES], tf.uint8)


def _function_graph() -> Any:
    """The graph of the tf.function that is being traced, or None."""
    graph = tf.compat.v1.get_default_graph() if not tf.executing_eagerly() else None
    while graph is not None and type(graph).__name__ != _FUNCTION and hasattr(graph, "outer_graph"):
        graph = graph.outer_graph
    return graph if graph is not None and type(graph).__name__ == _FUNCTION else None


def operation_name(family: str, name: str | None, process_set: int) -> str:
    """What the ranks know an operation by.

    Outside of graphs unnamed operations are counted, as everywhere. Inside they are named after the function and
    counted there; where a name comes again in one function it gets a number. So tracing once more, on one rank alone,
    gives the same names.
    """
    if tf.executing_eagerly():
        return world.name(family, name, process_set)
    graph = _function_graph() or tf.compat.v1.get_default_graph()
    base = f"{family}.{name}" if name is not None else f"{family}.{getattr(graph, 'name', 'graph')}.noname"
    counts = _used.setdefault(graph, {})
    key = f"{process_set}.{base}"
    counts[key] = counts.get(key, 0) + 1
    return base if counts[key] == 1 else f"{base}#{counts[key]}"
