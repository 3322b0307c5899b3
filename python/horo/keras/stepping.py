"""The model whose training step calls an optimizer.

An optimizer is not told about its model, which alone knows how the step is compiled and what else happens to gradients.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import keras

from horo.collectives import Average
from horo.keras.backends import backend

# So far above the optimizer a step is looked for.
_FRAMES = 40


def stepping_model(optimizer: Any) -> Any:
    """None in a loop of the user's own."""
    frame: Any = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            break
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.Model):
            own = getattr(owner, "optimizer", None)
            return owner if own is optimizer or getattr(own, "inner_optimizer", None) is optimizer else None
        frame = frame.f_back
    return None


def check_model(model: Any) -> None:
    """Raises ValueError for what is no model of Keras 3."""
    if not isinstance(model, keras.Model):
        found = f"{type(model).__module__}.{type(model).__name__}"
        raise ValueError(
            f"{found} is no model of Keras 3, which horo works with: make it with keras, or with tf.keras without "
            "TF_USE_LEGACY_KERAS"
        )


def switch_off_jit(model: Any) -> None:
    """Called before the training step is made."""
    check_model(model)
    if backend().is_compiled(model):
        model.jit_compile = False


def check_step(model: Any, optimizer: Any, op: int) -> bool:
    """Whether the optimizer has to reduce the gradients of this step. Raises ValueError when that cannot be right."""
    if model is None:
        return True
    if backend().is_compiled(model):
        raise ValueError(
            "XLA cannot compile the operations of horo in a step of TensorFlow: write model.compile(..., "
            'jit_compile=False), or give fit() a callback of horo, which sees to it (jit_compile="auto" turns it on '
            "where there is a GPU)"
        )
    if model.optimizer is not optimizer:
        raise ValueError(
            "Keras has put a LossScaleOptimizer around the DistributedOptimizer, because of the model's dtype policy; "
            "the ranks must reduce gradients before they look whether these are finite. Write "
            "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))"
        )
    if getattr(model, "ddp_model", None) is not None:
        # torch.distributed is in use, and Keras has wrapped the model: its gradients are averages already.
        if op != Average:
            raise ValueError(
                "gradients are averaged by Keras itself, with torch's DistributedDataParallel; op=Sum needs a job "
                "without torch.distributed.init_process_group()"
            )
        warnings.warn(
            "torch.distributed is initialised, so Keras averages gradients itself; the DistributedOptimizer leaves "
            "them alone",
            stacklevel=2,
        )
        return False
    return True
