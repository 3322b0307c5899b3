"""Horovod's basic functions as methods of an object, as libraries that bring their own operations use them."""

from __future__ import annotations

from typing import Any

from horo import basics, collectives, observe


class HorovodBasics:
    """The arguments name a compiled extension in Horovod; here there is one library for all, and they are ignored."""

    init = staticmethod(basics.init)
    shutdown = staticmethod(basics.shutdown)
    is_initialized = staticmethod(basics.is_initialized)
    start_timeline = staticmethod(observe.start_timeline)
    stop_timeline = staticmethod(observe.stop_timeline)
    size = staticmethod(basics.size)
    local_size = staticmethod(basics.local_size)
    cross_size = staticmethod(basics.cross_size)
    rank = staticmethod(basics.rank)
    local_rank = staticmethod(basics.local_rank)
    cross_rank = staticmethod(basics.cross_rank)
    is_homogeneous = staticmethod(basics.is_homogeneous)
    mpi_threads_supported = staticmethod(basics.mpi_threads_supported)
    mpi_enabled = staticmethod(basics.mpi_enabled)
    mpi_built = staticmethod(basics.mpi_built)
    gloo_enabled = staticmethod(basics.gloo_enabled)
    gloo_built = staticmethod(basics.gloo_built)
    nccl_built = staticmethod(basics.nccl_built)
    ddl_built = staticmethod(basics.ddl_built)
    ccl_built = staticmethod(basics.ccl_built)
    cuda_built = staticmethod(basics.cuda_built)
    rocm_built = staticmethod(basics.rocm_built)
    Average = collectives.Average
    Sum = collectives.Sum
    Adasum = collectives.Adasum
    Min = collectives.Min
    Max = collectives.Max
    Product = collectives.Product

    def __init__(self, *extension: Any) -> None:
        pass
