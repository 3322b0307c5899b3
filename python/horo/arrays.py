"""NumPy arrays as the library takes them. NumPy is imported with the first operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from horo import _horo
from horo.collectives import Given

if TYPE_CHECKING:
    import numpy as np

_numbers: dict[Any, int] = {}


def dtype_number(dtype: np.dtype) -> int:
    number = _numbers.get(dtype)
    if number is None:
        if dtype.name not in _horo.DTYPES or not dtype.isnative:
            raise ValueError(f"Tensor type {dtype} is not supported.")
        number = _numbers[dtype] = _horo.DTYPES[dtype.name]
    return number


def as_input(tensor: Any) -> np.ndarray:
    """The array itself where possible; a list, a number or an array with gaps is copied."""
    import numpy as np

    return np.asarray(tensor, order="C")


def as_output(tensor: Any) -> np.ndarray:
    """An array that can be written in place."""
    import numpy as np

    if not isinstance(tensor, np.ndarray):
        raise ValueError(f"an operation in place needs a NumPy array, not {type(tensor).__name__}")
    if not tensor.flags.c_contiguous:
        raise ValueError("Tensor is required to be contiguous.")
    if not tensor.flags.writeable:
        raise ValueError("an operation in place needs an array that can be written; this one is read-only")
    return tensor


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def result_array(native: _horo.Handle, index: int, dtype: np.dtype) -> np.ndarray:
    """The library's memory as an array, which keeps it alive."""
    import numpy as np

    shape = native.shape(index)
    count = 1
    for extent in shape:
        count *= extent
    if count == 0:
        return np.empty(shape, dtype)
    return native.memory(index, count * dtype.itemsize).view(dtype).reshape(shape)


class ArrayAdapter:
    """Results lie in the library's memory, but for operations in place."""

    reader = None

    def take(self, tensor: Any, kind: str) -> Given:
        array = as_input(tensor)
        return Given(array, dtype_number(array.dtype), array.shape, address(array))

    def take_in_place(self, tensor: Any, kind: str) -> Given:
        array = as_output(tensor)
        where = address(array)
        return Given(array, dtype_number(array.dtype), array.shape, where, where, result=array)

    def read(self, native: _horo.Handle, index: int, given: Given) -> np.ndarray:
        return result_array(native, index, given.source.dtype)

    def completion_stream(self, device: int) -> None:
        """Arrays are on the host."""

    def splits(self, rows: Sequence[int], like: Any) -> np.ndarray:
        import numpy as np

        return np.array(rows, dtype=np.int32 if like is None else np.asarray(like).dtype)
