"""Gradients through operations are operations of all ranks."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from values import of_rank, of_ranks

from horo.torch import compiling


def leaf(rank: int, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return of_rank(rank, shape, torch.float64, seed).requires_grad_()


def weights(rank: int, shape: tuple[int, ...], seed: int = 7) -> torch.Tensor:
    """What a rank's loss multiplies its result with: the gradient that comes back to that rank."""
    return of_rank(rank, shape, torch.float64, seed)


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_of_an_allreduce(hvd: ModuleType, op: str) -> None:
    size, rank = hvd.size(), hvd.rank()
    mine, more = leaf(rank, (4, 2)), leaf(rank, (3,), 1)
    divisor = size if op == "Average" else 1
    total = sum(weights(one, (4, 2)) for one in range(size))
    (hvd.allreduce(mine, name="a", op=getattr(hvd, op), prescale_factor=2.0) * weights(rank, (4, 2))).sum().backward()
    torch.testing.assert_close(mine.grad, 2 * total / divisor)
    mine.grad = None
    pair = hvd.grouped_allreduce([mine, more], name="g", op=getattr(hvd, op))
    ((pair[0] * weights(rank, (4, 2))).sum() + pair[1].sum()).backward()
    torch.testing.assert_close(mine.grad, total / divisor)
    torch.testing.assert_close(more.grad, torch.full((3,), size / divisor, dtype=torch.float64))


def test_of_an_allgather_is_the_average_of_the_own_rows(hvd: ModuleType) -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = size * (size + 1) // 2
    mine, more = leaf(rank, (rank + 1, 2)), leaf(rank, (2,), 1)
    begin = rank * (rank + 1) // 2
    mean = sum(weights(one, (rows, 2)) for one in range(size)) / size
    (hvd.allgather(mine, name="a") * weights(rank, (rows, 2))).sum().backward()
    torch.testing.assert_close(mine.grad, mean[begin : begin + rank + 1])
    mine.grad = None
    pair = hvd.grouped_allgather([mine, more])
    ((pair[0] * weights(rank, (rows, 2))).sum() + 3 * pair[1].sum()).backward()
    torch.testing.assert_close(mine.grad, mean[begin : begin + rank + 1])
    torch.testing.assert_close(more.grad, torch.full((2,), 3.0, dtype=torch.float64))


def test_of_a_broadcast_goes_to_the_root(hvd: ModuleType) -> None:
    size, rank = hvd.size(), hvd.rank()
    mine = leaf(rank, (3,))
    (hvd.broadcast(mine, 0, name="b") * weights(rank, (3,))).sum().backward()
    mean = sum(weights(one, (3,)) for one in range(size)) / size
    torch.testing.assert_close(mine.grad, mean if rank == 0 else torch.zeros(3, dtype=torch.float64))


def test_of_an_alltoall_goes_back_where_it_came_from(hvd: ModuleType) -> None:
    size, rank = hvd.size(), hvd.rank()
    mine = leaf(rank, (size * (rank + 1), 2))
    splits = torch.tensor([rank + 1] * size, dtype=torch.int32)
    output, received = hvd.alltoall(mine, splits, name="t")
    assert not received.requires_grad
    (output * (rank + 1)).sum().backward()
    wanted = torch.cat([torch.full((rank + 1, 2), one + 1.0, dtype=torch.float64) for one in range(size)])
    torch.testing.assert_close(mine.grad, wanted)
    mine.grad = None
    (hvd.alltoall(mine) * (rank + 1)).sum().backward()
    torch.testing.assert_close(mine.grad, wanted)


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_of_a_reducescatter_is_an_allgather(hvd: ModuleType, op: str) -> None:
    size, rank = hvd.size(), hvd.rank()
    mine = leaf(rank, (2 * size + 1, 2))
    factor = (size if op == "Sum" else 1) * 0.5
    share = hvd.reducescatter(mine, name="r", op=getattr(hvd, op), prescale_factor=0.5)
    (share * (rank + 1)).sum().backward()
    owners = torch.tensor([1.0] + [owner + 1.0 for owner in range(size) for _ in range(2)], dtype=torch.float64)
    wanted = owners[:, None].expand(-1, 2) * factor
    torch.testing.assert_close(mine.grad, wanted)
    mine.grad = None
    pair = hvd.grouped_reducescatter([mine, mine * 2], op=getattr(hvd, op), prescale_factor=0.5)
    ((pair[0] + pair[1]) * (rank + 1)).sum().backward()
    torch.testing.assert_close(mine.grad, wanted * 3)


def test_goes_through_compression(hvd: ModuleType) -> None:
    mine = of_rank(hvd.rank(), (4,), torch.float32).requires_grad_()
    hvd.allreduce(mine, compression=hvd.Compression.fp16, op=hvd.Sum).sum().backward()
    assert mine.grad.tolist() == [hvd.size()] * 4


def test_of_a_gradient(hvd: ModuleType) -> None:
    mine = leaf(hvd.rank(), (3,))
    cubes = hvd.allreduce(mine**3, op=hvd.Sum).sum()
    (first,) = torch.autograd.grad(cubes, mine, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), mine)
    torch.testing.assert_close(second, 6 * mine.detach() * hvd.size())


def test_operations_without_gradients_cost_no_graph(hvd: ModuleType) -> None:
    mine = leaf(hvd.rank(), (3,))
    with torch.no_grad():
        assert not hvd.allreduce(mine).requires_grad
    assert not hvd.allreduce(mine.detach()).requires_grad
    for made in (hvd.synchronize(hvd.allreduce_async(mine)), hvd.synchronize(hvd.allgather_async(mine))):
        assert not made.requires_grad
    before = mine.detach().clone()
    hvd.allreduce_(mine, op=hvd.Sum)
    assert mine.is_leaf
    torch.testing.assert_close(mine.detach(), sum(of_ranks(hvd.size(), (3,), torch.float64)))
    assert before.shape == mine.shape


@pytest.mark.filterwarnings("error:Dynamo does not know how to trace")
@pytest.mark.usefixtures("compiler")
def test_models_with_operations_inside_can_be_compiled(hvd: ModuleType) -> None:
    broken = []

    def step(mine: torch.Tensor) -> torch.Tensor:
        doubled = torch.sin(mine) * 2
        total = hvd.allreduce(doubled, name="compiled", op=hvd.Sum)
        handle = hvd.allreduce_async_(total.clone(), name="later", op=hvd.Max)
        return hvd.synchronize(handle) + torch.cos(mine)

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        broken.append(graph)
        return graph.forward

    mine = of_rank(hvd.rank(), (5,), torch.float64)
    compiled = torch.compile(step, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(compiled(mine), step(mine))
    calls = [str(node.target) for graph in broken for node in graph.graph.nodes if node.op == "call_function"]
    assert any("sin" in call for call in calls), "what is before the operation is compiled"
    assert any("cos" in call for call in calls), "and what comes after it"


@pytest.mark.usefixtures("compiler")
def test_only_what_is_compiled_pays_for_the_compiler(hvd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo

    monkeypatch.setattr(torch.compiler, "disable", lambda *_: pytest.fail("called by nothing that is compiled"))
    mine = torch.full((3,), float(hvd.rank()))
    hvd.synchronize(hvd.allreduce_async_(mine, op=hvd.Sum))
    assert mine.tolist() == [1.0] * 3
    monkeypatch.setattr(compiling, "watcher", lambda: True)
    with pytest.raises(BaseException, match="called by nothing that is compiled"):
        compiling.uncompiled(hvd.rank)()
