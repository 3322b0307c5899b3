"""Failures of operations in compiled programs: JAX's exceptions hold their words, from which horo's are made."""

from __future__ import annotations

import jax

from horo.exceptions import exception_in


def translated(error: BaseException) -> Exception | None:
    """What horo raises for a failure of one of its operations in a program; None for other failures."""
    return exception_in(str(error)) if isinstance(error, jax.errors.JaxRuntimeError) else None
