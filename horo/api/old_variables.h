// Variables of Horovod's that set nothing here, and why: the one place that knows them. Those that do set something are
// the legacy names in the tables of knobs. What is in neither is passed over in silence.
#pragma once

#include <array>

#include "horo/base/config.h"

namespace horo::api {

inline constexpr auto kOldVariables = std::to_array<OldVariable>({
    {.name = "HOROVOD_GLOO_RENDEZVOUS_ADDR",
     .why = "horo's ranks meet at HORO_STORE, where each proves the job's key; start them with horo run",
     .matters = true},
    {.name = "HOROVOD_GLOO_RENDEZVOUS_PORT",
     .why = "horo's ranks meet at HORO_STORE, where each proves the job's key; start them with horo run",
     .matters = true},
    {.name = "HOROVOD_ELASTIC", .why = "horo run --min-np makes a job elastic, and sets it for scripts", .usual = "1"},
    {.name = "HOROVOD_DYNAMIC_PROCESS_SETS", .why = "process sets can be added and removed at any time", .usual = "1"},
    {.name = "HOROVOD_NUM_NCCL_STREAMS", .why = "a process set runs its operations on one stream", .usual = "1"},
    {.name = "HOROVOD_BATCH_D2D_MEMCOPIES",
     .why = "tensors on GPUs are always put together in one launch",
     .usual = "1"},
    {.name = "HOROVOD_ENABLE_XLA_OPS", .why = "this build has no XLA operations", .usual = "0", .matters = true},
    {.name = "HOROVOD_DISABLE_NVTX_RANGES", .why = "horo marks no NVTX ranges", .usual = "1"},
    {.name = "HOROVOD_ADASUM_MPI_CHUNK_SIZE", .why = "horo's Adasum does not go through MPI"},
    {.name = "HOROVOD_CCL_CACHE", .why = "horo does not use oneCCL", .usual = "0"},
    {.name = "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", .why = "there are no estimators, which choose GPUs by it"},
    {.name = "HOROVOD_SPARK_PYTHONPATH", .why = "ranks in Spark have the PYTHONPATH of their executors"},
    {.name = "HOROVOD_SPARK_WORK_DIR", .why = "ranks in Spark run where their executors do"},
    {.name = "_HOROVOD_SECRET_KEY", .why = "horo run makes a key for each job and never puts it into the environment"},
    {.name = "HOROVOD_TORUS_ALLREDUCE",
     .why = "allreduce in two levels already uses all ranks of a host in parallel between hosts",
     .usual = "0"},
    {.name = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
     .why = "autotune compares settings with each other in turns, without a model that assumes noise",
     .usual = "0.8"},
});

}  // namespace horo::api
