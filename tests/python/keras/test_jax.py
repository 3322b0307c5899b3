"""horo.jax: operations inside and outside of compiled programs."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from training import BACKEND

if BACKEND != "jax":
    pytest.skip("of JAX", allow_module_level=True)

import jax
import jax.numpy as jnp

import horo.jax

DTYPES = ["float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_allreduce_of_every_type(hvd: ModuleType, dtype: str, compiled: bool) -> None:
    op = horo.jax.Max if dtype in ("int8", "uint8", "bool") else horo.jax.Sum
    function = lambda x: horo.jax.allreduce(x, "types", op)  # noqa: E731
    ranks = range(hvd.size())
    shares = [(np.arange(6).reshape(2, 3) * (rank + 1)).astype(dtype) for rank in ranks]
    out = (jax.jit(function) if compiled else function)(jnp.asarray(shares[hvd.rank()]))
    assert out.dtype == shares[0].dtype
    expected = np.max(shares, 0) if op == horo.jax.Max else np.sum([one.astype("complex64") for one in shares], 0)
    np.testing.assert_allclose(np.asarray(out).astype("complex64"), expected.astype("complex64"), rtol=1e-2)


def test_a_tree_is_one_operation(hvd: ModuleType) -> None:
    tree = {"a": jnp.full((2, 2), float(hvd.rank())), "b": [jnp.array(1.0), jnp.zeros((0, 3))]}
    reduced = jax.jit(lambda x: horo.jax.grouped_allreduce(x, "tree"))(tree)
    jax.block_until_ready(reduced)
    np.testing.assert_allclose(reduced["a"], (hvd.size() - 1) / 2)
    assert reduced["b"][0] == 1.0
    assert reduced["b"][1].shape == (0, 3)
    assert horo.jax.grouped_allreduce([], "nothing") == []


def test_the_input_of_a_program_stays_as_it_is(hvd: ModuleType) -> None:
    given = jnp.full(5, 1.0 + hvd.rank())
    total, kept = jax.jit(lambda x: (horo.jax.allreduce(x, "kept", horo.jax.Sum), x * 1))(given)
    np.testing.assert_array_equal(kept, 1.0 + hvd.rank())
    np.testing.assert_array_equal(given, 1.0 + hvd.rank())
    np.testing.assert_allclose(total, sum(range(1, hvd.size() + 1)))


@pytest.mark.parametrize("compiled", [True, False])
def test_gradients_flow_through_it(hvd: ModuleType, compiled: bool) -> None:
    def loss(x: jax.Array) -> jax.Array:
        return (horo.jax.allreduce(x, "loss", horo.jax.Sum) ** 3).sum()

    gradient = jax.grad(loss)
    mine = jnp.array([1.0, 2.0]) + hvd.rank()
    total = np.asarray(horo.jax.allreduce(mine, op=horo.jax.Sum))
    # The loss of all ranks together: each has the same, which depends on every rank's input.
    expected = hvd.size() * 3 * total**2
    np.testing.assert_allclose((jax.jit(gradient) if compiled else gradient)(mine), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="Average or Sum"):
        jax.grad(lambda x: horo.jax.allreduce(x, "max", horo.jax.Max).sum())(mine)


def test_a_batch_of_inputs_is_reduced_as_one(hvd: ModuleType) -> None:
    mapped = jax.jit(jax.vmap(lambda x: horo.jax.allreduce(x * 2, "mapped", horo.jax.Sum)))
    np.testing.assert_allclose(mapped(jnp.ones((3, 2))), 2.0 * hvd.size())


def test_many_operations_in_a_loop_and_side_by_side(hvd: ModuleType) -> None:
    def program(x: jax.Array) -> jax.Array:
        x = jax.lax.fori_loop(0, 10, lambda _, y: horo.jax.allreduce(y, "loop") + 1, x)
        order = range(20) if hvd.rank() % 2 else reversed(range(20))  # Traced in another order on each rank.
        sums = {number: horo.jax.allreduce(x + number, f"side {number}", horo.jax.Sum) for number in order}
        return jnp.stack([sums[number] for number in range(20)])

    out = jax.jit(program)(jnp.zeros(3))
    np.testing.assert_allclose(out[:, 0], (10.0 + np.arange(20)) * hvd.size())


def test_a_program_is_traced_again_without_a_new_name(hvd: ModuleType) -> None:
    mean = jax.jit(lambda x: horo.jax.allreduce(x.mean(), "mean"))
    mean(jnp.ones(4))
    last = mean(jnp.ones(3) if hvd.rank() == 0 else jnp.ones(4))
    assert last == 1.0


def test_the_other_operations_run_at_once(hvd: ModuleType) -> None:
    rank, size = hvd.rank(), hvd.size()
    np.testing.assert_array_equal(horo.jax.allgather(jnp.array([rank])), np.arange(size))
    assert horo.jax.broadcast(jnp.array(rank), size - 1) == size - 1
    out, splits = horo.jax.alltoall(jnp.full(size, rank), jnp.ones(size, jnp.int32))
    np.testing.assert_array_equal(out, np.arange(size))
    np.testing.assert_array_equal(splits, 1)
    assert horo.jax.reducescatter(jnp.arange(float(size)), op=horo.jax.Sum).item() == rank * size
    tree = horo.jax.broadcast_tree({"w": jnp.array(float(rank)), "b": [jnp.array([rank])]}, root_rank=size - 1)
    assert (tree["w"], tree["b"][0].item()) == (size - 1, size - 1)
    with pytest.raises(ValueError, match="cannot be used inside"):
        jax.jit(lambda x: horo.jax.allgather(x, "inside"))(jnp.ones(2))


def test_an_unnamed_operation_in_a_program_is_refused(hvd: ModuleType) -> None:
    with pytest.raises(ValueError, match="needs a name inside"):
        jax.jit(horo.jax.allreduce)(jnp.ones(2))


def test_a_mismatch_is_raised_on_every_rank_and_the_job_goes_on(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    program = jax.jit(lambda x: horo.jax.allreduce(x, "odd"))
    words = r"horo: mismatch: .*different shapes, \[\d\] on rank \d and \[\d\] on rank \d"
    with pytest.raises(jax.errors.JaxRuntimeError, match=words):
        jax.block_until_ready(program(jnp.ones(2 + hvd.rank())))
    np.testing.assert_allclose(program(jnp.ones(2)), 1.0)


def test_a_program_finds_the_job_that_was_joined_anew(hvd: ModuleType) -> None:
    program = jax.jit(lambda x: horo.jax.allreduce(x, "anew", horo.jax.Sum))
    assert program(jnp.array(1.0)) == hvd.size()
    ranks = hvd.size()
    hvd.shutdown()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"has not been initialized; use hvd\.init\(\)"):
        jax.block_until_ready(program(jnp.array(1.0)))
    hvd.init()
    assert program(jnp.array(1.0)) == ranks
