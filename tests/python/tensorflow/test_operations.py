"""Every operation on every type, outside of graphs and inside."""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf
import values
from values import ALL, COMPLEX, FLOATS, INTEGERS, MODES, in_mode, of_rank, of_ranks, same

pytestmark = pytest.mark.parametrize("mode", MODES)
REDUCED = [*INTEGERS, *FLOATS, *COMPLEX]
ORDERED = [*INTEGERS, *FLOATS]


def names(dtypes: list[tf.DType]) -> list[str]:
    return [one.name for one in dtypes]


def test_allreduce_reduces_every_type(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def all_types(given: list[tf.Tensor]) -> list[list[tf.Tensor]]:
        done = []
        for tensor in given:
            dtype = tensor.dtype
            one = [
                hvd.allreduce(tensor, op=op, name=f"{dtype.name}.{op}") for op in (hvd.Sum, hvd.Average, hvd.Product)
            ]
            if not dtype.is_complex:
                one += [hvd.allreduce(tensor, op=op, name=f"{dtype.name}.{op}") for op in (hvd.Min, hvd.Max)]
            done.append(one)
        return done

    mine = [tf.constant(of_rank(hvd.rank(), (3, 5), dtype)) for dtype in REDUCED]
    for dtype, results in zip(REDUCED, all_types(mine), strict=True):
        everybody = of_ranks(hvd.size(), (3, 5), dtype)
        assert same(results[0], values.summed(everybody, dtype)), dtype
        np.testing.assert_allclose(
            results[1].numpy().astype(values.wide(dtype)),
            values.averaged(everybody, dtype).astype(values.wide(dtype)),
            rtol=1e-2 if dtype in (tf.float16, tf.bfloat16) else 1e-6,
        )
        wide = [one.astype(values.wide(dtype)) for one in everybody]
        assert same(results[2], functools.reduce(np.multiply, wide).astype(dtype.as_numpy_dtype)), dtype
        if len(results) > 3:
            assert same(results[3], np.minimum.reduce(wide).astype(dtype.as_numpy_dtype)), dtype
            assert same(results[4], np.maximum.reduce(wide).astype(dtype.as_numpy_dtype)), dtype


def test_allgather_and_broadcast_move_every_type(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def all_types(given: list[tf.Tensor]) -> list[tuple[tf.Tensor, tf.Tensor]]:
        return [
            (hvd.allgather(one, name=f"moved.{one.dtype.name}"), hvd.broadcast(one[:1], hvd.size() - 1))
            for one in given
        ]

    mine = [tf.constant(of_rank(hvd.rank(), (hvd.rank() + 1, 3), dtype)) for dtype in ALL]
    for dtype, (gathered, received) in zip(ALL, all_types(mine), strict=True):
        everybody = [of_rank(rank, (rank + 1, 3), dtype) for rank in range(hvd.size())]
        assert same(gathered, np.concatenate(everybody)), dtype
        assert same(received, everybody[-1][:1]), dtype


def test_alltoall_and_reducescatter_take_every_type(hvd: ModuleType, mode: str) -> None:
    count = hvd.size()
    splits = [(hvd.rank() + to) % count + 1 for to in range(count)]

    @functools.partial(in_mode, mode)
    def all_types(given: list[tf.Tensor]) -> list[tuple[tf.Tensor, tf.Tensor]]:
        return [hvd.alltoall(one, splits) for one in given]

    mine = [tf.constant(of_rank(hvd.rank(), (sum(splits), 2), dtype)) for dtype in ALL]
    for dtype, (received, rows) in zip(ALL, all_types(mine), strict=True):
        parts = []
        for sender in range(count):
            theirs = [(sender + to) % count + 1 for to in range(count)]
            begin = sum(theirs[: hvd.rank()])
            parts.append(of_rank(sender, (sum(theirs), 2), dtype)[begin : begin + theirs[hvd.rank()]])
        assert same(received, np.concatenate(parts)), dtype
        assert rows.numpy().tolist() == [len(part) for part in parts]
        assert rows.dtype == tf.int32


def test_reducescatter_gives_shares_of_rows(hvd: ModuleType, mode: str) -> None:
    rows = 2 * hvd.size() + 1

    @functools.partial(in_mode, mode)
    def all_types(given: list[tf.Tensor]) -> list[tf.Tensor]:
        return [hvd.reducescatter(one, op=hvd.Sum) for one in given]

    begin = hvd.rank() * 2 + min(hvd.rank(), 1)
    for dtype, got in zip(
        REDUCED, all_types([tf.constant(of_rank(hvd.rank(), (rows, 2), dtype)) for dtype in REDUCED]), strict=True
    ):
        wanted = values.summed(of_ranks(hvd.size(), (rows, 2), dtype), dtype)
        assert same(got, wanted[begin : begin + 2 + (hvd.rank() == 0)]), dtype


def test_grouped_operations_are_lists(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def grouped(a: tf.Tensor, b: tf.Tensor) -> tuple[list[tf.Tensor], ...]:
        return (
            hvd.grouped_allreduce([a, b], op=hvd.Sum, name="two"),
            hvd.grouped_allgather([a, b], name="two"),
            hvd.grouped_reducescatter([a, b], op=hvd.Sum),
            hvd.mpi_ops.grouped_broadcast([a, b], 0, name="two"),
        )

    a, b = tf.fill([hvd.size()], float(hvd.rank())), tf.fill([hvd.size(), 2], hvd.rank() + 1)
    reduced, gathered, scattered, received = grouped(a, b)
    total = hvd.size() * (hvd.size() - 1) // 2
    assert reduced[0].numpy().tolist() == [float(total)] * hvd.size()
    assert reduced[1].numpy().tolist() == [[total + hvd.size()] * 2] * hvd.size()
    assert gathered[1].shape == (hvd.size() ** 2, 2)
    assert scattered[0].numpy().tolist() == [float(total)]
    assert received[0].numpy().tolist() == [0.0] * hvd.size()
    assert received[1].numpy().tolist() == [[1, 1]] * hvd.size()


def test_factors_are_doubles(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def scaled(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=0.1)

    got = scaled(tf.constant([3.0], tf.float64)).numpy()[0]
    assert abs(got - hvd.size() * 0.1) < 1e-15


def test_compression_travels_as_half(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def compressed(x: tf.Tensor, whole: tf.Tensor) -> list[tf.Tensor]:
        half = hvd.Compression.fp16
        return [
            hvd.allreduce(x, op=hvd.Sum, compression=half),
            *hvd.grouped_allreduce([x, whole], op=hvd.Sum, compression=half),
            hvd.reducescatter(x, op=hvd.Sum, compression=half),
        ]

    exact = 1 + 2.0**-12  # Which float16 does not have.
    done = compressed(tf.fill([hvd.size()], exact), tf.constant([70000]))
    assert done[0].dtype == tf.float32
    assert done[0].numpy().tolist() == [float(hvd.size())] * hvd.size()
    assert done[2].numpy().tolist() == [70000 * hvd.size()]
    assert done[3].numpy().tolist() == [float(hvd.size())]


def test_slices_of_all_ranks_come_together(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def sparse(rows: tf.Tensor, where: tf.Tensor) -> tuple[tf.Tensor, ...]:
        slices = tf.IndexedSlices(rows, where, tf.constant([10, 2]))
        mean = hvd.allreduce(slices, name="slices")
        total, plain = hvd.grouped_allreduce([slices, rows], op=hvd.Sum, name="mixed")
        return tf.convert_to_tensor(mean), tf.convert_to_tensor(total), plain

    # Every rank has row 0, and one of its own.
    rows = tf.constant([[2.0, 4.0], [1.0, 1.0]]) * (hvd.rank() + 1)
    mean, total, plain = sparse(rows, tf.constant([0, 1 + hvd.rank()]))
    factor = sum(rank + 1 for rank in range(hvd.size()))
    assert total.numpy()[0].tolist() == [2.0 * factor, 4.0 * factor]
    np.testing.assert_allclose(mean.numpy(), total.numpy() / hvd.size(), rtol=1e-6)
    assert total.numpy()[hvd.size()].tolist() == [float(hvd.size())] * 2
    assert plain.numpy()[0].tolist() == [2.0 * factor, 4.0 * factor]


def test_ranks_and_sizes_are_operations(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def facts() -> list[tf.Tensor]:
        return [hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op(), hvd.process_set_included_op()]

    assert [int(one) for one in facts()] == [hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank(), 1]


def test_empty_tensors_are_fine(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def empty(x: tf.Tensor) -> list[tf.Tensor]:
        return [hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, 0), hvd.reducescatter(x)]

    for one in empty(tf.zeros([0, 3])):
        assert one.shape == (0, 3)


def test_gathering_nothing_on_some_ranks(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def gathered(x: tf.Tensor) -> tf.Tensor:
        return hvd.allgather(x)

    rows = hvd.rank()  # None on rank 0.
    assert gathered(tf.ones([rows, 2])).shape == (sum(range(hvd.size())), 2)


def test_join_waits_for_all(hvd: ModuleType, mode: str) -> None:
    @functools.partial(in_mode, mode)
    def join() -> tf.Tensor:
        return hvd.join()

    if hvd.rank() == hvd.size() - 1:
        assert hvd.allreduce(tf.constant([3.0]), op=hvd.Sum, name="last").numpy().tolist() == [3.0]
    assert 0 <= int(join()) < hvd.size()


def test_process_sets_work_apart(hvd: ModuleType, mode: str) -> None:
    if hvd.size() == 1:
        pytest.skip("one rank has no other set than that of all")
    mine = hvd.add_process_set([0])

    @functools.partial(in_mode, mode)
    def alone(x: tf.Tensor) -> list[tf.Tensor]:
        reduced = hvd.allreduce(x, op=hvd.Sum, process_set=mine)
        return [reduced, hvd.size_op(mine.process_set_id), hvd.process_set_included_op(mine.process_set_id)]

    if mine.included():
        assert [one.numpy().tolist() for one in alone(tf.constant([5.0]))] == [[5.0], 1, 1]
    else:
        assert int(hvd.process_set_included_op(mine.process_set_id)) == 0
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"not in|not a member|process set"):
            alone(tf.constant([5.0]))
    hvd.remove_process_set(mine)


def test_ranks_outside_of_a_process_set_keep_their_gradients(hvd: ModuleType, mode: str) -> None:
    if hvd.size() < 3:
        pytest.skip("ranks reduce that others do not reduce with")
    some = hvd.add_process_set([0, 1])
    table, local = tf.Variable(tf.zeros([2, 1])), tf.Variable([0.0])
    weights = tf.compat.v1.get_variable("weights", initializer=tf.zeros([1]), use_resource=True)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, process_set=some, backward_passes_per_step=2, op=hvd.Sum)

    @functools.partial(in_mode, mode)
    def taped(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = x * tf.reduce_sum(tf.gather(table, [1]) + local + weights)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, process_set=some)
        tape.register_local_source(local)
        return [tf.convert_to_tensor(one) for one in tape.gradient(loss, [table, local, weights])]

    @functools.partial(in_mode, mode)
    def step(x: tf.Tensor) -> None:
        optimizer.apply_gradients(optimizer.compute_gradients(lambda: x * weights[0], [weights]))

    mine = float(hvd.rank() + 1)
    total = 3.0 if some.included() else mine
    got = [one.numpy().tolist() for one in taped(tf.constant(mine))]
    assert got == [[[0.0], [total]], [mine / 2 if some.included() else mine], [total]]
    for passes, wanted in ((1, 0.0), (2, -2 * total)):
        step(tf.constant(mine))
        assert weights.numpy().tolist() == [wanted], passes
    hvd.remove_process_set(some)
