// What plan, executor and the mesh of threads cost: allreduce of f32 between threads, staged and delivered in place.
#include <benchmark/benchmark.h>

#include "horo/collective/ranks_as_threads.h"

namespace horo::collective {
namespace {

/// One rank's buffers and plan, used again for every operation as a group does.
class Runner {
 public:
  Runner(transport::Mesh& mesh, const Algorithm& algorithm, uint64_t count)
      : mesh_(mesh), executor_(mesh), memory_(count * sizeof(float), std::byte{1}) {
    Operation operation = operation_of(Kind::kAllreduce, mesh.size(), mesh.rank(), count, 0);
    plan_ = build_plan(algorithm, operation, Shape::on_one_host(mesh.size()), mesh.rank(), Table{}).value();
    work_.resize(plan_.work_bytes());
    scratch_.resize(plan_.scratch_bytes());
  }

  void step() {
    Buffers buffers{memory_.data(), memory_.data(), work_.data(), scratch_.data()};
    mesh_.begin(++number_, {});
    HORO_CHECK(executor_.run(plan_, buffers, Deadline::after_seconds(60)).ok(), "the benchmark's ranks are threads");
    executor_.deliver(plan_, buffers);
  }

 private:
  transport::Mesh& mesh_;
  Executor executor_;
  Plan plan_;
  Bytes memory_;
  Bytes work_;
  Bytes scratch_;
  uint64_t number_ = 0;
};

void allreduce(benchmark::State& state, const char* algorithm) {
  auto ranks = static_cast<int>(state.range(0));
  auto count = static_cast<uint64_t>(state.range(1)) / sizeof(float);
  transport::InprocFabric fabric(ranks);
  auto rounds = state.max_iterations;
  run_ranks(ranks, [&](int rank) {
    Runner runner(fabric.mesh(rank), *find_algorithm(algorithm), count);
    if (rank == 0) {
      for (auto round : state) {
        (void)round;
        runner.step();
      }
    } else {
      for (auto round = rounds; round-- > 0;) runner.step();
    }
  });
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(1));
}

BENCHMARK_CAPTURE(allreduce, flood, "flood")->Args({2, 4})->Args({4, 4})->UseRealTime();
BENCHMARK_CAPTURE(allreduce, doubling, "doubling")->Args({2, 4})->Args({4, 4})->UseRealTime();
BENCHMARK_CAPTURE(allreduce, pairwise, "pairwise")
    ->ArgsProduct({{2, 4}, {64 << 10, 1 << 20, 16 << 20, 64 << 20}})
    ->UseRealTime();
BENCHMARK_CAPTURE(allreduce, ring, "ring")->ArgsProduct({{2, 4}, {1 << 20, 64 << 20}})->UseRealTime();
BENCHMARK_CAPTURE(allreduce, halving, "halving")->ArgsProduct({{2, 4}, {1 << 20, 64 << 20}})->UseRealTime();

}  // namespace
}  // namespace horo::collective
