"""The wrapper of a module whose gradients are averaged over ranks in the backward pass."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.algorithms.join import Join, Joinable
from torch.distributed.utils import _to_kwargs
from torch.nn.parallel.distributed import _BufferCommHookLocation

from horo.process_sets import ProcessSet
from horo.torch.compiling import uncompiled
from horo.torch.parallel import graph, hooks, record, settings
from horo.torch.parallel.join import UnevenInputs, UnevenInputsHook
from horo.torch.parallel.members import Members, resolve
from horo.torch.parallel.parameters import Parameters, is_ignored
from horo.torch.parallel.precision import Precision
from horo.torch.parallel.reduction import Options, Reduction

_NOT_PICKLED = ("process_group", "reducer", "uneven")


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """torch.nn.parallel.DistributedDataParallel over horo, with the same arguments; docs/ddp.md has a table of them.

    Works after hvd.init() alone. `process_group` is a ProcessSet, or a process group of torch's back end "horo";
    without it, all ranks of the job. Gradients are averages of all ranks when backward() returns.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        torch.nn.Module.__init__(self)  # Not torch's own: that one wants a process group of torch, and makes a reducer.
        Joinable.__init__(self)
        settings.check_module(module)
        settings.refuse_delayed(delay_all_reduce_named_params, param_to_hook_all_reduce)
        if check_reduction:
            warnings.warn(
                "The `check_reduction` argument is deprecated and has no effect.", FutureWarning, stacklevel=2
            )
        buffers = settings.Buffers.of(broadcast_buffers, forward_sync_buffers)
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(name, one) for name, one in module.named_parameters() if not self._is_ignored(name)]
        settings.check_parameters(named)
        settings.refuse_torch_sync_batch_norm(module)
        self._module_parameters = [one for _, one in named]
        settings.refuse_optimizers_in_backward(self._module_parameters)
        self.process_group = resolve(settings.group_of(process_group, device_mesh))
        if device_mesh is not None:
            self.device_mesh = device_mesh
        self.module = module
        self.dim = dim
        self.device = self._module_parameters[0].device
        self.device_type = self.device.type
        self.device_ids = settings.check_devices(device_ids, output_device, self.device)
        self.output_device = None if self.device_ids is None else self.device_ids[0]
        self.is_multi_device_module = False
        self.forward_sync_buffers = buffers.forward
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.batched_grad_copy = batched_grad_copy
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.mixed_precision = mixed_precision
        self.static_graph = bool(static_graph)
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self._caps = settings.Caps.of(bucket_cap_mb, bucket_cap_mb_list)
        # For torch.compile, which cuts graphs where buckets end.
        self.bucket_bytes_cap = self._caps.cap
        self.bucket_bytes_cap_default = self._caps.first < self._caps.cap
        self.bucket_bytes_cap_list = list(self._caps.each)
        self._set_up()
        if init_sync:
            self.broadcast_model(0, buffers=buffers.init)

    def _set_up(self) -> None:
        self.logger = None
        self.uneven: UnevenInputs | None = None
        self._comm_hooks: list[tuple[Any, Any]] = []
        self._ddp_sink_clone = True
        self._delay_all_reduce_all_params = self._use_python_reducer = False
        self.broadcast_bucket_size = settings.BROADCAST_BYTES
        self.use_side_stream_for_tensor_copies = False
        self._lazy_init_ran = True
        self._input_ids: set[int] = set()
        self._sample_rate: int | None = None
        self._precision: Precision | None = None
        if self.mixed_precision is not None:
            self._precision = Precision(self.mixed_precision, self.module, self.parameters_to_ignore)
        self._assign_modules_buffers()
        self._connect()

    def _connect(self) -> None:
        """Makes the reducer, together with the other members."""
        before = self.__dict__.get("reducer")
        if before is not None:
            before.remove_hooks()
        options = Options(
            self._caps.at_first(static_graph=self.static_graph, find_unused=self.find_unused_parameters),
            self._caps.rebuilt(),
            find_unused=self.find_unused_parameters,
            static_graph=self.static_graph,
            views=self.gradient_as_bucket_view and self._precision is None,
            skip_unused=self.skip_all_reduce_unused_params,
        )
        parameters = Parameters(self.module, self.parameters_to_ignore)
        dtype = None if self._precision is None else self._precision.reduce_dtype
        self.reducer = Reduction(parameters, Members(self.process_group), options, dtype)
        self.reducer.precision = self._precision
        for hook, state in self._comm_hooks:
            self._apply_hook(state, hook)
        if self._sample_rate is not None:
            self.reducer.native.set_sample_rate(self._sample_rate)

    def _is_ignored(self, name: str) -> bool:
        return is_ignored(name, self.parameters_to_ignore)

    @property
    def broadcast_buffers(self) -> bool:
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    # ---- Forward

    # The rest of forward() is torch's own, which torch.compile knows not to look into.

    @uncompiled
    def _pre_forward(self, *inputs: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        grows = torch.is_grad_enabled()
        syncs = grows and self.require_backward_grad_sync
        self._syncs_buffers = self.will_sync_module_buffers()
        if (syncs or self._syncs_buffers) and self.reducer.members.gone:
            self._connect()
        if self.uneven is not None and self._join_config.enable:
            Join.notify_join_context(self)
        self._source = 0
        if self.uneven is not None:
            self._source = self.uneven.agree(synchronizes=syncs, buffers=self._syncs_buffers).source
        if syncs:
            changed = self.reducer.parameters.change()
            if changed is not None:
                self.reducer.fail(f"{changed}; wrap it again on all ranks")
            self.reducer.prepare_forward()
        if self._syncs_buffers and self._buffers_come(_BufferCommHookLocation.PRE_FORWARD):
            self.sync_buffers(self._source)
        if self.device_ids:
            moved_inputs, moved_kwargs = _to_kwargs(inputs, kwargs, self.device, False)
            inputs, kwargs = moved_inputs[0], moved_kwargs[0]
        if grows:
            self._input_ids = {id(one) for one in graph.tensors_of((inputs, kwargs))}
        if self._precision is not None:
            inputs, kwargs = self._precision.cast(inputs, kwargs)
            self._precision.enter()
        return inputs, kwargs

    def _run_ddp_forward(self, *inputs: Any, **kwargs: Any) -> Any:
        # Without its compiler, which takes seconds to import, nobody asks for the active module.
        if "torch._dynamo" not in sys.modules:
            return self.module(*inputs, **kwargs)
        return super()._run_ddp_forward(*inputs, **kwargs)

    @uncompiled
    def _post_forward(self, output: Any) -> Any:
        if self._syncs_buffers and self._buffers_come(_BufferCommHookLocation.POST_FORWARD):
            self.sync_buffers(self._source)
        syncs = torch.is_grad_enabled() and self.require_backward_grad_sync
        self.require_forward_param_sync = syncs
        if torch.is_grad_enabled():
            inputs, self._input_ids = self._input_ids, set()
            outputs = (one for one in graph.tensors_of(output) if id(one) not in inputs)
            self.reducer.prepare_backward(outputs, synchronize=syncs)
        elif self._precision is not None:
            self._precision.leave()
        return output

    # ---- Buffers and parameters

    def _buffers_come(self, location: _BufferCommHookLocation) -> bool:
        hook = getattr(self, "buffer_hook", None)
        chosen = _BufferCommHookLocation.PRE_FORWARD if hook is None else hook.buffer_comm_hook_location
        return chosen == location

    def sync_buffers(self, source: int) -> None:
        """Gives all members the buffers of member `source`, or does what a buffer hook does instead."""
        with torch.no_grad():
            self._assign_modules_buffers()  # The module may have made new ones.
            with torch.autograd._unsafe_preserve_version_counter(tuple(self.modules_buffers)):
                self._sync_module_buffers(source)

    def broadcast_model(self, source: int, *, buffers: bool) -> None:
        """Gives all members the parameters of member `source`, and its buffers."""
        tensors = [one.detach() for name, one in self.module.named_parameters() if not self._is_ignored(name)]
        if buffers:
            tensors += [one.detach() for name, one in self.module.named_buffers() if not self._is_ignored(name)]
        self.reducer.members.broadcast(tensors, source)

    def _distributed_broadcast_coalesced(
        self, tensors: Sequence[torch.Tensor], buffer_size: int = 0, authoritative_rank: int = 0
    ) -> None:
        self.reducer.members.broadcast(tensors, authoritative_rank)

    def _find_common_rank(self, input_rank: int, rank_cond: bool) -> int:
        """The highest of the ranks given by those who have one."""
        return max(one[0] for one in self.reducer.members.exchange_numbers([input_rank if rank_cond else -1]))

    @property
    def _has_rebuilt_buckets(self) -> bool:
        return self.reducer.rebuilt

    @property
    def _distributed_rank(self) -> int:
        return self.reducer.members.rank

    # ---- Hooks

    def register_comm_hook(self, state: object, hook: Any) -> None:
        """Reduces buckets another way: with a hook of horo.torch.hooks, its name, or a function
        hook(state, bucket) -> torch.futures.Future[torch.Tensor], which divides by the number of ranks itself."""
        if hooks.builtin(state, hook) is None:
            hooks.check(hook)
        self._add_hook(state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self._add_hook(None, hooks.of_torch(comm_hook_type))

    def _add_hook(self, state: Any, hook: Any) -> None:
        if self._comm_hooks:
            raise RuntimeError("a communication hook was registered before; a model has one")
        if self._precision is not None:
            raise RuntimeError("with mixed_precision the gradients are reduced in reduce_dtype; there is no other hook")
        self._apply_hook(state, hook)
        self._comm_hooks.append((hook, state))

    def _apply_hook(self, state: Any, hook: Any) -> None:
        known = hooks.builtin(state, hook)
        if known is None:
            self.reducer.set_python_hook(state, hook)
        else:
            self.reducer.set_hook(*known)

    def _register_fused_optim(self, optim: type, *args: Any, optim_params: Any = None, **kwargs: Any) -> None:
        raise NotImplementedError("optimizers that step in the backward pass are not supported; step after backward()")

    # ---- Uneven inputs

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[None]:
        """A context for training loops in which ranks have different numbers of batches: who leaves it early helps the
        others until all have left it; then all have the model of the last."""
        if not enable:
            return nullcontext()
        return UnevenInputs(
            self,
            divide_by_initial_world_size=divide_by_initial_world_size,
            throw_on_early_termination=throw_on_early_termination,
        )

    def join_hook(self, **kwargs: Any) -> UnevenInputsHook:
        self.join_process_group  # noqa: B018  Says what is missing.
        return UnevenInputsHook(self, divide_by_initial_world_size=kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_process_group(self) -> Any:
        if isinstance(self.process_group, ProcessSet):
            raise RuntimeError(
                "torch's Join context needs a process group of torch: call "
                'torch.distributed.init_process_group("horo") and wrap the model with process_group=that group; '
                "the model's own join() works without"
            )
        return self.process_group

    # ---- What torch's has beside that

    def _set_static_graph(self) -> None:
        if self.static_graph:
            warnings.warn("You've set static_graph to be True, no need to set it again.", stacklevel=2)
            return
        self.static_graph = True
        self.reducer.set_static_graph()
        if self.find_unused_parameters:
            warnings.warn(
                "with a static graph unused parameters are found by themselves; find_unused_parameters=True is not "
                "needed",
                stacklevel=2,
            )

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """What is known of this model's reductions: arguments, buckets, times."""
        return record.logging_data(self)

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        if sample_rate < 1:
            raise ValueError("DDP runtime logging sample rate should be equal or greater than 1")
        self._sample_rate = sample_rate
        self.reducer.native.set_sample_rate(sample_rate)

    def _remove_autograd_hooks(self) -> None:
        self.reducer.remove_hooks()

    def _check_reducer_finalized(self) -> None:
        if not self.reducer.finished:
            raise RuntimeError(
                "the gradients of the last forward pass are not reduced yet: its backward pass did not run, or not to "
                "the end"
            )

    def _set_sparse_metadata(self, global_unique_ids: Any) -> None:
        """Accepted and not needed: sparse gradients are gathered whatever rows they have."""

    def _update_process_group(self, new_process_group: Any) -> None:
        """Reduces among other ranks from now on. Called by the members of the new group, together; on a rank that is
        not among them the model becomes one of its own."""
        if isinstance(new_process_group, ProcessSet) and not new_process_group.included():
            self.reducer.remove_hooks()
            return
        self.process_group = resolve(new_process_group)
        self._connect()

    def __getstate__(self) -> dict[str, Any]:
        if not self.reducer.members.is_default:
            raise RuntimeError(
                "a model that was wrapped with a process_group of its own cannot be pickled: where it is unpickled "
                "nobody would know the group; pickle model.module"
            )
        state = copy.copy(self.__dict__)
        for name in (*_NOT_PICKLED, "_precision", "_comm_hooks", "_input_ids"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled by all ranks together. Communication hooks are registered anew."""
        torch.nn.Module.__setstate__(self, state)
        named = [(name, one) for name, one in self.module.named_parameters() if not self._is_ignored(name)]
        self._module_parameters = [one for _, one in named]
        self.process_group = resolve(None)
        self._set_up()
