"""Training that goes on after a failure. Ranks that die: tests/python/test_elastic_job.py."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
import torch

import horo
import horo.elastic
from horo.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horo.process_sets import process_set_of
from horo.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry


def state_of(hvd: ModuleType, **values: Any) -> Any:
    torch.manual_seed(hvd.rank())  # Every rank begins elsewhere.
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), model.named_parameters()
    )
    return hvd.elastic.TorchState(model=model, optimizer=optimizer, **values)


def same(hvd: ModuleType, tensor: torch.Tensor, name: str) -> bool:
    everybody = hvd.allgather(tensor.detach().reshape(1, -1), name)
    return all(torch.equal(everybody[0], one) for one in everybody)


def train_one(state: Any) -> None:
    state.optimizer.zero_grad()
    state.model(torch.ones(4, 3) * (state.batch + 1)).pow(2).mean().backward()
    state.optimizer.step()
    state.batch += 1


def fail(hvd: ModuleType) -> None:
    """One rank gives up, and the others hear of it."""
    if hvd.rank() == hvd.size() - 1:
        raise HorovodInternalError("planted")
    while True:
        hvd.allreduce(torch.ones(1), name="until it fails")


def test_an_unmodified_loop_trains_and_ranks_agree(hvd: ModuleType) -> None:
    @hvd.elastic.run
    def train(state: Any, batches: int) -> str:
        assert state.batch == 0
        for _ in range(batches):
            train_one(state)
            state.commit()
        return "done"

    state = state_of(hvd, batch=0)
    assert train(state, 3) == "done"
    assert state.batch == 3
    assert same(hvd, state.model.weight, "weight")


def reduced() -> int:
    """How many tensors this rank has handed in to be reduced."""
    counts = re.findall(r'horo_handed_in_total{.*operation="allreduce"} (\d+)', horo.metrics_text())
    return sum(map(int, counts))


def test_gradients_are_reduced_once_in_the_first_step_after_a_change_of_the_ranks(hvd: ModuleType) -> None:
    # An optimizer that is made after the change does it once, so that the others must not do it twice.
    state = state_of(hvd, batch=0)
    train_one(state)
    hvd.barrier()
    horo.reform()
    before = reduced()
    train_one(state)
    each = 3 if hvd.size() > 1 else 0  # Two gradients, and whether all ranks have got these.
    assert reduced() - before == each
    train_one(state)
    assert reduced() - before == 2 * each


def test_a_failure_goes_back_to_the_last_commit(hvd: ModuleType) -> None:
    calls: list[int] = []
    resets: list[int] = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        calls.append(state.batch)
        while state.batch < 4:
            train_one(state)
            if len(calls) == 1 and state.batch == 3:
                fail(hvd)
            if state.batch == 2:
                state.commit()

    state = state_of(hvd, batch=0)
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])
    rank, size = hvd.rank(), hvd.size()
    train(state)
    assert calls == [0, 2]
    assert resets == [size]
    assert (hvd.rank(), hvd.size()) == (rank, size)
    assert same(hvd, state.model.weight, "weight")
    # The same as without the failure.
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    reference = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for batch in range(4):
        reference.zero_grad()
        model(torch.ones(4, 3) * (batch + 1)).pow(2).mean().backward()
        reference.step()
    torch.testing.assert_close(state.model.weight, model.weight)


def test_ranks_that_ask_for_different_things_do_not_begin_anew(hvd: ModuleType) -> None:
    tries: list[int] = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        tries.append(state.batch)
        if len(tries) == 1:
            extra = torch.nn.Linear(1 + hvd.rank(), 1)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(extra.parameters(), 0.1))
            state.model(torch.ones(1, 3)).sum().backward()
            extra(torch.ones(1, 1 + hvd.rank())).sum().backward()
            optimizer.step()
            if hvd.size() == 1:
                raise HorovodInternalError("alone", "mismatch")
        train_one(state)

    state = state_of(hvd, batch=0)
    with pytest.raises(HorovodInternalError) as caught:
        train(state)
    assert caught.value.code == "mismatch"
    assert tries == [0]
    train(state)
    assert same(hvd, state.model.weight, "weight")


def test_failures_without_a_commit_in_between_end_the_job(hvd: ModuleType) -> None:
    tries: list[int] = []

    @hvd.elastic.run
    def train(_: Any) -> None:
        tries.append(0)
        raise HorovodInternalError("planted")

    with pytest.raises(HorovodInternalError, match="4 times without a commit"):
        train(state_of(hvd, batch=0))
    assert len(tries) == 4


def test_the_number_of_resets_can_be_limited(hvd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORO_RESET_LIMIT", "2")
    tries: list[int] = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        tries.append(0)
        state.commit()
        raise HorovodInternalError("operation 7 failed", "peer-lost", (1,))

    with pytest.raises(HorovodInternalError, match="begun anew 2 times"):
        train(state_of(hvd, batch=0))
    assert len(tries) == 3
    assert hvd.is_initialized()


def test_new_hosts_interrupt_all_ranks_and_nothing_is_lost(hvd: ModuleType) -> None:
    batches: list[int] = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        batches.append(state.batch)
        while state.batch < 3:
            train_one(state)
            if len(batches) == 1 and state.batch == 2 and hvd.rank() == 0:
                state.on_hosts_updated(1, 2)
            state.commit()

    state = state_of(hvd, batch=0)
    train(state)
    assert batches == [0, 2]
    for update, skips in ((1, True), (2, False), (3, False)):
        if hvd.rank() == 0:
            state.on_hosts_updated(10 + update, update)
        with pytest.raises(HostsUpdatedInterrupt) as caught:
            state.check_host_updates()
        assert caught.value.skip_sync is skips
    state.check_host_updates()


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_sampler_shares_what_is_left(hvd: ModuleType, shuffle: bool) -> None:
    dataset = list(range(26))
    sampler = hvd.elastic.ElasticSampler(dataset, shuffle=shuffle, seed=3)
    state = hvd.elastic.TorchState(sampler=sampler, epoch=0)
    loader = torch.utils.data.DataLoader(dataset, batch_size=2, sampler=sampler)
    seen = [one.tolist() for one in loader]
    assert len(seen) == -(-len(sampler) // 2)
    assert set().union(*hvd.allgather_object(set().union(*seen))) == set(dataset)
    for index in range(2):
        sampler.record_batch(index, 2)
    state.commit()
    done = set(seen[0] + seen[1])
    assert sampler.state_dict() == {"epoch": 0, "processed_indices": done}
    sampler.record_batch(2, 2)
    state.restore()
    assert sampler.processed_indices == done
    state.sync()
    everybody = set().union(*hvd.allgather_object(done))
    assert sampler.processed_indices == everybody
    rest = list(sampler)
    assert len(rest) == len(sampler) == -(-(26 - len(everybody)) // hvd.size())
    assert set().union(*hvd.allgather_object(rest)) == set(dataset) - everybody
    sampler.set_epoch(1)
    assert not sampler.processed_indices
    assert len(sampler) == -(-26 // hvd.size())
    # Who has come a moment ago is in its first epoch, and shares that of the others.
    sampler.set_epoch(4 if hvd.rank() == 0 else 0)
    state.sync()
    assert sampler.epoch == 4
    assert set().union(*hvd.allgather_object(list(sampler))) == set(dataset)


def test_a_sampler_shares_what_is_left_where_nothing_is_synchronised(hvd: ModuleType) -> None:
    dataset = list(range(60))
    sampler = hvd.elastic.ElasticSampler(dataset)
    state = hvd.elastic.TorchState(sampler=sampler)
    calls: list[set[int]] = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        calls.append(set(sampler.processed_indices))
        if len(calls) == 2:
            return
        for batch in range(2):
            sampler.record_batch(batch, 2)
        state.save()
        sampler.record_batch(2, 2)  # Not saved.
        if hvd.rank() == 0:
            state.on_hosts_updated(1, 1)  # Some were removed: what all have already is not synchronised.
        state.check_host_updates()

    train(state)
    assert len(calls[1]) == 6 * hvd.size()
    everybody = hvd.allgather_object((calls[1], list(sampler)))
    assert all(processed == calls[1] for processed, _ in everybody)
    assert set().union(*[rest for _, rest in everybody]) == set(dataset) - calls[1]
    state.restore()
    assert len(sampler.processed_indices) == 4 * hvd.size(), "what all ranks had saved"
    # What others have processed in an earlier epoch says nothing about this one.
    sampler.set_epoch(1 if hvd.rank() == 0 else 0)
    sampler.record_indices([hvd.rank()])
    state._combine()
    assert sampler.state_dict() == {"epoch": 1, "processed_indices": {0}}


def test_handlers_of_ones_own_can_be_registered(hvd: ModuleType) -> None:
    class Counter:
        count = 0

    class CounterHandler(StateHandler):
        saved = 0

        def save(self) -> None:
            self.saved = self.value.count

        def restore(self) -> None:
            self.value.count = self.saved

        def sync(self) -> None:
            self.value.count = hvd.broadcast_object(self.value.count, 0)

    before = list(get_handler_registry())
    set_handler_registry([*before, (Counter, CounterHandler)])
    try:
        counter = Counter()
        state = hvd.elastic.TorchState(counter=counter, other=[1])
        counter.count = hvd.rank() + 5
        state.sync()
        assert counter.count == 5
        state.save()
        counter.count, state.other[0] = 9, 2
        state.restore()
        assert (counter.count, state.other) == (5, [1])
        replaced = Counter()
        replaced.count = 7
        state.counter = replaced
        replaced.count = 8
        state.restore()
        assert state.counter is replaced
        assert replaced.count == 7
    finally:
        set_handler_registry(before)


def test_a_state_is_given_to_some_ranks_while_others_go_on(hvd: ModuleType) -> None:
    """As newcomers get it. What a subclass does in sync() is done by all ranks."""
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    if hvd.rank() == 0:  # The others have no momentum yet.
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)
    mine = model.weight.detach().clone()
    members = sorted({0, hvd.size() - 1})
    process_set, added = process_set_of(members)
    assert added == (len(members) < hvd.size())
    if process_set.included():
        state._give(process_set)
        for kind, tensor in (("weight", model.weight), ("momentum", optimizer.state[model.bias]["momentum_buffer"])):
            got = hvd.allgather(tensor.detach().reshape(1, -1), f"given.{kind}", process_set)
            assert all(torch.equal(got[0], one) for one in got)
        assert torch.equal(state._handlers["model"]._saved["weight"], model.weight)
    else:
        assert torch.equal(model.weight, mine)
        assert not optimizer.state
    assert process_set_of(members)[1] is False
    if added:
        hvd.remove_process_set(process_set)

    class Own(hvd.elastic.TorchState):
        def sync(self) -> None:
            super().sync()

    assert state._gives()
    assert not Own(batch=0)._gives()


def test_a_state_of_objects_needs_no_framework(hvd: ModuleType) -> None:
    state = horo.elastic.ObjectState(lambda obj: hvd.broadcast_object(obj, 0), hvd.rank, epoch=hvd.rank(), best=[])
    state.sync()
    assert state.epoch == 0
    state.epoch = 3
    state.best.append(1)
    state.restore()
    assert (state.epoch, state.best) == (0, [])
    state.epoch = 4
    state.commit()
    state.epoch = 5
    state.restore()
    assert state.epoch == 4
