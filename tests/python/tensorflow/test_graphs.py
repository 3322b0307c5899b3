"""What is special about graphs: names, order, threads, shapes, what optimisers of graphs may do."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
import tensorflow as tf

import horo


def nodes_of(function: tf.types.experimental.GenericFunction, *arguments: tf.Tensor) -> list[tf.Operation]:
    graph = function.get_concrete_function(*arguments).graph
    return [one for one in graph.get_operations() if one.type.startswith("Horo")]


def test_five_hundred_meet_whatever_their_order(hvd: ModuleType) -> None:
    seed = 7
    order = list(range(500))
    random.Random(seed + hvd.rank()).shuffle(order)

    @tf.function
    def many(x: tf.Tensor) -> tf.Tensor:
        done = {index: hvd.allreduce(x + index, op=hvd.Sum, name=f"one.{index}") for index in order}
        return tf.stack([done[index] for index in range(500)])

    for _ in range(2):
        got = many(tf.constant(float(hvd.rank()))).numpy().tolist()
        total = sum(range(hvd.size()))
        assert got == [float(total + index * hvd.size()) for index in range(500)], f"seed {seed}"


def test_collectives_are_not_stateful_and_differ(hvd: ModuleType) -> None:
    @tf.function
    def twice(x: tf.Tensor) -> list[tf.Tensor]:
        return [hvd.allreduce(x), hvd.allreduce(x), hvd.allgather(x, name="same"), hvd.allgather(x, name="same")]

    nodes = nodes_of(twice, tf.ones([2]))
    assert [one.op_def.is_stateful for one in nodes] == [False] * 4
    names = [one.get_attr("tensor_name").decode() for one in nodes]
    assert len(set(names)) == 4
    assert names[2:] == ["allgather.same", "allgather.same#2"]


def test_tracing_again_renames_nothing(hvd: ModuleType) -> None:
    variable = tf.Variable([1.0, 2.0], name="weights")

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * x)
        gradient = hvd.DistributedGradientTape(tape).gradient(loss, variable)
        return gradient + hvd.allreduce(tf.reduce_sum(x))

    def names(rows: int) -> list[str]:
        return [one.get_attr("tensor_name") for one in nodes_of(step, tf.ones([rows, 2]))]

    assert names(4) == names(3) != []
    # One rank alone has a smaller last batch.
    rows = 3 if hvd.rank() == 0 else 4
    total = (4 * (hvd.size() - 1) + 3) / hvd.size()
    got = step(tf.ones([rows, 2])).numpy().tolist()
    assert got == pytest.approx([3 * total] * 2)


def test_an_operation_on_constants_runs_every_time(hvd: ModuleType) -> None:
    @tf.function
    def constant() -> tf.Tensor:
        return hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum)

    def handed_in() -> int:
        return horo.metrics()["process_sets"][0]["operations"]["allreduce"]["handed_in"]

    before = handed_in()
    for _ in range(5):
        assert constant().numpy().tolist() == [1.0 * hvd.size(), 2.0 * hvd.size()]
    assert handed_in() - before == 5


def test_the_number_of_ranks_is_no_constant_of_a_graph(hvd: ModuleType) -> None:
    """A job that has lost a rank goes on with what it has traced."""
    table, mine = tf.Variable(tf.zeros([4, 2]), name="rows"), tf.Variable([1.0, 2.0], name="mine")

    @tf.function
    def step(rows: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, rows) * mine)
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(mine)
        sparse, local = tape.gradient(loss, [table, mine])
        return [tf.convert_to_tensor(sparse), local]

    nodes = nodes_of(step, tf.constant([0, 1]))
    assert [one.type for one in nodes].count("HoroSize") == 2  # Of the average of rows, and of the local gradient.
    sparse, local = step(tf.constant([0, 1]))
    assert sparse.numpy().tolist() == [[1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    assert local.numpy().tolist() == [0.0, 0.0]


def test_shapes_are_inferred(hvd: ModuleType) -> None:
    @tf.function(input_signature=[tf.TensorSpec([4, None, 3])])
    def shapes(x: tf.Tensor) -> list[tf.Tensor]:
        done = [hvd.allreduce(x), hvd.broadcast(x, 0), hvd.allgather(x), hvd.reducescatter(x), hvd.alltoall(x)]
        assert [one.shape.as_list() for one in done] == [[4, None, 3]] * 2 + [[None, None, 3]] * 3
        assert hvd.rank_op().shape == ()
        return done

    shapes.get_concrete_function()


def test_scalars_cannot_be_gathered(hvd: ModuleType) -> None:
    for operation in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
        with pytest.raises(ValueError, match="at least rank 1"):
            tf.function(lambda operation=operation: operation(tf.constant(1.0)))()


def test_operations_in_conditions_and_loops(hvd: ModuleType) -> None:
    @tf.function
    def loop(x: tf.Tensor) -> tf.Tensor:
        for index in tf.range(3):
            if index > 0:  # noqa: SIM108  A condition of the graph.
                x = hvd.allreduce(x, op=hvd.Sum)
            else:
                x = x + 1.0
        return x

    assert loop(tf.constant(0.0)).numpy() == hvd.size() ** 2


def test_iterations_that_run_at_once_meet_their_own(hvd: ModuleType) -> None:
    """Which of them comes first is another matter on each rank: later ones have less to do before."""
    count = 40

    @tf.function
    def loop(first: tf.Tensor) -> tf.Tensor:
        def body(index: tf.Tensor, done: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            rows = 200 * (tf.math.floormod(index + hvd.rank(), 2) + 1)
            here = tf.reduce_sum(tf.linalg.matmul(tf.ones([rows, rows]), tf.ones([rows, 1]))) * 0.0
            value = first + tf.cast(index, tf.float32) + here
            return index + 1, done.write(index, hvd.allreduce(value, op=hvd.Sum, name="at once"))

        start = (tf.constant(0), tf.TensorArray(tf.float32, count))
        return tf.while_loop(lambda index, _: index < count, body, start, parallel_iterations=10)[1].stack()

    got = loop(tf.constant(float(hvd.rank()))).numpy().tolist()
    total = float(sum(range(hvd.size())))
    assert got == [total + hvd.size() * index for index in range(count)]


def test_a_mismatch_raises_on_every_rank_and_the_job_goes_on(hvd: ModuleType) -> None:
    @tf.function
    def wrong(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, name="wrong")

    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    mine = tf.ones([2 + (hvd.rank() == 0)])
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"different shapes.*\[3\] on rank 0"):
        wrong(mine)
    with pytest.raises(hvd.HorovodInternalError, match="different shapes") as raised:
        hvd.allreduce(mine, name="wrong.eager")
    assert raised.value.code == "mismatch"
    dtype = tf.float32 if hvd.rank() == 0 else tf.float64
    with pytest.raises(hvd.HorovodInternalError, match="different"):
        hvd.allreduce(tf.ones([2], dtype), name="wrong.types")
    with pytest.raises(hvd.HorovodInternalError, match="do not agree"):
        hvd.allreduce(tf.ones([2]), op=hvd.Sum if hvd.rank() == 0 else hvd.Max, name="wrong.operations")
    with pytest.raises(hvd.HorovodInternalError):
        hvd.broadcast(tf.ones([2]), int(hvd.rank() == 0), name="wrong.roots")
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allgather(tf.ones([2, 2 + hvd.rank()]), name="wrong.rows")
    assert wrong(tf.ones([2])).numpy().tolist() == [1.0, 1.0]


def test_what_is_wrong_here_raises_here(hvd: ModuleType) -> None:
    with pytest.raises(ValueError, match="string is not supported"):
        hvd.allreduce(tf.constant("words"))
    with pytest.raises(ValueError, match="no reduction"):
        hvd.allreduce(tf.ones([2]), op=17)
    with pytest.raises(ValueError, match="only one"):
        hvd.allreduce(tf.ones([2]), average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="root"):
        hvd.broadcast(tf.ones([2]), hvd.size())
    with pytest.raises(ValueError, match="splits"):
        hvd.alltoall(tf.ones([2]), splits=[-1] * hvd.size())
    with pytest.raises(NotImplementedError, match="Average and Sum"):
        hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])), op=hvd.Max)
    # None of them has cost a number that others would wait for.
    assert hvd.allreduce(tf.ones([2]), op=hvd.Sum).numpy().tolist() == [float(hvd.size())] * 2


def test_large_tensors_are_right(hvd: ModuleType) -> None:
    count = 3 << 20

    @tf.function
    def large(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x * 2.0, op=hvd.Sum, name="large")

    x = tf.fill([count], float(hvd.rank() + 1))
    got = large(x)
    total = 2.0 * sum(rank + 1 for rank in range(hvd.size()))
    assert float(tf.reduce_min(got)) == float(tf.reduce_max(got)) == total
    # The input is untouched where somebody else still reads it.
    assert hvd.allreduce(x, op=hvd.Sum).numpy()[0] == total / 2
    assert x.numpy()[0] == hvd.rank() + 1
