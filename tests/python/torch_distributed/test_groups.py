"""Groups of some ranks, groups beside groups, and meshes of them."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch


def test_a_group_of_some_ranks_has_its_own_ranks(dist: ModuleType, rank: int, size: int) -> None:
    some = list(range(1, size))
    group = dist.new_group(some)
    mine = torch.ones(2)
    if rank in some:
        assert dist.get_rank(group) == rank - 1
        assert dist.get_world_size(group) == size - 1
        assert dist.get_process_group_ranks(group) == some
        assert dist.get_backend(group) == "horo"
        dist.all_reduce(mine, group=group)
        assert (mine == size - 1).all()
        dist.broadcast(mine.fill_(rank), src=size - 1, group=group)
        assert (mine == size - 1).all()
        dist.barrier(group)
        dist.destroy_process_group(group)
    else:
        assert group is dist.GroupMember.NON_GROUP_MEMBER


def test_two_groups_work_at_once_and_in_any_order(dist: ModuleType, rank: int, size: int) -> None:
    groups = [dist.new_group() for _ in range(2)]
    values = [torch.full((30_000,), float(rank)), torch.full((30_000,), 10.0 * rank)]
    order = [0, 1] if rank == 0 else [1, 0]
    works = [dist.all_reduce(values[index], group=groups[index], async_op=True) for index in order]
    for work in works:
        work.wait()
    assert (values[0] == sum(range(size))).all()
    assert (values[1] == 10 * sum(range(size))).all()
    for group in groups:
        dist.destroy_process_group(group)


def test_ranks_of_a_group_may_have_another_order(dist: ModuleType, rank: int, size: int) -> None:
    try:
        group = dist.new_group(list(range(size))[::-1], sort_ranks=False)
    except TypeError:
        pytest.skip("this torch sorts the ranks of every group")
    assert dist.get_rank(group) == size - 1 - rank
    outputs = [torch.empty(1) for _ in range(size)]
    dist.all_gather(outputs, torch.tensor([float(rank)]), group=group)
    assert [one.item() for one in outputs] == list(range(size))[::-1]
    if rank == 0:
        dist.send(torch.ones(1), size - 1, group=group)
    elif rank == size - 1:
        assert dist.recv(outputs[0], 0, group=group) == 0
    dist.barrier(group)
    dist.destroy_process_group(group)


def test_only_members_need_to_make_a_group(dist: ModuleType, rank: int, size: int) -> None:
    if rank < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        dist.barrier(group)
        dist.destroy_process_group(group)


def test_subgroups_of_equal_size(dist: ModuleType, rank: int, size: int) -> None:
    if size % 2:
        pytest.skip("needs an even number of ranks")
    mine, groups = dist.new_subgroups_by_enumeration([[one, one + 1] for one in range(0, size, 2)])
    value = torch.tensor([float(rank)])
    dist.all_reduce(value, group=mine)
    assert value == 2 * (rank // 2 * 2) + 1
    for group in groups:
        if group is mine:
            dist.destroy_process_group(group)


def test_a_mesh_has_a_group_for_each_dimension(dist: ModuleType, rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    shape = (2, size // 2) if size % 2 == 0 else (size, 1)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("rows", "columns"))
    row, column = mesh["rows"].get_group(), mesh["columns"].get_group()
    value = torch.tensor([1.0])
    dist.all_reduce(value, group=row)
    dist.all_reduce(value, group=column)
    assert value == size
    assert mesh.get_local_rank("rows") == rank // shape[1]


def test_distributed_tensors_work_on_a_mesh(dist: ModuleType, rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(4.0 * size * 3).view(4 * size, 3)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert sharded.to_local().shape == (4, 3)
    assert torch.equal(sharded.full_tensor(), whole)
    replicated = sharded.redistribute(placements=[Replicate()])
    assert torch.equal(replicated.to_local(), whole)
    assert torch.equal(sharded.redistribute(placements=[Shard(1)]).full_tensor(), whole)


def test_a_device_can_be_bound(dist: ModuleType) -> None:
    group = dist.group.WORLD
    assert group._get_backend(torch.device("cpu")) is group
    assert not group.supports_splitting
    assert group.name() == "horo" == dist.get_backend()
    assert group._device_types == [torch.device("cpu")]


def test_a_barrier_names_who_does_not_come(dist: ModuleType, rank: int, size: int) -> None:
    from datetime import timedelta

    import horo.torch

    horo.torch.monitored_barrier()
    horo.torch.monitored_barrier(dist.group.WORLD, timedelta(seconds=20), wait_all_ranks=True)
    late = size - 1
    for wait_all in (False, True):
        if rank != late:
            words = f"Rank {late} failed to pass" if rank == 0 else "successfully reached monitoredBarrier, but"
            with pytest.raises(RuntimeError, match=words):
                horo.torch.monitored_barrier(timeout=timedelta(seconds=0.3), wait_all_ranks=wait_all)
        dist.barrier()
    with pytest.raises(ValueError, match="back end horo"):
        horo.torch.monitored_barrier(object())
