// Jobs of runtimes: every rank is a process that hands in named tensors.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/job.h"

#include "horo/engine/runtime.h"

namespace horo::test {

using engine::Call;
using engine::Handle;
using engine::Kind;
using engine::Reduction;
using engine::Runtime;
using engine::Tensor;

template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

inline Call call_of(std::string name, Kind kind, std::vector<float>& values, Reduction reduction = Reduction::kSum) {
  Call call;
  call.tensor.name = std::move(name);
  call.tensor.kind = kind;
  call.tensor.dtype = DType::kF32;
  call.tensor.reduction = reduction;
  call.tensor.shape = {static_cast<int64_t>(values.size())};
  call.input = bytes_of(values);
  return call;
}

inline Call in_place(std::string name, std::vector<float>& values, Reduction reduction = Reduction::kSum) {
  Call call = call_of(std::move(name), Kind::kAllreduce, values, reduction);
  call.output = bytes_of(values);
  return call;
}

inline std::vector<float> floats(const engine::TensorResult& result) {
  uint64_t count = 1;
  for (int64_t extent : result.shape) count *= static_cast<uint64_t>(extent);
  std::vector<float> values(count);
  std::memcpy(values.data(), result.memory, count * sizeof(float));
  return values;
}

/// Ends the rank with the line that was wrong.
#define REQUIRE(condition)                                                                          \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      std::fprintf(stderr, "rank %d, %s:%d: %s\n", runtime.rank(), __FILE__, __LINE__, #condition); \
      return 1;                                                                                     \
    }                                                                                               \
  } while (false)
#define REQUIRE_OK(expression)                                                         \
  do {                                                                                 \
    const Status require_status = (expression);                                        \
    if (!require_status.ok()) {                                                        \
      std::fprintf(stderr, "rank %d, %s:%d: %s\n", runtime.rank(), __FILE__, __LINE__, \
                   require_status.to_string().c_str());                                \
      return 1;                                                                        \
    }                                                                                  \
  } while (false)

using RuntimeBody = std::function<int(Runtime&)>;

inline std::unique_ptr<Job> start(const JobOptions& options, const RuntimeBody& body,
                                  const std::vector<std::vector<int>>& sets = {}) {
  auto job = Job::start_part(options, [&](group::EngineOptions engine_options) {
    const int rank = engine_options.rank;
    auto runtime = Runtime::start({.engine = std::move(engine_options), .process_sets = sets});
    if (!runtime.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", rank, runtime.status().to_string().c_str());
      return 92;
    }
    return body(**runtime);
  });
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? std::move(*job) : nullptr;
}

/// The same with bodies that say what was wrong.
using StatusBody = std::function<Status(Runtime&)>;

inline std::unique_ptr<Job> start(const JobOptions& options, const StatusBody& body,
                                  const std::vector<std::vector<int>>& sets = {}) {
  const RuntimeBody told = [&](Runtime& runtime) {
    const Status status = body(runtime);
    if (!status.ok()) tell(status.to_string() + "\n");
    return status.ok() ? 0 : 1;
  };
  return start(options, told, sets);
}

inline void expect_zero(Job& job, double seconds = 60) {
  auto codes = job.wait(Deadline::after_seconds(seconds));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (size_t rank = 0; rank < codes->size(); ++rank) {
    EXPECT_EQ((*codes)[rank], 0) << "rank " << rank << ": " << job.told(static_cast<int>(rank));
  }
}

/// What one process cannot end before: the others would find it gone.
inline int leave_together(Runtime& runtime) {
  std::vector<float> none;
  Call call = call_of("the end", Kind::kBarrier, none);
  auto handle = runtime.submit(0, {call});
  REQUIRE_OK(handle.status());
  REQUIRE_OK(runtime.wait(0, *handle));
  return 0;
}

inline Status allreduce(Runtime& runtime, std::string name, std::vector<float>& values, int set = 0,
                        Reduction reduction = Reduction::kSum) {
  HORO_ASSIGN(Handle handle, runtime.submit(set, {in_place(std::move(name), values, reduction)}));
  return runtime.wait(set, handle);
}

}  // namespace horo::test
