from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

KINDS: dict[str, int]
DTYPES: dict[str, int]
REDUCTIONS: dict[str, int]

def build_info() -> dict[str, str]: ...
def mpi_built() -> bool: ...

class Reduction:
    def __init__(
        self, name: str, dtype: int, op: int, prescale: float, postscale: float, shape: Sequence[int]
    ) -> None: ...
    @property
    def dtype(self) -> int: ...
    def point_to(self, input: int, output: int) -> None: ...

class Batch:
    def done(self) -> bool: ...
    def wait(self, seconds: float) -> bool: ...

class TensorReader:
    def __init__(self, tensor_class: type, strided: object, dtypes: dict[Any, int], exchange: bool) -> None: ...
    @property
    def exchanges(self) -> bool: ...
    def read(self, tensor: Any) -> tuple[int, int, tuple[int, ...], tuple[int, ...], int, bool] | None: ...

class Parcel:
    missing: int
    def __init__(self, size: int) -> None: ...

class Slot:
    left: int
    sent: bool
    parcel: Any
    native: Reduction | None
    view: Any
    def __init__(self, param: Any, arrivals: Arrivals, gradients: Callable[[], Any], passes: int) -> None: ...
    @property
    def param(self) -> Any: ...
    def __call__(self, param: Any) -> None: ...

class Arrivals:
    runtime: Runtime | None
    era: int | None
    synchronized: bool
    sent: int
    watched: int
    def __init__(self, world: object, reader: TensorReader, current_pass: Callable[[], int], enough: int) -> None: ...
    @property
    def pending(self) -> int: ...
    def add(self, slot: Slot, bytes: int) -> bool: ...
    def take_pending(self) -> list[Any]: ...
    def reset(self, slots: dict[Any, Any], passes: int) -> None: ...
    def move_in(self, slots: list[Any]) -> list[Any]: ...
    def hand_in(self, slots: list[Any], process_set: int, together: bool, waits: bool) -> Batch | None: ...

def devices() -> tuple[str, bool]: ...
def allocate_on(place: Group | Runtime, device: int, bytes: int) -> DeviceMemory: ...
def cast(
    group: Group,
    to: int,
    source: int,
    arrays: Sequence[tuple[int, int, int, int]],
    device: int = -1,
    stream: int = 0,
    add: bool = False,
    factor: float = 1.0,
) -> None: ...

class DeviceMemory:
    @property
    def address(self) -> int: ...

class Handle:
    def done(self) -> bool: ...
    def wait(self, seconds: float, stream: int | None = None) -> bool: ...
    def answer(self) -> int: ...
    def shape(self, index: int) -> tuple[int, ...]: ...
    def memory(self, index: int, bytes: int) -> np.ndarray: ...
    def address(self, index: int) -> int: ...
    def received_splits(self, index: int) -> list[int]: ...

class Completions:
    def __init__(self) -> None: ...
    def take(self, seconds: float) -> list[int]: ...
    def close(self) -> None: ...

class Request:
    def done(self) -> bool: ...
    def wait(self, seconds: float, stream: int | None = None) -> bool: ...
    def source(self) -> int: ...
    def tell(self, completions: Completions, number: int) -> None: ...

class Group:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def ranks(self) -> list[int]: ...
    def transport(self) -> str: ...
    def give_up(self, why: str) -> None: ...
    def send(self, to: int, tag: int, address: int, bytes: int, memory: object, timeout: float) -> Request: ...
    def receive(self, from_: int, tag: int, address: int, bytes: int, memory: object, timeout: float) -> Request: ...
    def submit(
        self,
        kind: int,
        input: int,
        output: int,
        memory: object,
        *,
        dtype: int = ...,
        op: int = ...,
        count: int = 0,
        root: int = 0,
        target: int = 0,
        counts: Sequence[int] = (),
        receive_counts: Sequence[int] = (),
        prescale: float = 1.0,
        postscale: float = 1.0,
        timeout: float = 0.0,
        device: int = ...,
        stream: int = ...,
    ) -> Request: ...
    def run(
        self,
        kind: int,
        input: int,
        output: int,
        *,
        dtype: int = ...,
        op: int = ...,
        count: int = 0,
        root: int = 0,
        target: int = 0,
        counts: Sequence[int] = (),
        receive_counts: Sequence[int] = (),
        prescale: float = 1.0,
        postscale: float = 1.0,
        timeout: float = 0.0,
        device: int = -1,
        stream: int = 0,
    ) -> None: ...

class Store:
    def __init__(self, address: str, job: str, key: bytes | None) -> None: ...
    @property
    def address(self) -> str: ...
    def ask_to_leave(self, seat: int, why: str) -> None: ...
    def newcomer_ended(self, seat: int) -> None: ...
    def close(self) -> None: ...

class Engine:
    def __init__(
        self, rank: int, size: int, store: str | None, job: str, key: bytes | None, settings: Sequence[str]
    ) -> None: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def local_rank(self) -> int: ...
    def local_size(self) -> int: ...
    def members(self) -> list[int]: ...
    def world(self) -> Group: ...
    def group(self, ranks: Sequence[int]) -> Group: ...
    def open_messages(self) -> None: ...
    def allocate(self, bytes: int) -> np.ndarray: ...
    def shutdown(self) -> None: ...

class Runtime:
    def __init__(
        self,
        process_sets: list[list[int]],
        predecessor: Runtime | None,
        place: tuple[int, int, str | None, str, bytes | None, Sequence[str]] | None = None,
        communicator: int | None = None,
        ranks: Sequence[int] = (),
        generation: tuple[str, int, int] | None = None,
    ) -> None: ...
    def shutdown(self) -> None: ...
    @staticmethod
    def decline(
        predecessor: Runtime | None, place: tuple[int, int, str | None, str, bytes | None, Sequence[str]]
    ) -> None: ...
    def publish(self) -> None: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def local_rank(self) -> int: ...
    def local_size(self) -> int: ...
    def cross_rank(self) -> int: ...
    def cross_size(self) -> int: ...
    def is_homogeneous(self) -> bool: ...
    def mpi_enabled(self) -> bool: ...
    def mpi_threads(self) -> bool: ...
    def start_timeline(self, path: str, mark_cycles: bool) -> None: ...
    def stop_timeline(self) -> None: ...
    def operation_metrics(self, kind: int, process_set: int) -> dict[str, Any]: ...
    def set_metrics(self, process_set: int) -> dict[str, int]: ...
    def metrics_text(self) -> str: ...
    def allreduce_in_place(
        self,
        reader: TensorReader,
        tensor: Any,
        name: str,
        process_set: int,
        op: int,
        prescale: float,
        postscale: float,
        wait: float,
    ) -> Handle | None: ...
    def submit(
        self,
        process_set: int,
        kind: int,
        op: int,
        root: int,
        prescale: float,
        postscale: float,
        splits: Sequence[int],
        tensors: list[tuple[str, int, Sequence[int], Sequence[int] | None, int, int]],
        memory: object,
        wait: float,
        device: int = ...,
        stream: int = ...,
    ) -> Handle: ...
    def reduce(
        self, reductions: list[Reduction], process_set: int, memory: object, together: bool, waits: bool = False
    ) -> Batch: ...
    def allocate(self, bytes: int) -> np.ndarray: ...
    def join(self, process_set: int) -> Handle: ...
    def add_set(self, ranks: list[int]) -> int: ...
    def remove_set(self, process_set: int) -> None: ...
    def set_numbers(self) -> list[int]: ...
    def set_ranks(self, process_set: int) -> list[int]: ...
    def group(self, ranks: Sequence[int]) -> Group: ...

class Door:
    def __init__(self, runtime: Runtime) -> None: ...
    def news(self, timeout: float) -> int: ...
    def look(self) -> tuple[list[int], list[int]]: ...
    def begin(self) -> str: ...
    def admit(self, generation: str, size: int, count: int) -> None: ...
    def close(self) -> None: ...

class Reducer:
    """Reduces the gradients of a model in buckets, while the backward pass runs (docs/ddp.md).

    All members of `group` (used by nobody else, kept alive) make it together; parameters that differ between ranks
    raise on all of them. A parameter is (name, dtype number, shape, strides or None, device number, is sparse).
    Limits are bytes: of the first bucket of each dtype and device, of the second, and so on; the last is for the rest.
    No first limits: one bucket. No rebuilt limits: no rebuild.
    """

    def __init__(
        self,
        group: Group,
        reader: TensorReader,
        parameters: Sequence[tuple[str, int, Sequence[int], Sequence[int] | None, int, bool]],
        *,
        first_limits: Sequence[int],
        rebuilt_limits: Sequence[int],
        find_unused: bool = False,
        static_graph: bool = False,
        views: bool = False,
        skip_unused: bool = False,
        small_bucket_last: bool = False,
    ) -> None: ...

    # Buckets; constant until prepare_forward() returns True.
    def buckets(self) -> list[list[int]]:
        """The parameters of each bucket, in launch order."""
    def memory(self, bucket: int) -> np.ndarray:
        """All bytes of a bucket, writable, valid for as long as the array lives. Not of sparse buckets."""
    def slot(self, parameter: int) -> tuple[int, int]:
        """(bucket, bytes from its beginning)"""

    def set_views(self, views: Sequence[Any] | None) -> None:
        """With views=True: for each parameter the tensor over its slot that .grad becomes, None for sparse ones. Again
        after a rebuild."""
    def hook(self, parameter: int) -> Callable[[Any], None]:
        """What goes to parameter.register_post_accumulate_grad_hook: reads parameter.grad and calls ready(). Where the
        gradient does not lie as the parameter does, or has another dtype, or is sparse or elsewhere, on_odd is called
        instead. With views .grad becomes the view here. Calls on_bucket and on_launched as they are due. Holds the
        parameter until finish(), and the reducer weakly. After an error the iteration is ended on all ranks
        before it is raised."""
    def on_bucket(self, callback: Callable[[int], None] | None) -> None:
        """Called with each bucket that the caller reduces (sparse; all with hook "caller"), in launch order; the
        buckets behind it follow when it has returned. What it raises ends the iteration on all ranks."""
    def on_launched(self, callback: Callable[[], None] | None) -> None:
        """Called once in an iteration, by a hook, when finish() would not miss anything."""
    def on_odd(self, callback: Callable[[int, Any], None] | None) -> None:
        """Called with (number, parameter); is to call ready() with the address of a dense copy of the gradient, or of
        the slot after it copied the gradient there, or 0."""

    # One iteration.
    def prepare_forward(self) -> bool:
        """Before the forward pass. True: the buckets were rebuilt: ask for buckets, memory and slots again."""
    def prepare_backward(self, synchronize: bool, unused: Sequence[tuple[int, int]]) -> None:
        """After the forward pass. Unused: (number, address of what .grad holds, which is reduced too, or 0)."""
    def ready(self, parameter: int, address: int) -> None:
        """The gradient is complete; 0: it has none. Copies it and never waits. Calls on_bucket and on_launched."""
    def ready_all(self) -> None:
        """Every parameter that is not ready yet is so, without a gradient (a rank that has joined)."""
    def deliver(self, bucket: int, address: int) -> None:
        """Before finish(): the result of a bucket that on_bucket got; 0: it is in the bucket, or sparse."""
    def end_backward(self) -> None:
        """No gradients come any more; finish() would say so, too. Calls on_bucket and on_launched."""
    def all_launched(self) -> bool: ...
    def under_way(self) -> bool:
        """Whether a gradient came since prepare_backward(), and finish() was not called yet."""
    def fail(self, why: str, *, follows: bool = False) -> None:
        """This iteration ends with an error on all ranks; finish() raises it."""
    def finish(self) -> list[int]:
        """Waits without the interpreter's lock, and for Ctrl-C; copies the results to where .grad of the parameters is
        now that a hook saw, else to the addresses given. One outcome for each parameter: OUTCOMES. "without_place": no
        gradient, or one that lies otherwise (odd): make it of the slot. With views .grad of the parameters
        that a hook saw is the view now; of unused ones that is left to the caller. Raises on all ranks when one rank
        misses a parameter. Calls on_bucket first where the first iteration of a static graph needs it."""

    # Settings, the same on all ranks, between two iterations.
    def set_hook(
        self,
        kind: str,
        *,
        rank: int = 1,
        start_iteration: int = 1000,
        min_compression_rate: float = 2.0,
        error_feedback: bool = True,
        warm_start: bool = True,
        seed: int = 0,
    ) -> None:
        """ "allreduce" (default), "fp16", "bf16", "int8", "powersgd", "caller"."""
    def set_divisor(self, divisor: float) -> None:
        """What sums are divided by; 0: the number of members. Not for "caller"."""
    def set_sample_rate(self, iterations: int) -> None: ...
    def set_static_graph(self) -> None: ...
    def statistics(self) -> dict[str, Any]:
        """Fields of horo_reduction_statistics; "last" is a dict of times."""
    def ready_order(self) -> list[int]:
        """The order in which the gradients of the last finished iteration became complete."""

OUTCOMES: dict[str, int]
"""Of finish(): "reduced", "untouched" (no rank used it), "without_place" (make a gradient of the slot), "by_caller"."""
