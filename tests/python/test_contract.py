"""The basics of Horovod, walked line by line: each name is there, with its signature and its value."""

from __future__ import annotations

import inspect

import pytest

import horo

# name: (parameters, value when horo has been initialised as a job of one; ... where the value is no constant)
FUNCTIONS = {
    "init": ("comm process_sets", None),
    "shutdown": ("", None),
    "is_initialized": ("", True),
    "size": ("", 1),
    "rank": ("", 0),
    "local_size": ("", 1),
    "local_rank": ("", 0),
    "cross_size": ("", 1),
    "cross_rank": ("", 0),
    "is_homogeneous": ("", True),
    "mpi_threads_supported": ("", ValueError),
    "mpi_enabled": ("", False),
    "mpi_built": ("", True),
    "gloo_enabled": ("", False),
    "gloo_built": ("", False),
    "nccl_built": ("", 0),
    "ddl_built": ("", False),
    "ccl_built": ("", False),
    "cuda_built": ("", False),
    "rocm_built": ("", False),
    "add_process_set": ("process_set", ...),
    "remove_process_set": ("process_set", ...),
    "start_timeline": ("file_path mark_cycles", ...),
    "stop_timeline": ("", None),
}
NEED_INIT = {
    *("size", "rank", "local_size", "local_rank", "cross_size", "cross_rank", "is_homogeneous"),
    *("mpi_threads_supported", "mpi_enabled", "gloo_enabled"),
}
REDUCTIONS = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}


@pytest.fixture
def alone() -> object:
    horo.init()
    yield
    horo.shutdown()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_is_there_with_its_parameters(name: str) -> None:
    assert name in horo.__all__
    assert list(inspect.signature(getattr(horo, name)).parameters) == FUNCTIONS[name][0].split()


@pytest.mark.parametrize("name", [name for name, (words, value) in FUNCTIONS.items() if not words])
def test_each_value_is_what_it_says(name: str, alone: object) -> None:
    value = FUNCTIONS[name][1]
    if isinstance(value, type):
        with pytest.raises(value):
            getattr(horo, name)()
        return
    got = getattr(horo, name)()
    assert (type(got), got) == (type(value), value)


@pytest.mark.parametrize("name", sorted(NEED_INIT))
def test_without_init_it_says_so(name: str) -> None:
    with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)\."):
        getattr(horo, name)()


def test_init_can_be_called_again_and_refuses_what_it_cannot_do(alone: object) -> None:
    horo.init()
    horo.shutdown()
    horo.shutdown()
    assert not horo.is_initialized()
    horo.init(process_sets="dynamic")
    assert horo.size() == 1
    horo.shutdown()
    horo.init(comm=[0])
    assert horo.size() == 1
    horo.shutdown()
    with pytest.raises(ValueError, match="a communicator of mpi4py, a list of them, or a list of ranks, not 'world'"):
        horo.init(comm="world")
    with pytest.raises(ValueError, match="process set"):
        horo.init(process_sets=[horo.ProcessSet([0])])  # The set of everybody exists: a second is a duplicate.
    horo.init()


def test_reductions_are_horovods_numbers() -> None:
    assert {name: getattr(horo, name) for name in REDUCTIONS} == REDUCTIONS


def test_process_sets_have_their_attributes(alone: object) -> None:
    assert horo.global_process_set.process_set_id == 0
    assert horo.global_process_set.ranks == [0]
    made = horo.ProcessSet([0])
    assert (made.process_set_id, made.ranks, made.mpi_comm) == (None, [0], None)
    with pytest.raises(ValueError, match="already has"):
        horo.add_process_set(made)
    assert horo.global_process_set.size() == 1
    assert horo.global_process_set.rank() == 0
    assert horo.global_process_set.included()
    assert str(made) == "ProcessSet(process_set_id=None, ranks=[0])"
    assert horo.remove_process_set(made) is False
    with pytest.raises(ValueError, match="made of ranks"):
        horo.ProcessSet(object())


def test_exceptions_are_horovods() -> None:
    assert issubclass(horo.HorovodInternalError, RuntimeError)
    assert issubclass(horo.HostsUpdatedInterrupt, RuntimeError)
    assert horo.HostsUpdatedInterrupt(True).skip_sync is True
    assert horo.HostsUpdatedInterrupt().skip_sync is False
    assert issubclass(horo.HorovodVersionMismatchError, ImportError)
    mismatch = horo.HorovodVersionMismatchError("torch", "2.1", "2.2")
    assert (mismatch.name, mismatch.version, mismatch.installed_version) == ("torch", "2.1", "2.2")
    assert "2.1" in str(mismatch)
    assert "2.2" in str(mismatch)


def test_op_and_average_exclude_each_other(alone: object) -> None:
    with pytest.raises(ValueError, match="supersedes"):
        horo.allreduce([1.0], average=True, op=horo.Sum)
    with pytest.warns(DeprecationWarning, match="average"):
        assert horo.allreduce([2.0], average=False) == [2.0]
    assert horo.allreduce([2.0]) == [2.0]
