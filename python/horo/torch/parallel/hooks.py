"""Communication hooks: what happens to a bucket of gradients instead of the average over all ranks.

model.register_comm_hook(None, hvd.hooks.fp16)
model.register_comm_hook(hvd.hooks.PowerSGDState(matrix_approximation_rank=2), hvd.hooks.powersgd)
model.register_comm_hook(state, my_hook)   # my_hook(state, bucket) -> torch.futures.Future[torch.Tensor]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


class GradBucket:
    """Gradients that are reduced together, as a hook gets them: not divided by anything."""

    def __init__(
        self,
        index: int,
        count: int,
        buffer: torch.Tensor,
        gradients: list[torch.Tensor],
        parameters: list[torch.Tensor],
    ) -> None:
        self._index = index
        self._count = count
        self._buffer = buffer
        self._gradients = gradients
        self._parameters = parameters

    def index(self) -> int:
        """Buckets are handed to the hook in this order; after the first iteration they are made anew."""
        return self._index

    def buffer(self) -> torch.Tensor:
        """All gradients, flat, one after the other."""
        return self._buffer

    def gradients(self) -> list[torch.Tensor]:
        """The gradients of parameters(), views into the buffer."""
        return self._gradients

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def is_last(self) -> bool:
        """Whether no bucket of this iteration follows."""
        return self._index == self._count - 1

    def set_buffer(self, buffer: torch.Tensor) -> None:
        """Puts another tensor in the buffer's place, for hooks that wrap other hooks."""
        self._buffer = buffer


class BuiltinHook:
    """A hook that runs in the library, without Python."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"horo.torch.hooks.{self.name}"


class PowerSGDState:
    """How hvd.hooks.powersgd makes gradients short (Vogels, Karimireddy and Jaggi 2019): a matrix of n rows and m
    columns travels as two of `matrix_approximation_rank` columns. The names are those of torch's PowerSGDState."""

    def __init__(
        self,
        process_group: None = None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        random_seed: int = 0,
    ) -> None:
        if process_group is not None:
            raise ValueError("the ranks are those of the model; leave process_group out")
        if matrix_approximation_rank < 1:
            raise ValueError(f"matrix_approximation_rank is at least 1, not {matrix_approximation_rank}")
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                f"start_powerSGD_iter is {start_powerSGD_iter}; with use_error_feedback or warm_start it is at least "
                "2, because the buckets are made anew after the first iteration"
            )
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.random_seed = random_seed


allreduce = BuiltinHook("allreduce")
fp16 = BuiltinHook("fp16")
bf16 = BuiltinHook("bf16")
int8 = BuiltinHook("int8")
powersgd = BuiltinHook("powersgd")
_BY_NAME = {one.name: one for one in (allreduce, fp16, bf16, int8, powersgd)}


def builtin(state: Any, hook: Any) -> tuple[BuiltinHook, PowerSGDState | None] | None:
    """The hook of the library that is meant, with its options; None for a hook of the caller's."""
    if isinstance(hook, str):
        if hook not in _BY_NAME:
            raise ValueError(f"there is no hook {hook!r}; there are {', '.join(_BY_NAME)}")
        hook = _BY_NAME[hook]
    if not isinstance(hook, BuiltinHook):
        return None
    if hook is powersgd:
        state = PowerSGDState() if state is None else state
        if not isinstance(state, PowerSGDState):
            raise TypeError(f"the state of {hook} is a horo.torch.hooks.PowerSGDState, not {type(state).__name__}")
        return hook, state
    if state is not None:
        raise TypeError(f"{hook} has no state; give None, not {type(state).__name__}")
    return hook, None


def of_torch(kind: Any) -> BuiltinHook:
    """The hook for one of torch's BuiltinCommHookType."""
    import torch.distributed as dist

    known = {dist.BuiltinCommHookType.ALLREDUCE: allreduce, dist.BuiltinCommHookType.FP16_COMPRESS: fp16}
    if kind not in known:
        raise ValueError(f"there is no built-in hook {kind!r}; there are {', '.join(str(one) for one in known)}")
    return known[kind]


def check(hook: Any) -> None:
    """That a hook of the caller's has the signature hook(state, bucket)."""
    import torch.distributed as dist

    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    try:
        signature = inspect.signature(hook, eval_str=True)  # Annotations may be postponed.
    except (NameError, AttributeError, TypeError):
        signature = inspect.signature(hook)
    if "bucket" not in signature.parameters:
        raise ValueError("Communication hook: it takes (state, bucket), but no parameter of it is called bucket.")
    given = signature.parameters["bucket"].annotation
    if given not in (inspect.Parameter.empty, dist.GradBucket, GradBucket, Any, object):
        raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
    returned = signature.return_annotation
    future = torch.futures.Future
    if returned not in (inspect.Signature.empty, future[torch.Tensor], future, Any):
        raise ValueError("Communication hook: return annotation should be torch.futures.Future[torch.Tensor].")
    module = getattr(hook, "__module__", "") or ""
    if module.startswith("torch.distributed.algorithms.ddp_comm_hooks") and not dist.is_initialized():
        raise RuntimeError(
            f"{hook.__name__} is torch's own and reduces over a process group of torch: call "
            'torch.distributed.init_process_group("horo") first, or use the hooks of horo.torch.hooks'
        )


def name_of(hook: Callable) -> str:
    return getattr(hook, "__qualname__", None) or type(hook).__qualname__


def result_of(future: Any, bucket: GradBucket) -> torch.Tensor:
    """Waits for a hook's future. What it brings must be what the bucket was."""
    value = future.wait()
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"its future holds {type(value).__name__}, not a tensor")
    wanted = bucket.buffer()
    if value.numel() != wanted.numel() or value.dtype != wanted.dtype or value.is_sparse != wanted.is_sparse:
        raise ValueError(
            f"its future holds {value.numel()} elements of {value.dtype}, but the bucket has {wanted.numel()} of "
            f"{wanted.dtype}"
        )
    if value.device != wanted.device:
        raise ValueError(f"its future holds a tensor on {value.device}, but the bucket is on {wanted.device}")
    return value


def _follows_a_failure(error: BaseException | None) -> bool:
    """Whether an operation in a hook failed only because another rank's hook had failed before."""
    while error is not None:
        # Of an exception that has passed through a chain of torch's futures only the words are left.
        if getattr(error, "code", None) == "mismatch" or "HorovodInternalError: mismatch: " in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


class PythonHook:
    """A hook of the caller's, and what it is doing in this iteration."""

    def __init__(self, state: Any, hook: Callable) -> None:
        self.state = state
        self.hook = hook
        self.problem: Exception | None = None
        self.sparse: set[int] = set()
        self._words = ""
        self._under_way: list[tuple[GradBucket, str, Any]] = []

    def reset(self) -> None:
        self.problem, self._words = None, ""
        self.sparse.clear()
        self._under_way.clear()

    def call(self, bucket: GradBucket, first: str) -> None:
        """A failure is kept until the end: other ranks are to hear of it, and may be waiting for this bucket."""
        try:
            future = self.hook(self.state, bucket)
            if not isinstance(future, torch._C.Future):  # What then() gives is not one of torch.futures.
                raise TypeError(f"it returned {type(future).__name__}, not a torch.futures.Future")
        except Exception as error:
            self._note(error, first)
        else:
            self._under_way.append((bucket, first, future))

    def _note(self, error: Exception, first: str) -> None:
        if self.problem is None:
            self.problem = error
            self._words = (
                f"communication hook {name_of(self.hook)} failed for the bucket that begins with parameter '{first}': "
                f"{type(error).__name__}: {error}"
            )

    def deliver(self, native: Any, members: Any, flats: Any = None) -> None:
        """Waits for the futures and hands over what they bring, to `flats` where those have the buckets. After a
        failure on any rank the iteration fails on all, and before that nobody waits for a future that the failed rank
        has no part in."""
        if not self._agreed(members, ok=native.all_launched() and self.problem is None):
            self._give_up(native)
            return
        results = []
        for bucket, first, future in self._under_way:
            try:
                results.append((bucket, result_of(future, bucket)))
            except Exception as error:
                self._note(error, first)
        if not self._agreed(members, ok=self.problem is None):
            self._give_up(native)
            return
        for bucket, result in results:
            if flats is not None:
                flats.deliver(bucket, result)
            else:
                _hand_over(native, bucket, result)

    def _give_up(self, native: Any) -> None:
        """The error to be raised is that of the rank where something is wrong."""
        if self.problem is not None:
            native.fail(self._words, follows=_follows_a_failure(self.problem))
            return
        for bucket, _, _ in self._under_way:
            native.deliver(bucket.index(), 0)

    def _agreed(self, members: Any, *, ok: bool) -> bool:
        return all(one[0] for one in members.exchange_numbers([int(ok)]))


def _hand_over(native: Any, bucket: GradBucket, result: torch.Tensor) -> None:
    if result.is_sparse:
        bucket.parameters()[0].grad = result
        native.deliver(bucket.index(), 0)
        return
    flat = result.detach().reshape(-1).contiguous()
    native.deliver(bucket.index(), flat.data_ptr())
