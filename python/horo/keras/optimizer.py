"""An optimizer of Keras whose gradients are those of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import keras

from horo.collectives import Average
from horo.keras.backends import backend
from horo.keras.compression import Compression
from horo.keras.reduction import GradientReduction, Settings
from horo.keras.stepping import check_step, stepping_model
from horo.process_sets import ProcessSet, global_process_set


class _Distributed:
    """In front of an optimizer's class in a class made of the two. Gradients are reduced before the optimizer does
    anything with them, or, when it accumulates them, before it uses what it has accumulated."""

    _horo_reduction: GradientReduction  # Of the class made for one optimizer.
    _horo_original: type

    @property
    def __class__(self) -> type:
        # What Keras writes into files: they are read without horo, and by horo's load_model().
        return type(self)._horo_original

    def register_local_var(self, variable: Any) -> None:
        """The gradient of this variable is not reduced."""
        self._horo_reduction.register_local(variable)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        if not self._horo_accumulates():
            grads = self._horo_reduced(grads, trainable_variables)
        super().apply(grads, trainable_variables)

    def _horo_accumulates(self) -> bool:
        return bool(self.gradient_accumulation_steps)

    def _horo_reduced(self, grads: Any, variables: Any) -> Any:
        return backend().unconverted(self._horo_reduced_now)(grads, variables)

    def _horo_reduced_now(self, grads: Any, variables: Any) -> Any:
        """As they are where variables are not known: apply() says what is wrong."""
        grads = list(grads)
        if variables is None:
            variables = self._trainable_variables
        if not grads or len(grads) != len(variables):
            return grads
        reduction = self._horo_reduction
        if reduction.has_company() and not check_step(stepping_model(self), self, reduction.settings.op):
            return grads
        return reduction(grads, variables)

    # An optimizer that accumulates gradients calls these two; the second only where it uses them, but for JAX, where
    # it is part of every step.

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> None:
        self._horo_reduction.accumulated = trainable_variables
        super()._backend_apply_gradients(grads, trainable_variables)

    def _clip_gradients(self, grads: Any) -> Any:
        if self._horo_accumulates():
            variables = self._horo_reduction.accumulated
            if keras.config.backend() == "jax":
                last = keras.ops.equal((self._iterations + 1) % self.gradient_accumulation_steps, 0)
                grads = keras.ops.cond(last, lambda: self._horo_reduced(grads, variables), lambda: list(grads))
            else:
                grads = self._horo_reduced(grads, variables)
        return super()._clip_gradients(grads)


class _DistributedLossScale(_Distributed):
    """The same around loss scaling: all ranks must see the same gradients when they decide whether these are finite."""

    def _horo_accumulates(self) -> bool:
        return False  # The inner optimizer does, of what is reduced.

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        grads = self._horo_reduced(grads, self._trainable_variables)
        return super().stateless_apply(optimizer_variables, grads, trainable_variables)


def is_distributed(optimizer: Any) -> bool:
    return isinstance(optimizer, _Distributed)


def _checked(optimizer: Any) -> Any:
    if isinstance(optimizer, str | dict):
        optimizer = keras.optimizers.get(optimizer)
    if is_distributed(optimizer) or is_distributed(getattr(optimizer, "inner_optimizer", None)):
        raise ValueError("this optimizer is distributed already; wrap the original")
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return optimizer
    home = type(optimizer).__module__
    if any(hasattr(optimizer, name) for name in ("_create_slots", "_create_all_weights", "get_gradients")) or (
        home.startswith("tf_keras")
    ):
        raise ValueError(
            f"{home}.{type(optimizer).__name__} is an optimizer of Keras 2, and horo works with Keras 3: take it from "
            "keras.optimizers (or tf.keras.optimizers without TF_USE_LEGACY_KERAS and without .legacy)"
        )
    raise ValueError(f"DistributedOptimizer wraps an optimizer of Keras, not {home}.{type(optimizer).__name__}")


def _config_of(optimizer: Any) -> dict[str, Any]:
    config = optimizer.get_config()
    rate = getattr(optimizer, "_learning_rate", None)
    if "learning_rate" in config and not isinstance(rate, keras.Variable) and rate is not None:
        config["learning_rate"] = rate  # A schedule or a function, which might not come back from a config.
    return config


def _remade(optimizer: Any, reduction: GradientReduction, passes: int) -> Any:
    """A new optimizer with the settings and the state of `optimizer`, whose class is made for it."""
    original = type(optimizer)
    scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    body = {"_horo_reduction": reduction, "_horo_original": original, "__module__": original.__module__}
    front = _DistributedLossScale if scales_loss else _Distributed
    cls = type(original.__name__, (front, original), body)
    config = _config_of(optimizer)
    if scales_loss:
        inner = optimizer.inner_optimizer
        del config["inner_optimizer"]
        made = cls(type(inner).from_config(_accumulating(_config_of(inner), passes)), **config)
    else:
        made = cls.from_config(_accumulating(config, passes))
    if optimizer.built and optimizer._trainable_variables:
        made.build(list(optimizer._trainable_variables))
    if len(made.variables) == len(optimizer.variables):  # Else there are accumulators now, which begin with zeros.
        for new, old in zip(made.variables, optimizer.variables, strict=True):
            new.assign(old)
    return made


def _accumulating(config: dict[str, Any], passes: int) -> dict[str, Any]:
    if passes == 1:
        return config
    if "gradient_accumulation_steps" not in config:
        raise ValueError("backward_passes_per_step needs Keras 3.2 or later, whose optimizers accumulate gradients")
    steps = config["gradient_accumulation_steps"]
    if steps not in (None, passes):
        raise ValueError(
            f"the optimizer has gradient_accumulation_steps={steps}, and backward_passes_per_step is {passes}; leave "
            "one of them out"
        )
    return {**config, "gradient_accumulation_steps": passes}


def wrap(
    optimizer: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    local_layers: Sequence[Any] = (),
) -> Any:
    """What DistributedOptimizer() of the front ends does."""
    optimizer = _checked(optimizer)
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups:
        warnings.warn("Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    settings = Settings(
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        predivide=float(gradient_predivide_factor),
        passes=1 if average_aggregated_gradients else backward_passes_per_step,
        groups=groups,
        process_set=process_set,
        local_layers=tuple(local_layers),
        scale_local=scale_local_gradients,
    )
    reduction = GradientReduction(settings)
    if keras.config.dtype_policy().name == "mixed_float16" and not isinstance(
        optimizer, keras.optimizers.LossScaleOptimizer
    ):
        # What compile() would do, but inside of what is made here.
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
    made = _remade(optimizer, reduction, backward_passes_per_step)
    if name is not None:
        made.name = name
    return made
