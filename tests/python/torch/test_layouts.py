"""Tensors that do not lie row by row."""

from __future__ import annotations

import os
from types import ModuleType

import pytest
import torch
from values import averaged, equal, of_rank, of_ranks, summed


def image(rank: int) -> torch.Tensor:
    return of_rank(rank, (2, 3, 4, 5), torch.float32).to(memory_format=torch.channels_last)


def test_dense_tensors_travel_as_they_lie(hvd: ModuleType) -> None:
    everyone = [image(rank) for rank in range(hvd.size())]
    mine, total = everyone[hvd.rank()], summed(everyone)
    made = hvd.allreduce(mine, name="image", op=hvd.Sum)
    assert made.stride() == mine.stride()
    assert equal(made, total)
    address = mine.data_ptr()
    hvd.allreduce_(mine, name="image", op=hvd.Sum)
    assert mine.data_ptr() == address
    assert equal(mine, total)
    turned = of_rank(hvd.rank(), (3, 7), torch.float64).t()
    hvd.broadcast_(turned, 0, name="turned")
    assert equal(turned, of_rank(0, (3, 7), torch.float64).t())
    whole = hvd.grouped_allreduce([image(hvd.rank()), turned], op=hvd.Sum)
    assert equal(whole[0], total)
    assert equal(whole[1], turned * hvd.size())


def test_tensors_with_gaps_are_copied_and_written_back(hvd: ModuleType) -> None:
    everyone = of_ranks(hvd.size(), (6, 4), torch.float32)
    wanted = summed(everyone)
    base = everyone[hvd.rank()].clone()
    view = base[::2, 1:3]
    assert equal(hvd.allreduce(view, op=hvd.Sum), wanted[::2, 1:3])
    handle = hvd.allreduce_async_(view, op=hvd.Sum)
    assert hvd.synchronize(handle) is view
    assert equal(view, wanted[::2, 1:3])
    assert equal(base[1::2], everyone[hvd.rank()][1::2]), "what lies between is as it was"
    hvd.grouped_allreduce_([base[:, 0], base[:, 3]], op=hvd.Max)
    assert equal(base[1::2, 0], torch.stack(everyone).amax(0)[1::2, 0])
    expanded = torch.tensor([float(hvd.rank())]).expand(4)
    assert hvd.allreduce(expanded, op=hvd.Sum).tolist() == [hvd.size() * (hvd.size() - 1) / 2] * 4


def test_unnamed_ones_meet_whatever_way_each_rank_hands_in(hvd: ModuleType) -> None:
    everyone = of_ranks(hvd.size(), (6, 4), torch.float32)
    wanted = summed(everyone)[:, 1]
    for turn in range(3):
        if hvd.rank() == 0:
            with pytest.raises(ValueError, match="not list"):
                hvd.allreduce_([1.0])
            with pytest.raises(ValueError, match="memory of its own"):
                hvd.allreduce_(torch.ones(1).expand(4))
            with pytest.raises(TypeError):
                hvd.allreduce_(torch.ones(6), prescale_factor="twice")
        mine = everyone[hvd.rank()].clone()[:, 1]
        if (hvd.rank() + turn) % 2 == 1:
            mine = mine.contiguous()
        if (hvd.rank() + turn) % 3 == 2:
            mine = torch.nn.Parameter(mine)
        assert hvd.allreduce_(mine, op=hvd.Sum) is mine
        assert equal(mine.detach(), wanted)


def test_operations_on_rows_copy_what_does_not_lie_row_by_row(hvd: ModuleType) -> None:
    size = hvd.size()
    everyone = [of_rank(rank, (3, 2 * size), torch.float32).t() for rank in range(size)]
    mine = everyone[hvd.rank()]
    assert equal(hvd.allgather(mine), torch.cat(everyone))
    assert equal(hvd.allgather(hvd.reducescatter(mine, op=hvd.Sum)), summed(everyone))
    assert equal(hvd.alltoall(hvd.alltoall(mine)), mine)


def test_conjugates_and_negatives_are_what_they_say(hvd: ModuleType) -> None:
    everyone = of_ranks(hvd.size(), (4,), torch.complex64)
    mine = everyone[hvd.rank()]
    assert equal(hvd.allreduce(mine.conj(), op=hvd.Sum), summed(everyone).conj().resolve_conj())
    imaginary = mine.conj().imag
    wanted = summed([-one.imag for one in everyone])
    assert torch.equal(hvd.allreduce(imaginary, op=hvd.Sum), wanted)
    hvd.allreduce_(imaginary, op=hvd.Sum)
    assert torch.equal(mine.imag, -wanted)


def test_different_layouts_are_an_error_on_all_ranks_and_the_job_goes_on(hvd: ModuleType) -> None:
    if hvd.size() < 2:
        pytest.skip("one rank agrees with itself")
    mine = image(hvd.rank())
    if hvd.rank() == 1:
        mine = mine.contiguous()
    before = mine.clone()
    with pytest.raises(hvd.mpi_ops.HorovodInternalError) as caught:
        hvd.allreduce_(mine, name="image")
    assert caught.value.code == "mismatch"
    assert "[2, 3, 4, 5] row by row" in str(caught.value)
    assert "[2, 3, 4, 5] with strides [60, 1, 15, 3]" in str(caught.value)
    assert equal(mine, before)
    mine = mine.contiguous(memory_format=torch.channels_last)
    everyone = [image(rank) for rank in range(hvd.size())]
    torch.testing.assert_close(hvd.allreduce_(mine, name="image"), averaged(everyone))


def test_dimensions_of_one_index_have_no_layout(hvd: ModuleType) -> None:
    mine = torch.ones(4, 1, 3)
    if hvd.rank() == 0:
        mine = mine.as_strided((4, 1, 3), (3, 77, 1))
    assert hvd.allreduce(mine, name="thin", op=hvd.Sum).unique().tolist() == [hvd.size()]


@pytest.mark.skipif("LONG_TESTS" not in os.environ, reason="touches gigabytes; make test-all runs it (LONG_TESTS=1)")
def test_tensors_beyond_two_gibibytes(hvd: ModuleType) -> None:
    if hvd.size() > 2:
        pytest.skip("needs 5 GiB per rank")
    count = (1 << 31) + 5
    mine = torch.zeros(count, dtype=torch.uint8)
    mine[-1] = hvd.rank() + 1
    hvd.allreduce_(mine, op=hvd.Sum)
    assert mine[-1] == hvd.size() * (hvd.size() + 1) // 2
    assert not mine[:-1].any()
    assert hvd.allgather(mine[: count // hvd.size() + 1]).shape[0] > 1 << 31
