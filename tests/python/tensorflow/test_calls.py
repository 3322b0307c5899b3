"""Operations in functions that other functions call: each call meets the same call on the other ranks."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import tensorflow as tf

COUNT = 20000  # So many that operations of this size are left to the library's threads.


def late(x: tf.Tensor, here: bool) -> tf.Tensor:
    """The same values, some milliseconds later if `here`: so that ranks have them in different orders."""
    rows = 400 if here else 4
    some = tf.ones([rows, rows]) * tf.reshape(x, [-1])[0]
    for _ in range(3):
        some = tf.matmul(some, tf.ones([rows, rows])) * 1e-3
    return x + 1e-30 * tf.reduce_mean(some)


def filled(value: float) -> tf.Tensor:
    return tf.fill([COUNT], value)


def values(tensors: list[tf.Tensor]) -> list[float]:
    """Of tensors that are filled with one each."""
    assert [float(tf.reduce_min(one)) for one in tensors] == [float(tf.reduce_max(one)) for one in tensors]
    return [float(one[0]) for one in tensors]


def test_each_call_is_an_operation_of_its_own(hvd: ModuleType) -> None:
    @tf.function
    def total(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum)

    @tf.function
    def named(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum, name="mine") + 1.0

    twin = tf.function(total.python_function)  # Another function of the same name.

    @tf.function
    def both(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        return [total(x), total(y), named(x)]

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        odd = hvd.rank() % 2 == 1
        given = [late(x * float(index + 1), odd == bool(index % 2)) for index in range(8)]
        if hvd.rank() == 0:
            tf.function(lambda y: y + 1.0)(x)  # Which only this rank calls, and which has no operation.
        done = [total(given[0]), total(given[1]), twin(given[2]), *both(given[3], given[4]), *both(given[5], given[6])]
        mine = hvd.allreduce(given[7], op=hvd.Sum, name="mine")
        return [*done, mine, named(x), hvd.allreduce(given[0], op=hvd.Sum, name="mine")]

    factors = [1, 2, 3, 4, 5, 4, 6, 7, 6, 8, 1, 1]
    plus = [0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0]
    for value in (1.0, 2.0):
        wanted = [value * factor * hvd.size() + more for factor, more in zip(factors, plus, strict=True)]
        assert values(step(filled(value))) == wanted
    # Outside of other functions they go on as before.
    assert values([total(filled(1.0))]) == [float(hvd.size())]


def test_calls_in_loops_and_conditions(hvd: ModuleType) -> None:
    @tf.function
    def total(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum)

    @tf.function
    def loop(x: tf.Tensor) -> tf.Tensor:
        sums = tf.zeros([2])
        for index in tf.range(4):
            factor = tf.cast(index, tf.float32)
            if index > 1:
                sums += tf.stack([total(x * factor)[0], total(late(x, hvd.rank() == 0))[0]])
            else:
                sums += tf.stack([total(late(x, hvd.rank() == 1))[0], total(x * factor)[0]])
        return sums

    assert loop(filled(1.0)).numpy().tolist() == [7.0 * hvd.size(), 3.0 * hvd.size()]


def test_gradients_of_calls(hvd: ModuleType) -> None:
    v, w = tf.Variable(filled(2.0)), tf.Variable(filled(3.0))

    @tf.function
    def total(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum, name="total")

    @tf.function
    def step() -> list[tf.Tensor]:
        if hvd.rank() == 0:
            tf.function(lambda x: x + 1.0)(filled(1.0))  # Which only this rank calls.
        with tf.GradientTape() as tape:
            first, second = total(v), total(w)
            loss = tf.reduce_sum(late(first, hvd.rank() == 0) * 5.0 + late(second, hvd.rank() == 1) * 7.0)
        return tape.gradient(loss, [v, w])

    @tf.function
    def two_tapes() -> list[tf.Tensor]:
        with tf.GradientTape() as one, tf.GradientTape() as other:
            done = total(v * w)
            losses = [
                tf.reduce_sum(late(done * 5.0, hvd.rank() == 0)),
                tf.reduce_sum(late(done * 7.0, hvd.rank() == 1)),
            ]
        return [one.gradient(losses[0], v), other.gradient(losses[1], w)]

    for _ in range(2):
        assert values(step()) == [5.0 * hvd.size(), 7.0 * hvd.size()]
        assert values(two_tapes()) == [15.0 * hvd.size(), 14.0 * hvd.size()]
    # And where no function is around the calls.
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(total(v) * total(w))
    got = [tape.gradient(loss, v), tape.gradient(loss, w)]
    assert values(got) == [3.0 * hvd.size() ** 2, 2.0 * hvd.size() ** 2]


def test_gradients_of_calls_in_calls(hvd: ModuleType) -> None:
    v, w = tf.Variable(filled(2.0)), tf.Variable(filled(3.0))

    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum, name="inner")

    @tf.function
    def middle(x: tf.Tensor) -> tf.Tensor:
        return inner(x) * 2.0

    def loss_of(first: tf.Tensor, second: tf.Tensor, more: float = 0.0) -> tf.Tensor:
        one, other = late(first, hvd.rank() == 0), late(second, hvd.rank() == 1)
        return tf.reduce_sum(one * (5.0 + more) + other * (7.0 + more))

    @tf.function
    def step() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = loss_of(middle(v), middle(w))
        return tape.gradient(loss, [v, w])

    @tf.function
    def both() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = loss_of(inner(v), middle(w))
        return tape.gradient(loss, [v, w])

    @tf.function
    def two_tapes() -> list[tf.Tensor]:
        with tf.GradientTape() as one, tf.GradientTape() as other:
            done = [middle(v), middle(w)]
            losses = [loss_of(*done), loss_of(*reversed(done), more=6.0)]
        return [*one.gradient(losses[0], [v, w]), *other.gradient(losses[1], [v, w])]

    for _ in range(2):
        assert values(step()) == [10.0 * hvd.size(), 14.0 * hvd.size()]
        assert values(both()) == [5.0 * hvd.size(), 14.0 * hvd.size()]
        assert values(two_tapes()) == [factor * hvd.size() for factor in (10.0, 14.0, 26.0, 22.0)]


def test_calls_do_not_trace_again(hvd: ModuleType) -> None:
    traced = []

    @tf.function
    def total(x: tf.Tensor) -> tf.Tensor:
        traced.append(x.shape)
        return hvd.allreduce(x, op=hvd.Sum)

    @tf.function
    def twice(x: tf.Tensor) -> tf.Tensor:
        return total(x) + total(x)

    for _ in range(3):
        for rows in (2, 3):
            assert twice(tf.ones([rows])).numpy().tolist() == [2.0 * hvd.size()] * rows
            assert total(tf.ones([rows])).numpy().tolist() == [float(hvd.size())] * rows
    assert len(traced) == 2


def test_a_saved_function_has_its_operation(hvd: ModuleType, tmp_path: Path) -> None:
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([2])])
        def total(self, x: tf.Tensor) -> tf.Tensor:
            return hvd.allreduce(x, op=hvd.Sum)

    module = Module()
    folder = str(tmp_path / "saved")
    tf.saved_model.save(module, folder)
    for one in (module, tf.saved_model.load(folder)):
        assert one.total(tf.ones([2])).numpy().tolist() == [float(hvd.size())] * 2


def test_two_gradients_through_one_operation(hvd: ModuleType) -> None:
    v, w = tf.Variable(filled(2.0)), tf.Variable(filled(3.0))
    here = hvd.rank() == 0

    @tf.function
    def step() -> list[tf.Tensor]:
        with tf.GradientTape() as one, tf.GradientTape() as other:
            done = hvd.allreduce(v * w, op=hvd.Sum, name="done")
            gathered = hvd.allgather(v * w, name="gathered")
            parts = hvd.reducescatter(v * w, op=hvd.Sum, name="parts")
            losses = [
                sum(tf.reduce_sum(late(each * 5.0, here)) for each in (done, gathered, parts)),
                sum(tf.reduce_sum(late(each * 7.0, not here)) for each in (done, gathered, parts)),
            ]
        return [one.gradient(losses[0], v), other.gradient(losses[1], w)]

    @tf.function
    def twice() -> list[tf.Tensor]:
        return [*step(), *step()]

    # Of the gathered rows it is the average, of the parts times the number of ranks: Horovod's gradients.
    wanted = [15.0 * (2 * hvd.size() + 1), 14.0 * (2 * hvd.size() + 1)]
    assert values(step()) == wanted
    assert values(twice()) == 2 * wanted


def test_gradients_through_loops_and_conditions(hvd: ModuleType) -> None:
    @tf.function
    def total(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for index in tf.range(3):
                if index > 0:  # noqa: SIM108  A condition of the graph.
                    y = total(y) + total(2.0 * y) + hvd.allreduce(y, op=hvd.Sum)
                else:
                    y = 5.0 * hvd.broadcast(y, 0)
        return tape.gradient(y, x)

    @tf.function
    def twice(x: tf.Tensor) -> list[tf.Tensor]:
        return [step(x), step(2.0 * x)]

    # Each rank's gradient of a broadcast is the average of all, and all of it is the root's.
    wanted = (4.0 * hvd.size()) ** 2 * 5.0 if hvd.rank() == 0 else 0.0
    assert [float(one) for one in twice(tf.constant(1.0))] == [wanted] * 2
