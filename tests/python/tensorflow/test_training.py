"""Tapes, optimizers, variables, states: what a loop of training uses."""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf
from values import MODES, in_mode

import horo
from horo.process_sets import process_set_of


def handed_in() -> int:
    return horo.metrics()["process_sets"][0]["operations"]["allreduce"]["handed_in"]


@pytest.mark.parametrize("mode", MODES)
def test_a_tape_averages_gradients(hvd: ModuleType, mode: str) -> None:
    w, b = tf.Variable([1.0, 2.0], name="w"), tf.Variable(1.0, name="b")

    @functools.partial(in_mode, mode)
    def gradients(x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * w * x) + b * x[0]
        return hvd.DistributedGradientTape(tape).gradient(loss, {"w": w, "b": b})

    got = gradients(tf.constant([1.0, 2.0]) * (hvd.rank() + 1))
    mean = (hvd.size() + 1) / 2
    np.testing.assert_allclose(got["w"].numpy(), np.array([2.0, 8.0]) * mean, rtol=1e-6)
    np.testing.assert_allclose(got["b"].numpy(), mean, rtol=1e-6)


def test_a_tape_takes_all_its_options(hvd: ModuleType) -> None:
    variables = [tf.Variable(tf.ones([2]) * index, name=f"v{index}") for index in range(5)]
    unused = tf.Variable(1.0, name="unused")

    def gradients(**options: object) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(one) * float(hvd.rank() + 1) for one in variables])
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, [*variables, unused])

    mean = (hvd.size() + 1) / 2
    for options in (
        {"num_groups": 2},
        {"groups": 3},
        {"groups": [variables[1:3], variables[3:]]},
        {"gradient_predivide_factor": 4.0},
        {"compression": hvd.Compression.fp16},
        {"op": hvd.Average, "device_dense": "/cpu:0", "device_sparse": "/cpu:0"},
    ):
        before = handed_in()
        got = gradients(**options)
        assert handed_in() - before == 5
        assert got[5] is None
        for one in got[:5]:
            np.testing.assert_allclose(one.numpy(), [mean, mean], rtol=1e-3)
    np.testing.assert_allclose(gradients(op=hvd.Sum)[0].numpy(), [mean * hvd.size()] * 2)
    with pytest.raises(ValueError, match="predivide"):
        gradients(op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="groups"):
        gradients(groups="all")
    with tf.GradientTape() as tape:
        pass
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tape))


def test_gradients_of_a_step_are_few_operations(hvd: ModuleType) -> None:
    # 40 variables of 1 MiB: two groups.
    variables = [tf.Variable(tf.zeros([1 << 18]), name=f"many{index}") for index in range(40)]

    @tf.function
    def step() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(one * 2.0) for one in variables])
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    nodes = [one for one in step.get_concrete_function().graph.get_operations() if one.type == "HoroAllreduce"]
    assert [len(one.outputs) for one in nodes] == [25, 15]
    assert [one.get_attr("tensor_name").decode() for one in nodes] == [
        "grouped_allreduce.gradient.many0",
        "grouped_allreduce.gradient.many25",
    ]
    assert step()[39].numpy()[0] == 2.0


@pytest.mark.parametrize("mode", MODES)
def test_embeddings_stay_sparse_or_become_dense(hvd: ModuleType, mode: str) -> None:
    table = tf.Variable(tf.zeros([2 * hvd.size() + 1, 3]), name="table")

    def gradient(as_dense: bool) -> object:
        @functools.partial(in_mode, mode)
        def inner(rows: tf.Tensor) -> object:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, rows))
            return hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense).gradient(loss, table)

        return inner(tf.constant([0, 1 + hvd.rank()]))

    sparse, dense = gradient(False), gradient(True)
    assert isinstance(sparse, tf.IndexedSlices)
    assert isinstance(dense, tf.Tensor)
    assert sparse.values.shape[0] == 2 * hvd.size()
    np.testing.assert_allclose(tf.convert_to_tensor(sparse).numpy(), dense.numpy(), rtol=1e-6)
    assert dense.numpy()[0].tolist() == pytest.approx([1.0] * 3)


def test_local_sources_stay_here(hvd: ModuleType) -> None:
    mine, shared = tf.Variable(1.0, name="mine"), tf.Variable(1.0, name="shared")
    for scale in (True, False):
        with tf.GradientTape() as tape:
            loss = (mine + shared) * float(hvd.rank() + 1)
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        tape.register_local_source(mine)
        local, reduced = tape.gradient(loss, [mine, shared])
        assert float(local) == pytest.approx((hvd.rank() + 1) / (hvd.size() if scale else 1))
        assert float(reduced) == pytest.approx((hvd.size() + 1) / 2)
    pairs = tape.get_local_and_global_gradients([local, reduced], [mine, shared])
    assert pairs[0][0][1] is mine
    assert pairs[1][0][1] is shared


def test_a_partial_tape_leaves_layers_alone(hvd: ModuleType) -> None:
    layers = [tf.keras.layers.Dense(2, use_bias=False, kernel_initializer="ones") for _ in range(2)]
    x = tf.ones([1, 2]) * float(hvd.rank() + 1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layers[1](layers[0](x)))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=layers[0], scale_local_gradients=False)
    first, second = tape.gradient(loss, [layers[0].kernel, layers[1].kernel])
    assert first.numpy()[0, 0] == pytest.approx(2.0 * (hvd.rank() + 1))
    assert second.numpy()[0, 0] == pytest.approx(2.0 * (hvd.size() + 1) / 2)
    with pytest.raises(ValueError, match="layers of Keras"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=["layer"])


@pytest.mark.parametrize("mode", MODES)
def test_variables_become_those_of_the_root(hvd: ModuleType, mode: str) -> None:
    root = hvd.size() - 1
    given = [
        tf.Variable(tf.fill([3], float(hvd.rank())), name="a"),
        tf.Variable(hvd.rank(), name="b"),
        tf.Variable([hvd.rank() == root], name="c"),
    ]
    layer = tf.keras.layers.Dense(2, kernel_initializer=tf.keras.initializers.Constant(hvd.rank()))
    layer.build([None, 2])

    @functools.partial(in_mode, mode)
    def broadcast() -> None:
        hvd.broadcast_variables([*given, *layer.weights], root_rank=root)

    broadcast()
    assert given[0].numpy().tolist() == [float(root)] * 3
    assert int(given[1]) == root
    assert given[2].numpy().tolist() == [True]
    assert np.all(np.asarray(layer.kernel) == root)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_several_passes_become_one_reduction(hvd: ModuleType, mode: str) -> None:
    for average in (False, True):
        variable = tf.Variable([0.0, 0.0], name="aggregated")
        plain = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        optimizer = hvd.DistributedOptimizer(plain, backward_passes_per_step=3, average_aggregated_gradients=average)

        @functools.partial(in_mode, mode)
        def step(x: tf.Tensor, variable=variable, optimizer=optimizer) -> None:
            pairs = optimizer.compute_gradients(lambda: tf.reduce_sum(variable * x), var_list=[variable])
            optimizer.apply_gradients(pairs)

        before = None
        for index in range(6):
            if index == 1:
                before = handed_in()
            step(tf.constant([1.0, 2.0]) * (hvd.rank() + 1))
            steps = (index + 1) // 3
            mean = (hvd.size() + 1) / 2 * steps * (1 if average else 3)
            np.testing.assert_allclose(variable.numpy(), [-mean, -2 * mean], rtol=1e-6)
        assert handed_in() - before == 2  # Of passes 3 and 6 alone.


def test_an_optimizer_of_compat_v1_applies_averages(hvd: ModuleType) -> None:
    variable = tf.Variable(1.0, name="v1")
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5), op=hvd.Sum)
    optimizer.minimize(lambda: variable * float(hvd.rank() + 1), var_list=[variable])
    assert float(variable) == pytest.approx(1 - 0.5 * sum(range(1, hvd.size() + 1)))
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="wraps optimizers"):
        hvd.DistributedOptimizer(object())
    with pytest.raises(ValueError, match="backward_passes_per_step"):
        hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5), backward_passes_per_step=0)


@pytest.mark.parametrize("mode", MODES)
def test_batches_are_normalised_together(hvd: ModuleType, mode: str) -> None:
    rows = [2 + rank for rank in range(hvd.size())]
    everything = np.random.default_rng(5).normal(3, 2, (sum(rows), 4)).astype(np.float32)
    begin = sum(rows[: hvd.rank()])
    mine = tf.constant(everything[begin : begin + rows[hvd.rank()]])
    layer = hvd.SyncBatchNormalization(momentum=0.5, name="together")
    plain = tf.keras.layers.BatchNormalization(momentum=0.5)
    for one in (layer, plain):
        one.build([None, 4])

    def run(one: tf.keras.layers.Layer, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = one(x, training=True)
            loss = tf.reduce_sum(tf.sin(y) * tf.cumsum(tf.ones_like(y), axis=1))
        return y, *tape.gradient(loss, [x, one.gamma])

    y, to_x, to_gamma = tf.function(run)(layer, mine) if mode == "graph" else run(layer, mine)
    whole = run(plain, tf.constant(everything))
    own = slice(begin, begin + rows[hvd.rank()])
    np.testing.assert_allclose(y.numpy(), whole[0].numpy()[own], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_x.numpy(), whole[1].numpy()[own], rtol=1e-3, atol=1e-3)
    total = hvd.allreduce(to_gamma, op=hvd.Sum, name="gamma")
    np.testing.assert_allclose(total.numpy(), whole[2].numpy(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.asarray(layer.moving_mean), np.asarray(plain.moving_mean), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(layer.moving_variance), np.asarray(plain.moving_variance), rtol=1e-3)
    with pytest.raises(ValueError, match="fused"):
        hvd.SyncBatchNormalization(fused=True)


def test_objects_travel(hvd: ModuleType) -> None:
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=hvd.size() - 1) == {"rank": hvd.size() - 1}
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    with pytest.raises(ValueError, match="session"):
        hvd.broadcast_object(1, session=object())


def test_names_of_tensorflow_1_say_what_replaces_them(hvd: ModuleType) -> None:
    for call in (
        lambda: hvd.broadcast_global_variables(0),
        lambda: hvd.broadcast_object_fn(0),
        lambda: hvd.BroadcastGlobalVariablesHook(0),
    ):
        with pytest.raises(NotImplementedError, match="TensorFlow 1; use "):
            call()


def test_training_goes_on_after_a_failure(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    weights = tf.Variable(tf.fill([2], float(hvd.rank())), name="state")
    state = hvd.elastic.TensorFlowState(variables=[weights], step=0)
    failures = []

    @tf.function
    def step(x: tf.Tensor) -> None:
        weights.assign_add(hvd.allreduce(x, op=hvd.Sum, name="elastic")[:2])

    @hvd.elastic.run
    def train(state: object) -> int:
        while state.step < 4:
            wrong = state.step == 2 and not failures
            if wrong:
                failures.append(state.step)
                weights.assign([100.0, 100.0])
                raise hvd.HorovodInternalError("planted")
            step(tf.ones([2]))
            state.step += 1
            state.commit()
        return state.step

    assert train(state) == 4
    assert failures == [2]
    assert weights.numpy().tolist() == [4.0 * hvd.size()] * 2  # From rank 0's 0, four steps.


def test_a_model_and_its_optimizer_are_a_state(hvd: ModuleType) -> None:
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.Constant(hvd.rank()))]
    )
    model.build([None, 2])
    optimizer = tf.keras.optimizers.SGD(0.1 * (hvd.rank() + 1), momentum=0.9)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=hvd.rank())
    state.sync()
    assert np.all(np.asarray(model.layers[0].kernel) == 0)
    assert float(optimizer.learning_rate) == pytest.approx(0.1)
    assert state.epoch == 0
    model.layers[0].kernel.assign([[5.0], [5.0]])
    state.epoch = 7
    state.restore()
    assert np.all(np.asarray(model.layers[0].kernel) == 0)
    assert state.epoch == 0
    with pytest.raises(ValueError, match="session"):
        hvd.elastic.TensorFlowState(session=object())
    # Newcomers get it from rank 0 alone.
    givers, added = process_set_of(sorted({0, hvd.size() - 1}))
    model.layers[0].kernel.assign([[1.0 + hvd.rank()]] * 2)
    if givers.included():
        state._give(givers)
        assert state._values[0].tolist() == [[1.0], [1.0]]
    assert state._gives()
    assert np.all(np.asarray(model.layers[0].kernel) == (1 if givers.included() else 1 + hvd.rank()))
    if added:
        hvd.remove_process_set(givers)


def test_an_exported_model_has_no_operation_of_horo(hvd: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            self.w = tf.Variable([[1.0], [2.0]], name="w")

        @tf.function(input_signature=[tf.TensorSpec([None, 2])])
        def predict(self, x: tf.Tensor) -> tf.Tensor:
            return tf.matmul(x, self.w)

    model = Model()

    @tf.function
    def train(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model.predict(x))
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [model.w])
        model.w.assign_sub(0.0 * gradient)

    train(tf.ones([1, 2]))
    folder = str(tmp_path_factory.mktemp("exported"))
    tf.saved_model.save(model, folder)
    with open(f"{folder}/saved_model.pb", "rb") as file:
        assert b"Horo" not in file.read()
    assert tf.saved_model.load(folder).predict(tf.ones([1, 2])).numpy().tolist() == [[3.0]]


def test_before_init_and_after_shutdown_it_says_so(hvd: ModuleType) -> None:
    """The last test but one of the contract: it leaves the job, and joins it again with all others."""

    @tf.function
    def reduce(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum)

    assert reduce(tf.constant(1.0)).numpy() == hvd.size()
    ranks = hvd.size()
    hvd.shutdown()
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.allreduce(tf.constant(1.0))
    with pytest.raises(tf.errors.OpError, match="has not been initialized"):
        reduce(tf.constant(1.0))
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.rank_op()
    hvd.init()
    assert reduce(tf.constant(1.0)).numpy() == ranks
