// The timeline and the metrics through the public interface; what is in them is under test in tests/.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "horo/api/rank_threads_testing.h"

namespace {

using horo::Error;
using horo::Runtime;

std::string read(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(ApiObserve, ATimelineIsStartedAndStoppedOnEveryRank) {
  std::string folder = (std::filesystem::temp_directory_path() / "horo-api-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  horo::api::run_threads(2, [&](const horo_engine_options& engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    Runtime runtime(options);
    std::vector<float> values(10, 1);
    runtime.start_timeline(folder + "/t.json", true);
    runtime.allreduce("seen", values.data(), values.size());
    runtime.stop_timeline();
    runtime.stop_timeline();
    runtime.barrier("stopped");  // A rank that still writes would see what the other hands in.
    runtime.allreduce("unseen", values.data(), values.size());
    EXPECT_THROW(runtime.start_timeline(""), Error);
    EXPECT_THROW(runtime.start_timeline(folder + "/no/such/folder.json"), Error);
    EXPECT_THROW(horo::check(horo_runtime_start_timeline(runtime.get(), nullptr, 0)), Error);
    runtime.barrier("the end");
    runtime.shutdown();
    EXPECT_THROW(runtime.start_timeline(folder + "/late.json"), Error);
    runtime.stop_timeline();
  });
  for (const char* name : {"/t.json", "/t.rank1.json"}) {
    const std::string trace = read(folder + name);
    EXPECT_NE(trace.find("\"seen\""), std::string::npos) << name;
    EXPECT_NE(trace.find("CYCLE_START"), std::string::npos) << name;
    EXPECT_EQ(trace.find("unseen"), std::string::npos) << name;
  }
  std::filesystem::remove_all(folder);
}

TEST(ApiObserve, MetricsTellWhatWasDoneAlsoAfterTheShutdown) {
  Runtime runtime;
  std::vector<float> values(10, 1);
  for (int i = 0; i < 3; ++i) runtime.allreduce("values", values.data(), values.size());
  runtime.shutdown();
  const horo_operation_metrics metrics = runtime.metrics(HORO_ALLREDUCE);
  EXPECT_EQ(metrics.handed_in, 3u);
  EXPECT_EQ(metrics.tensors, 3u);
  EXPECT_EQ(metrics.errors, 0u);
  EXPECT_EQ(metrics.bytes, 120u);
  EXPECT_EQ(metrics.batches, 3u);
  EXPECT_EQ(metrics.latency.count, 3u);
  EXPECT_GT(metrics.latency.sum, 0);
  EXPECT_EQ(std::accumulate(metrics.latency.buckets, metrics.latency.buckets + HORO_BUCKETS, uint64_t{0}), 3u);
  EXPECT_EQ(runtime.metrics(HORO_ALLREDUCE, 7).handed_in, 0u) << "a set that never was";
  EXPECT_EQ(runtime.set_metrics().announced_in_full, 1u);
  EXPECT_EQ(runtime.set_metrics().announced_by_number, 2u);
  const std::string text = runtime.metrics_text();
  EXPECT_NE(text.find("horo_tensors_total{rank=\"0\",process_set=\"0\",operation=\"allreduce\"} 3\n"),
            std::string::npos);
  EXPECT_EQ(std::string(text.c_str()).size(), text.size());
}

TEST(ApiObserve, AnOlderProgramGetsAsMuchAsItKnows) {
  Runtime runtime;
  std::vector<float> values(10, 1);
  runtime.allreduce("values", values.data(), values.size());
  horo_operation_metrics metrics{};
  metrics.errors = 99;
  metrics.struct_size = offsetof(horo_operation_metrics, errors);
  horo::check(horo_runtime_operation_metrics(runtime.get(), 0, HORO_ALLREDUCE, &metrics));
  EXPECT_EQ(metrics.tensors, 1u);
  EXPECT_EQ(metrics.errors, 99u) << "beyond the struct that it has";
  EXPECT_THROW(horo::check(horo_runtime_operation_metrics(runtime.get(), 0, HORO_GATHER, &metrics)), Error);
  EXPECT_THROW(horo::check(horo_runtime_operation_metrics(runtime.get(), 0, HORO_ALLREDUCE, nullptr)), Error);
  metrics.struct_size = 0;
  EXPECT_THROW(horo::check(horo_runtime_operation_metrics(runtime.get(), 0, HORO_ALLREDUCE, &metrics)), Error);
  char little[5];
  EXPECT_GT(horo_runtime_metrics_text(runtime.get(), little, sizeof little), sizeof little);
  EXPECT_EQ(std::string(little), "# HE");
}

}  // namespace
