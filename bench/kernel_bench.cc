// Speed of the kernels by instruction set, type and size of the working set. Bytes are those read and written by the
// program (three arrays for a sum of two), elements are results.
//
//   bench_kernel_bench --benchmark_filter='sum/avx512/f32'
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/dtype.h"
#include "horo/kernel/reduce.h"

namespace {

using namespace horo;

struct Free {
  void operator()(std::byte* memory) const { free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

/// Touched, on a page of its own; halves, floats and doubles of these bytes are small ordinary numbers.
Memory memory_of(size_t bytes) {
  auto* memory = static_cast<std::byte*>(aligned_alloc(2 << 20, (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20)));
  std::memset(memory, 0x3C, bytes);
  return Memory(memory);
}

struct Setting {
  kernel::Isa isa;
  DType dtype;
  size_t inputs;
  kernel::Placement placement;
  kernel::Scaling scaling;
};

void sum(benchmark::State& state, const Setting& setting) {
  const auto count = static_cast<size_t>(state.range(0));
  const size_t bytes = count * size_of(setting.dtype);
  std::vector<Memory> in;
  std::vector<const std::byte*> pointers;
  for (size_t j = 0; j < setting.inputs; ++j) in.push_back(memory_of(bytes)), pointers.push_back(in.back().get());
  const Memory out = memory_of(bytes);
  const auto run = kernel::combine_many(setting.dtype, ReduceOp::kSum, setting.isa, setting.placement);
  for (auto _ : state) run(out.get(), pointers, count, setting.scaling);
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * count));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes * (setting.inputs + 1)));
}

/// One thousand elements (cache), 64 Ki (second level), 64 Mi (memory).
void register_sums() {
  using kernel::Placement;
  const auto add = [](const std::string& label, const Setting& setting) {
    const auto name = label + "/" + std::string(kernel::name(setting.isa)) + "/" +
                      std::string(horo::name(setting.dtype)) + "/inputs:" + std::to_string(setting.inputs);
    benchmark::RegisterBenchmark(name.c_str(), sum, setting)->Arg(1 << 10)->Arg(1 << 16)->Arg(1 << 20)->Arg(1 << 26);
  };
  for (kernel::Isa isa : kernel::available()) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kU8}) {
      add("sum", {isa, dtype, 2, Placement::kCached, {}});
    }
  }
  const kernel::Isa best = kernel::best();
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (size_t inputs : {3, 4, 8}) add("sum", {best, dtype, inputs, Placement::kCached, {}});
    for (size_t inputs : {2, 4}) add("stream", {best, dtype, inputs, Placement::kStreamed, {}});
    add("average", {best, dtype, 2, Placement::kCached, kernel::average(dtype, 2)});
  }
  for (int members : {3, 4}) {
    add("average" + std::to_string(members), {best, DType::kI32, 2, Placement::kCached, {.divisor = members}});
    add("average" + std::to_string(members), {best, DType::kI64, 2, Placement::kCached, {.divisor = members}});
  }
}

using Body = std::function<void(std::byte* out, const std::byte* in, size_t bytes)>;

void bytes_body(benchmark::State& state, const Body& body) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Memory in = memory_of(bytes), out = memory_of(bytes);
  for (auto _ : state) body(out.get(), in.get(), bytes);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

void register_bytes() {
  const auto add = [](const char* name, const Body& body) {
    benchmark::RegisterBenchmark(name, bytes_body, body)
        ->Arg(64)
        ->Arg(1 << 10)
        ->Arg(1 << 14)
        ->Arg(1 << 18)
        ->Arg(1 << 20)
        ->Arg(1 << 22)
        ->Arg(1 << 23)
        ->Arg(1 << 24)
        ->Arg(1 << 26)
        ->Arg(1 << 28);
  };
  add("memcpy", [](std::byte* out, const std::byte* in, size_t bytes) { std::memcpy(out, in, bytes); });
  add("copy", [](std::byte* out, const std::byte* in, size_t bytes) { kernel::copy(out, in, bytes); });
  add("copy_streamed", [](std::byte* out, const std::byte* in, size_t bytes) {
    kernel::copy(out, in, bytes, kernel::Placement::kStreamed);
  });
  add("crc32c", [](std::byte*, const std::byte* in, size_t bytes) {
    benchmark::DoNotOptimize(kernel::crc32c(0, {in, bytes}));
  });
  add("copy_crc32c", [](std::byte* out, const std::byte* in, size_t bytes) {
    benchmark::DoNotOptimize(kernel::copy_crc32c(out, in, bytes, 0));
  });
  add("sum_f32_in_place", [](std::byte* out, const std::byte* in, size_t bytes) {
    kernel::combine(DType::kF32, ReduceOp::kSum)(out, out, in, bytes / 4);
  });
  add("sum_f32_in_place_crc32c", [](std::byte* out, const std::byte* in, size_t bytes) {
    const auto combine = kernel::combine(DType::kF32, ReduceOp::kSum);
    benchmark::DoNotOptimize(kernel::combine_crc32c(combine, DType::kF32, {out, out, in, bytes / 4}, 0));
  });
  add("float_mode", [](std::byte*, const std::byte*, size_t) { kernel::DefaultFloatMode mode; });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_sums();
  register_bytes();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
