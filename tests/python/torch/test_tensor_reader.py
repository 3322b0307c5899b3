"""How compiled code looks at tensors, through torch's C functions and through attributes."""

from __future__ import annotations

import gc
import weakref
from types import ModuleType
from typing import Any

import pytest
import torch

from horo import _horo
from horo.torch import tensors

DTYPES = [getattr(torch, name) for name in _horo.DTYPES if hasattr(torch, name)]


@pytest.fixture(params=[True, False], ids=["exchanged", "attributes"])
def reader(request: pytest.FixtureRequest) -> _horo.TensorReader:
    made = tensors.tensor_reader(exchange=request.param)
    assert made.exchanges == (request.param and hasattr(torch.Tensor, "__dlpack_c_exchange_api__"))
    return made


def said(tensor: torch.Tensor) -> tuple[Any, ...]:
    number = tensors.dtype_number(tensor, "allreduce")
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return tensor.data_ptr(), number, shape, strides, tensor.nbytes, tensor.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_read_is_what_torch_says(hvd: ModuleType, reader: _horo.TensorReader, dtype: torch.dtype) -> None:
    base = torch.zeros(2, 3, 4, 5, dtype=dtype)
    for tensor in (
        base,
        base.to(memory_format=torch.channels_last),
        base[1:, ::2, :, 2:],
        base.transpose(1, 3),
        base[0, 0, 0, 0],
        base[:0],
        base[:, :1].expand(2, 3, 4, 5),
        torch.zeros(1, 7, 1, dtype=dtype).as_strided((1, 7, 1), (3, 1, 99)),
    ):
        assert reader.read(tensor) == said(tensor)


def test_tensors_that_require_gradients_are_read(hvd: ModuleType, reader: _horo.TensorReader) -> None:
    leaf = torch.ones(3, requires_grad=True)
    for tensor in (leaf, leaf * 2):
        assert reader.read(tensor) == said(tensor)


def test_what_does_not_simply_lie_in_memory_is_left_alone(hvd: ModuleType, reader: _horo.TensorReader) -> None:
    complex_numbers = torch.ones(3, dtype=torch.complex64).conj()

    class Other(torch.Tensor):
        pass

    for strange in (
        None,
        3,
        torch.eye(3).to_sparse(),
        torch.ones(3, device="meta"),
        complex_numbers,
        complex_numbers.imag,  # Negated lazily.
        torch.ones(3).as_subclass(Other),
        torch.nn.Parameter(torch.ones(3)),
    ):
        assert reader.read(strange) is None
    assert reader.read(complex_numbers.resolve_conj()) is not None


def test_optimizers_and_their_models_are_freed(hvd: ModuleType) -> None:
    for in_buckets in (False, True):
        model = torch.nn.Linear(3, 2)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.1), gradient_as_bucket_view=in_buckets
        )
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        alive = [weakref.ref(model.weight), weakref.ref(optimizer)]
        cycle: list[Any] = [optimizer, model]
        cycle.append(cycle)  # So that only the garbage collector frees them.
        del model, optimizer, cycle
        gc.collect()
        gc.collect()  # What the end of the optimizer has freed.
        assert [one() for one in alive] == [None, None]


def test_gradients_without_the_c_functions_are_the_same(hvd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    grads = []
    for exchange in (True, False):
        monkeypatch.setattr(
            "horo.torch.gradients.tensor_reader", lambda exchange=exchange: tensors.tensor_reader(exchange=exchange)
        )
        for in_buckets in (False, True):
            torch.manual_seed(11)
            model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(36, 5))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(), gradient_as_bucket_view=in_buckets
            )
            for step in range(3):
                optimizer.zero_grad()
                model(torch.full((2, 3, 5, 5), hvd.rank() + step + 1.0)).pow(2).sum().backward()
                optimizer.step()
            grads.append([param.grad.clone() for param in model.parameters()])
    for other in grads[1:]:
        assert all(torch.equal(one, two) for one, two in zip(grads[0], other, strict=True))
