"""What is wrong is said, on the ranks that it concerns, and the next operation works."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch


def works(hvd: ModuleType) -> None:
    assert hvd.allreduce(torch.ones(2), name="works", op=hvd.Sum).tolist() == [hvd.size()] * 2


def disagreements(hvd: ModuleType) -> dict[str, tuple[str, Callable[[bool], object]]]:
    """What the message names, and a call that is different on rank 0."""
    ones = torch.ones(4, 2)
    return {
        "shape": ("shapes", lambda odd: hvd.allreduce(torch.ones(4 + odd), name="x")),
        "dtype": ("data types", lambda odd: hvd.allreduce(ones.double() if odd else ones, name="x")),
        "op": ("reductions", lambda odd: hvd.allreduce(ones, name="x", op=hvd.Min if odd else hvd.Max)),
        "prescale": ("prescale", lambda odd: hvd.allreduce(ones, name="x", prescale_factor=1.0 + odd)),
        "root": ("root ranks", lambda odd: hvd.broadcast_(ones.clone(), int(odd), name="x")),
        "columns": ("shapes", lambda odd: hvd.allgather(torch.ones(2, 3 + odd), name="x")),
        "group": ("shapes", lambda odd: hvd.grouped_allreduce([ones, ones[odd:]], name="x")),
        "scatter": ("reductions", lambda odd: hvd.reducescatter(ones, name="x", op=hvd.Sum if odd else hvd.Average)),
    }


@pytest.mark.parametrize("case", ["shape", "dtype", "op", "prescale", "root", "columns", "group", "scatter"])
def test_ranks_that_disagree_all_hear_of_it(hvd: ModuleType, case: str) -> None:
    if hvd.size() < 2:
        pytest.skip("one rank agrees with itself")
    words, call = disagreements(hvd)[case]
    with pytest.raises(hvd.HorovodInternalError, match=words) as caught:
        call(hvd.rank() == 0)
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.code == "mismatch"
    works(hvd)


def test_a_failure_comes_with_synchronize_and_not_before(hvd: ModuleType) -> None:
    if hvd.size() < 2:
        pytest.skip("one rank agrees with itself")
    mine = torch.full((3 + (hvd.rank() == 0),), 5.0)
    handle = hvd.allreduce_async_(mine, name="x")
    for _ in range(2):
        with pytest.raises(hvd.HorovodInternalError, match="shapes"):
            hvd.synchronize(handle)
    assert mine.unique().tolist() == [5.0], "untouched"
    works(hvd)


def wrong_calls(hvd: ModuleType) -> list[tuple[str, Callable[[], object]]]:
    ones = torch.ones(3, 2)
    return [
        ("torch.Tensor, not list", lambda: hvd.allreduce([1.0])),
        ("torch.Tensor, not ndarray", lambda: hvd.allreduce_async_(ones.numpy())),
        ("dense tensors", lambda: hvd.allreduce(ones.to_sparse())),
        ("sparse tensor", lambda: hvd.sparse_allreduce_async(ones, "s", hvd.Sum)),
        ("Average and Sum only", lambda: hvd.sparse_allreduce_async(ones.to_sparse(), "s", hvd.Max)),
        ("CPU and CUDA tensors", lambda: hvd.broadcast_(torch.empty(2, device="meta"), 0)),
        (r"Tensor type torch\.\w+ is not supported", lambda: hvd.allreduce(ones.to(torch.float8_e4m3fnuz))),
        ("f8e4m3 has no sum", lambda: hvd.allreduce(ones.to(torch.float8_e4m3fn), op=hvd.Sum)),
        ("only sum and average", lambda: hvd.reducescatter(ones, op=hvd.Max)),
        ("adasum", lambda: hvd.reducescatter(ones, op=hvd.Adasum)),
        ("adasum needs floats", lambda: hvd.allreduce(ones.int(), op=hvd.Adasum)),
        ("no reduction 17", lambda: hvd.allreduce(ones, op=17)),
        ("supersedes", lambda: hvd.allreduce(ones, average=True, op=hvd.Sum)),
        (f"root rank {hvd.size()} is not in", lambda: hvd.broadcast(ones, hvd.size())),
        ("root rank -1 is not in", lambda: hvd.broadcast(ones, -1)),
        ("splits for", lambda: hvd.alltoall(ones, torch.tensor([0] * (hvd.size() + 1)))),
        ("one number of rows for each rank", lambda: hvd.alltoall(ones, torch.tensor([-1] * hvd.size()))),
        ("add up to more", lambda: hvd.alltoall(ones, torch.tensor([4] * hvd.size()))),
        ("no tensors", lambda: hvd.grouped_allreduce([])),
        ("no tensors", lambda: hvd.grouped_allgather([])),
        ("clone", lambda: hvd.allreduce_(torch.ones(1).expand(3))),
        ("not known to horo", lambda: hvd.allreduce(ones, process_set=hvd.ProcessSet([0]))),
        ("invalid params", lambda: hvd.broadcast_parameters(iter([ones]), 0)),
    ]


def test_a_wrong_call_is_a_value_error_and_no_other_rank_hears_of_it(hvd: ModuleType) -> None:
    if hvd.rank() == 0:
        for words, call in wrong_calls(hvd):
            with pytest.raises(ValueError, match=words):
                call()
    works(hvd)


def test_a_group_with_one_wrong_tensor_is_not_handed_in(hvd: ModuleType) -> None:
    with pytest.raises(ValueError, match="not supported"):
        hvd.grouped_allreduce_async([torch.ones(2), torch.ones(2).to(torch.float8_e4m3fnuz)], name="g")
    assert len(hvd.grouped_allreduce([torch.ones(2), torch.ones(2)], name="g")) == 2


def test_a_name_in_use_is_refused_until_it_is_free(hvd: ModuleType) -> None:
    first = None
    if hvd.rank() == 0 and hvd.size() > 1:
        first = hvd.allreduce_async(torch.ones(2), name="x", op=hvd.Sum)
        with pytest.raises(ValueError, match=r"allreduce\.x"):
            hvd.allreduce_async(torch.ones(2), name="x", op=hvd.Sum)
        with pytest.raises(ValueError, match=r"allreduce\.x"):
            hvd.allreduce_(torch.ones(2), name="x")
    hvd.barrier()
    total = hvd.synchronize(first) if first else hvd.allreduce(torch.ones(2), name="x", op=hvd.Sum)
    assert total.tolist() == [hvd.size()] * 2
    works(hvd)


def test_handles(hvd: ModuleType) -> None:
    assert hvd.synchronize(12345) is None
    assert hvd.synchronize(None) is None
    with pytest.raises(ValueError, match="_async"):
        hvd.poll(12345)
    handle = hvd.allreduce_async(torch.ones(1), name="once")
    hvd.synchronize(handle)
    assert hvd.poll(handle)
    with pytest.raises(ValueError, match="synchronised before"):
        hvd.synchronize(handle)


def test_the_old_word_average_warns(hvd: ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(torch.ones(1), average=False).item() == hvd.size()
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.synchronize(hvd.allreduce_async_(torch.ones(1), average=True)).item() == 1


def test_before_init_and_after_shutdown(hvd: ModuleType) -> None:
    pending = hvd.allreduce_async(torch.ones(2), name="pending", op=hvd.Sum)
    hvd.synchronize(pending)
    hvd.shutdown()
    try:
        for call in (
            lambda: hvd.allreduce(torch.ones(1)),
            lambda: hvd.allreduce_async_(torch.ones(1)),
            lambda: hvd.broadcast_parameters({"a": torch.ones(1)}, 0),
            lambda: hvd.allgather_object(1),
            hvd.barrier,
            hvd.join,
            hvd.rank,
        ):
            with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)\."):
                call()
    finally:
        hvd.init()
    works(hvd)


def test_a_forked_child_is_told_and_its_parent_goes_on(hvd: ModuleType) -> None:
    under_way = hvd.allreduce_async(torch.ones(3), name="under way", op=hvd.Sum)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            calls = [
                lambda: hvd.allreduce(torch.ones(1)),
                lambda: hvd.allreduce_async_(torch.ones(1)),
                lambda: hvd.synchronize(under_way),
            ]
            told = []
            for call in calls:
                try:
                    call()
                except hvd.HorovodInternalError as error:
                    told.append(error.code)
            code = 0 if told == ["forked"] * 3 else 2
            print(told, file=sys.stderr)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert hvd.synchronize(under_way).tolist() == [hvd.size()] * 3
    works(hvd)
