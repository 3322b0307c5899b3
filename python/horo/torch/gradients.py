"""Gradients on their way: who has come, what is handed in, what is waited for.

A *parcel* is what is reduced as one: a group of gradients, or a bucket. It is handed in when the last of its gradients
has come. What is in none travels alone. Single gradients are handed in several at a time, which costs one call instead
of hundreds.
"""

from __future__ import annotations

import contextlib
import operator
import os
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from horo import _horo
from horo.collectives import reduction
from horo.handles import Handle
from horo.torch.agreement import Agreement
from horo.torch.compression import NoneCompressor
from horo.torch.mpi_ops import allreduce_async_, sparse_allreduce_async
from horo.torch.parcels import Parcel, Settings, Slot, too_many
from horo.torch.tensors import dtype_number, is_lazy, stream_of, tensor_reader
from horo.world import world

# So much is put together before it is handed in: small enough that the first bytes travel while the backward pass goes
# on, and large enough that it is not interrupted all the time, which costs more than is gained on cores that are busy
# (bench/torch_step.py: 1 MiB costs 1.3 to 2 ms more per step with 300 tensors of 16 KiB).
_FLUSH_BYTES = 8 << 20
# How long the end of a backward pass waits for other ranks that were with this one at the end of an earlier pass of the
# step: they may have no further one, and want something else.
_PATIENCE_SECONDS = 5.0


def waits_in_backward() -> bool:
    return os.environ.get("HORO_WAIT_IN_BACKWARD", "1").strip().lower() not in ("0", "false", "no", "off")


class Gradients:
    """The reductions of one optimizer's gradients."""

    averages_losses = True  # Of closures.
    in_gradients = True  # That is what is reduced.

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[torch.Tensor, str], settings: Settings) -> None:
        self.optimizer = optimizer
        self.names = names
        self.settings = settings
        self._arrivals = _horo.Arrivals(world, tensor_reader(), torch._C._current_graph_task_id, _FLUSH_BYTES)
        self._hooked = world.runtime.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1"
        self._waits = waits_in_backward()
        self._runtime: _horo.Runtime | None = None
        self._era = 0
        self._works = False
        self._agreement = Agreement(self._arrivals, settings.process_set)
        self._patient = True  # As long as no other rank was waited for in vain.
        self._warned = False
        self._under_way: list[tuple[Handle | Callable[[], Any], list[tuple[Slot | Parcel, Any, Any]]]] = []
        self.slots: dict[torch.Tensor, Slot] = {}
        self._adopted: list[torch.Tensor] = []
        self._frozen: list[Slot] = []  # Have no hook.
        self._apart: list[tuple[Slot, Parcel]] = []  # Parcels that were taken apart in this step.
        self._parted = False  # All ranks have the same part of a parcel, and wait for the rest.
        self._hooks: list[Any] = []
        weakref.finalize(self, _remove, self._hooks)
        self.adopt()
        self.works()

    # ---- Parameters

    def adopt(self) -> list[Slot]:
        """Looks for parameters that are new. Returns them."""
        params = [param for group in self.optimizer.param_groups for param in group["params"]]
        new: list[Slot] = []
        if len(params) != len(self._adopted) or not all(map(operator.is_, params, self._adopted)):
            self._adopted = params
            for number, group in enumerate(self.optimizer.param_groups):
                for index, param in enumerate(group["params"]):
                    if param not in self.slots:
                        name = self.names.setdefault(param, f"allreduce.noname.{number}.{index}")
                        slot = Slot(param, name, self._arrivals, weakref.ref(self), self.settings.passes)
                        self.slots[param] = slot
                        new.append(slot)
            self._frozen += new
        if self._frozen and self._hooked:
            for slot in self._frozen:
                if slot.param.requires_grad:
                    slot.hook = slot.param.register_post_accumulate_grad_hook(slot)
                    self._hooks.append(slot.hook)
            self._frozen = [slot for slot in self._frozen if slot.hook is None]
        return new

    def works(self) -> bool:
        """Whether there is anybody to reduce with."""
        runtime = world.runtime
        if world.era != self._era:
            self._runtime, self._era = runtime, world.era
            ranks = self.settings.process_set
            self._works = self._hooked and ranks.included() and ranks.size() > 1
            self._arrivals.runtime = runtime if self._works and self.in_gradients else None
            self._arrivals.era = self._era
            self._under_way = []  # What belonged to other ranks has ended.
            self.reset()
            self.joined()
        return self._works

    def joined(self) -> None:
        """The job was joined, for the first time or anew."""

    def set_passes(self, passes: int) -> None:
        self.settings = self.settings._replace(passes=passes)
        for slot in self.slots.values():
            slot.left = passes

    @property
    def synchronized(self) -> bool:
        return self._arrivals.synchronized

    @synchronized.setter
    def synchronized(self, value: bool) -> None:
        self._arrivals.synchronized = value

    # ---- What the hooks of parameters do

    def arrived(self, slot: Slot) -> None:
        """A gradient has come that is unusual, or at an unusual time. The hooks do the same for all others, and call
        flush(), send() of a parcel, and watch_end() when these are due."""
        if not self.works():
            return
        if slot.left <= 0 or slot.sent:
            raise too_many(slot)
        gradient = slot.param.grad
        if gradient.requires_grad:
            raise _not_reduced(slot)
        slot.left -= 1
        self.synchronized = False
        if slot.left == 0:
            self._ready(slot, gradient)
        elif slot.parcel is not None:
            slot.parcel.take(slot, gradient)
        self.watch_end()

    def move_in(self, slots: list[Slot]) -> list[Slot]:
        """Moves what has come to its places in a bucket, but for what it returns."""
        return self._arrivals.move_in(slots)

    def take_again(self, slots: list[Slot]) -> None:
        """Their gradients were taken to be as in the last step, and are not."""
        for slot in slots:
            slot.sent = False
            slot.left += 1
            self._arrivals.sent -= 1
        for slot in slots:
            self.arrived(slot)

    def _ready(self, slot: Slot, gradient: torch.Tensor) -> None:
        slot.sent = True
        self._arrivals.sent += 1
        if gradient.is_sparse and not self._made_dense(slot, gradient):
            return
        gradient = slot.param.grad
        if slot.parcel is None:
            if self._arrivals.add(slot, gradient.nbytes):
                self.flush()
            return
        slot.parcel.take(slot, gradient)
        slot.parcel.missing -= 1
        if slot.parcel.missing == 0:
            slot.parcel.send(self)

    def _made_dense(self, slot: Slot, gradient: torch.Tensor) -> bool:
        """False: it is on its way as it is."""
        if self.settings.sparse_as_dense:
            slot.param.grad = gradient.to_dense()
            return True
        self._send_sparse(slot, gradient)
        return False

    def _send_sparse(self, slot: Slot, gradient: torch.Tensor) -> None:
        if slot.parcel is not None:
            raise ValueError(
                f"the gradient of parameter '{slot.name}' is sparse, which cannot be part of a group or a bucket; "
                "use sparse_as_dense=True"
            )
        slot.sparse = gradient.sparse_dim()
        wait = sparse_allreduce_async(gradient, slot.name, self.settings.op, self.settings.process_set)
        self._under_way.append((wait, [(slot, None, None)]))

    def flush(self, *, waits: bool = False) -> None:
        """Hands in what has come and travels alone. `waits`: they are waited for next. This thread does the work then,
        and no other is woken that would have the core from it."""
        if not self._arrivals.pending:
            return
        slots = self._arrivals.take_pending()
        if self._handed_in_as_they_lie(slots, together=False, waits=waits):
            return
        # Of those that were usual in the last step nobody has looked at the gradient yet.
        refused = [slot for slot in slots if slot.param.grad.requires_grad]
        for slot in refused:
            slot.sent = False
            slot.left += 1
            self._arrivals.sent -= 1
        slots = [slot for slot in slots if slot.sent]
        dense = [slot for slot in slots if not slot.param.grad.is_sparse or self._made_dense(slot, slot.param.grad)]
        self._send_each(dense, together=False)
        if refused:
            raise _not_reduced(refused[0])

    def send(self, slots: list[Slot], *, together: bool) -> None:
        if not self._handed_in_as_they_lie(slots, together=together):
            self._send_each(slots, together=together)

    def _handed_in_as_they_lie(self, slots: list[Slot], *, together: bool, waits: bool = False) -> bool:
        if self.settings.compression is not NoneCompressor:
            return False
        batch = self._arrivals.hand_in(slots, self.settings.process_set.number(), together, waits)
        if batch is not None:
            self.began(Handle(batch, None), [])
        return batch is not None

    def _send_each(self, slots: list[Slot], *, together: bool) -> None:
        compression = self.settings.compression
        if compression is NoneCompressor:
            given = [(slot, slot.param.grad, None) for slot in slots]
        else:
            given = [(slot, *compression.compress(slot.param.grad)) for slot in slots]
        natives, sent = [], []
        for one in given:
            slot, tensor, context = one
            if not (tensor.is_contiguous() and tensor.is_cpu) or is_lazy(tensor):
                self._send_alone(slot, tensor, context)
                continue
            native = slot.native
            if native is None or tensor.dtype is not slot.dtype:
                native = slot.native = self.make_native(slot.name, tensor)
                slot.dtype = tensor.dtype
            address = tensor.data_ptr()
            native.point_to(address, address)
            natives.append(native)
            sent.append(one)
        if natives:
            self.hand_in(natives, sent, together=together)

    def _send_alone(self, slot: Slot, tensor: torch.Tensor, context: Any) -> None:
        """What lies unusually, or nowhere that horo can reach: the operation knows what to do, or to say."""
        before, after = self.settings.scales()
        handle = allreduce_async_(
            tensor,
            name=slot.name,
            op=self.settings.op,
            prescale_factor=before,
            postscale_factor=after,
            process_set=self.settings.process_set,
        )
        self.began(handle, [(slot, tensor, context)])

    def hand_in(
        self, natives: list[_horo.Reduction], sent: list[tuple[Slot | Parcel, Any, Any]], *, together: bool
    ) -> None:
        batch = self._runtime.reduce(natives, self.settings.process_set.number(), sent, together)
        self.began(Handle(batch, None), sent)

    def began(self, handle: Handle, sent: list[tuple[Slot | Parcel, Any, Any]]) -> None:
        self._under_way.append((handle, sent))

    def make_native(self, name: str, tensor: torch.Tensor) -> _horo.Reduction:
        before, after = self.settings.scales()
        op = reduction(None, self.settings.op)
        return _horo.Reduction(
            f"allreduce.{name}", dtype_number(tensor, "allreduce"), op, before, after, list(tensor.shape)
        )

    # ---- The end of a backward pass

    def watch_end(self) -> None:
        # Not a flag: a pass that failed never ends, and the next has another number.
        task = torch._C._current_graph_task_id()
        if task != self._arrivals.watched:
            self._arrivals.watched = task
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ended)

    def _backward_ended(self) -> None:
        missing = self._missing()
        if not missing:
            self._close_parcels()
        compares = self._waits and bool(self._compared(self._agreement.is_due))
        waits = compares and (self._patient or self._agreement.rounds == 0)
        self.flush(waits=waits)
        if compares:
            self._agreement.begin(self._name(), missing, waits=waits)
        if waits:
            # Behind the callbacks of other optimizers: what one has not handed in yet, another rank may wait for.
            torch.autograd.Variable._execution_engine.queue_callback(self._wait_in_backward)

    def _wait_in_backward(self) -> None:
        # Every rank comes to the end of a backward pass, or to synchronize(), however late. Not so for a second pass.
        first = self._agreement.rounds == 0
        equal = self._compared(lambda: self._agreement.reached(None if first else _PATIENCE_SECONDS))
        if equal:
            if first:
                self._take_apart()
            self._wait()
        if equal is None:
            self._patient = False
        self._parted = bool(equal) and self._in_part()
        if self._warned or (equal and not self._parted):
            return
        self._warned = True
        if equal:
            why = "it brought a part of a group or bucket, and was not the first of the step"
        else:
            which = "none so far" if equal is None else "those of other parameters"
            why = f"on other ranks it brought {which}"
        warnings.warn(
            f"gradients of this backward pass are not averages yet, because {why}; step() waits for them. Call "
            "synchronize() before they are used, for example clipped.",
            stacklevel=2,
        )

    def _compared(self, wait: Callable[[], bool | None]) -> bool | None:
        """What a round of the agreement gives. If it fails, so does what is under way."""
        try:
            return wait()
        except RuntimeError:
            with contextlib.suppress(RuntimeError):
                self._wait()
            self.reset()
            raise

    # ---- The end of a step

    def check_skipping(self) -> None:
        """Whether step() may be left alone."""

    def step(self, closure: Callable[[], Any] | None) -> Any:
        self.synchronized = False
        return self.optimizer.step(closure)

    def _name(self) -> str:
        return next(iter(self.slots.values())).name

    def loss_name(self) -> str:
        return f"{self._name()}.loss"

    def _all_sent(self) -> bool:
        return self._arrivals.sent == len(self.slots)

    def _missing(self) -> list[Slot]:
        if self._all_sent():
            return []
        return [slot for slot in self.slots.values() if not slot.sent and slot.param.requires_grad]

    def _fill(self, missing: Iterable[Slot]) -> None:
        for slot in missing:
            if slot.param.grad is None:
                slot.param.grad = slot.zeros()
            elif slot.param.grad.requires_grad:
                slot.param.grad = slot.param.grad.detach()  # Of a pass that was refused.
            self._ready(slot, slot.param.grad)

    def _close_parcels(self) -> None:
        """All gradients that can come have come: parcels with frozen parameters go without these."""
        if self._all_sent():
            return
        for slot in self.slots.values():
            parcel = slot.parcel
            if parcel is not None and 0 < parcel.missing < len(parcel.slots):
                parcel.missing = 0
                parcel.send(self)

    def _take_apart(self) -> None:
        """A step's first pass has brought the same gradients on all ranks. What it brought of parcels that lack others
        travels alone, and so do these, if they come later in this step. All ranks do so here, where all wait, and none
        has a later pass yet."""
        apart = [slot for slot in self._unsent() if slot.parcel.missing < len(slot.parcel.slots)]
        for slot in apart:
            self._apart.append((slot, slot.parcel))
            slot.parcel = None
            if slot.sent:
                self._arrivals.add(slot, slot.param.nbytes)
        self.flush(waits=True)

    def _unsent(self) -> list[Slot]:
        """Of parcels that were not handed in."""
        if self._all_sent():
            return []
        return [slot for slot in self.slots.values() if slot.parcel is not None and slot.parcel.missing > 0]

    def _in_part(self) -> bool:
        """Whether gradients have come that wait for others of their parcel."""
        return any(slot.sent for slot in self._unsent())

    def synchronize(self) -> None:
        if not self.works():
            self.synchronized = True
            return
        try:
            self.adopt()
            self._fill(self._missing())
            self._close_parcels()
            self.flush(waits=True)
            if self._waits:
                self._compared(lambda: self._agreement.settle(self._name()))
            self._wait()
        finally:
            self.reset()
        self.synchronized = True

    def reset(self) -> None:
        """The next backward pass is the first of a step."""
        for slot, parcel in self._apart:
            slot.parcel = parcel
        self._apart = []
        self._parted = False
        self._arrivals.reset(self.slots, self.settings.passes)
        self._agreement.reset()

    def outstanding(self) -> bool:
        return bool(self._under_way or self._arrivals.pending or self._agreement.under_way() or self._parted)

    def untouched(self) -> bool:
        """No gradient has come since the last synchronize()."""
        return self._arrivals.sent == 0 and all(slot.left == self.settings.passes for slot in self.slots.values())

    def _wait(self) -> None:
        """For all that is under way. Of several failures the first is raised, after the end of the others."""
        failure: BaseException | None = None
        while self._under_way:
            handle, sent = self._under_way[0]
            # On a GPU it is the stream that waits: what uses the gradients is put there.
            tensor = sent[0][1] if sent else None
            stream = stream_of(tensor) if isinstance(tensor, torch.Tensor) else None
            self._under_way.pop(0)
            try:
                self._finish(handle.wait(stream) if isinstance(handle, Handle) else handle(), sent)
            except RuntimeError as error:
                failure = failure or error
        if failure is not None:
            self.reset()
            raise failure

    def _finish(self, result: Any, sent: list[tuple[Slot | Parcel, Any, Any]]) -> None:
        compression = self.settings.compression
        if compression is NoneCompressor and result is None:
            return
        for whose, tensor, context in sent:
            if isinstance(whose, Parcel):
                whose.finish(compression, tensor, context)
            elif tensor is None:
                whose.param.grad = result
            elif compression is not NoneCompressor:
                whose.param.grad.copy_(compression.decompress(tensor, context))


def _not_reduced(slot: Slot) -> AssertionError:
    return AssertionError(f"the gradient of parameter '{slot.name}' requires a gradient; reduce it yourself")


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
