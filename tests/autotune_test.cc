// Autotune by real processes: settings change while a job runs, on all ranks at the same batch, and no result shows it.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/job.h"
#include "tests/launcher/launched.h"
#include "tests/workload.h"

#include "horo/base/text.h"
#include "horo/engine/runtime.h"
#include "horo/engine/tuner.h"

namespace horo::test {
namespace {

using engine::Call;
using engine::Runtime;
using engine::Tuning;
using std::chrono::milliseconds;

constexpr int kMostSteps = 4000;

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

/// Rows of the log by the names of its header.
std::vector<std::map<std::string, std::string>> read_log(const std::string& path) {
  std::vector<std::map<std::string, std::string>> rows;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> names = fields_of(line);
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = fields_of(line);
    EXPECT_EQ(fields.size(), names.size()) << line;
    std::map<std::string, std::string>& row = rows.emplace_back();
    for (size_t i = 0; i < std::min(names.size(), fields.size()); ++i) row[names[i]] = fields[i];
  }
  return rows;
}

bool log_is_complete(const std::string& path) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  return all.str().find(",done,") != std::string::npos;
}

/// Tensors of one step. Values that no order of adding sums to the same bits.
class Steps {
 public:
  Steps(Runtime& runtime, std::vector<size_t> sizes) : runtime_(runtime) {
    for (size_t size : sizes) {
      std::vector<float> values(size);
      for (size_t i = 0; i < size; ++i) {
        values[i] = 1.0F / static_cast<float>(1 + (i * 7 + static_cast<size_t>(runtime.rank()) * 13) % 101);
      }
      given_.push_back(std::move(values));
      taken_.emplace_back(size);
    }
  }

  /// One step; its result must be that of the first, bit by bit.
  Status run() {
    std::vector<engine::Handle> handles;
    for (size_t i = 0; i < given_.size(); ++i) {
      Call call;
      call.tensor.name = text("tensor ", i);
      call.tensor.kind = engine::Kind::kAllreduce;
      call.tensor.dtype = DType::kF32;
      call.tensor.shape = {static_cast<int64_t>(given_[i].size())};
      call.input = reinterpret_cast<const std::byte*>(given_[i].data());
      call.output = reinterpret_cast<std::byte*>(taken_[i].data());
      HORO_ASSIGN(engine::Handle handle, runtime_.submit(0, {std::move(call)}));
      handles.push_back(std::move(handle));
    }
    for (const engine::Handle& handle : handles) HORO_TRY(runtime_.wait(0, handle));
    if (first_.empty()) first_ = taken_;
    for (size_t i = 0; i < taken_.size(); ++i) {
      if (std::memcmp(taken_[i].data(), first_[i].data(), taken_[i].size() * sizeof(float)) != 0) {
        return {Code::kInternal, text("tensor ", i, " has other bits than in the first step")};
      }
      for (float& value : taken_[i]) value = -1;
    }
    return {};
  }

  /// The sums of the first step, as far as floats can tell.
  bool is_right() const {
    for (size_t t = 0; t < given_.size(); ++t) {
      for (size_t i = 0; i < given_[t].size(); ++i) {
        double sum = 0;
        for (int rank = 0; rank < runtime_.size(); ++rank) {
          sum += 1.0F / static_cast<float>(1 + (i * 7 + static_cast<size_t>(rank) * 13) % 101);
        }
        if (std::abs(first_[t][i] - sum) > 1e-5 * sum) return false;
      }
    }
    return true;
  }

 private:
  Runtime& runtime_;
  std::vector<std::vector<float>> given_, taken_, first_;
};

/// Rank 0 tells everybody, every few steps, whether its log is complete.
Result<bool> is_over(Runtime& runtime, const std::string& log) {
  uint8_t over = runtime.rank() == 0 && log_is_complete(log) ? 1 : 0;
  Call call;
  call.tensor.name = "over";
  call.tensor.kind = engine::Kind::kBroadcast;
  call.tensor.dtype = DType::kU8;
  call.tensor.shape = {1};
  call.input = call.output = reinterpret_cast<std::byte*>(&over);
  HORO_ASSIGN(engine::Handle handle, runtime.submit(0, {std::move(call)}));
  HORO_TRY(runtime.wait(0, handle));
  return over == 1;
}

Status tune(Runtime& runtime, const std::string& log, const std::vector<size_t>& sizes) {
  Steps steps(runtime, sizes);
  for (int step = 0; step < kMostSteps; ++step) {
    HORO_TRY(steps.run());
    if (step % 50 != 49) continue;
    HORO_ASSIGN(const bool over, is_over(runtime, log));
    if (!over) continue;
    for (int more = 0; more < 10; ++more) HORO_TRY(steps.run());
    if (!steps.is_right()) return {Code::kInternal, "wrong sums"};
    tell(tuning_text(runtime.tuning()) + "\n");
    return is_over(runtime, log).status();  // Nobody leaves before the others are here.
  }
  return {Code::kTimeout, text("autotune is not done after ", kMostSteps, " steps")};
}

/// What all ranks ended with; empty if they differ or fail.
std::string tuned(const JobOptions& options, const std::string& log, const std::vector<size_t>& sizes,
                  const std::optional<Tuning>& start = std::nullopt) {
  auto job = Job::start_part(options, [&](group::EngineOptions engine_options) {
    auto runtime = Runtime::start({.engine = std::move(engine_options), .tuning = start});
    const Status status = runtime.ok() ? tune(**runtime, log, sizes) : runtime.status();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return status.ok() ? 0 : 1;
  });
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return "";
  auto codes = (*job)->wait(Deadline::after_seconds(120));
  EXPECT_TRUE(codes.ok()) << codes.status();
  if (!codes.ok()) return "";
  EXPECT_EQ(*codes, std::vector<int>(codes->size(), 0));
  const std::string first = (*job)->told(0);
  for (int rank = 1; rank < options.ranks; ++rank) EXPECT_EQ((*job)->told(rank), first) << "rank " << rank;
  return first;
}

std::set<std::string> values_of(const std::vector<std::map<std::string, std::string>>& rows, const std::string& name) {
  std::set<std::string> values;
  for (const auto& row : rows) values.insert(row.at(name));
  return values;
}

std::vector<size_t> small_and_large() {
  std::vector<size_t> sizes(24, 1024);
  sizes.insert(sizes.end(), {100'000, 65'536});
  return sizes;
}

TEST(Autotune, LeavesABadThresholdOnAllRanksAtOnce) {
  const TemporaryFolder folder;
  const std::string log = folder.file("log.csv");
  const Tuning bad{.threshold = 1000, .window = milliseconds(1)};
  const std::string found = tuned({.ranks = 2,
                                   .environment = {{"HORO_AUTOTUNE", "1"},
                                                   {"HOROVOD_AUTOTUNE_LOG", log},
                                                   {"HORO_AUTOTUNE_WARMUP_SAMPLES", "2"},
                                                   {"HORO_AUTOTUNE_STEPS_PER_SAMPLE", "3"}}},
                                  log, small_and_large(), bad);
  EXPECT_FALSE(found.empty());
  const auto rows = read_log(log);
  ASSERT_GE(rows.size(), 4u);
  EXPECT_EQ(rows[0].at("phase"), "warmup");
  EXPECT_EQ(rows[0].at("fusion_threshold_bytes"), "1000");
  EXPECT_EQ(rows[2].at("phase"), "search");
  EXPECT_EQ(rows.back().at("phase"), "done");
  EXPECT_GE(values_of(rows, "fusion_threshold_bytes").size(), 4u) << "several were tried";
  EXPECT_TRUE(values_of(rows, "fusion_threshold_bytes").contains("134217728")) << "the default among them";
  EXPECT_LE(values_of(rows, "trial").size(), 21u);
  for (const auto& row : rows) {
    if (row.at("phase") == "done") continue;
    const uint64_t bytes = std::stoull(row.at("bytes")), steps = std::stoull(row.at("steps"));
    const uint64_t whole = steps * (24 * 4096 + 4 * 165'536);
    EXPECT_TRUE(bytes == whole || bytes == whole + steps) << bytes << " bytes, with or without the one that asks";
    EXPECT_GT(std::stod(row.at("bytes_per_us")), 0);
  }
  std::printf("  %zu samples; from 1000 bytes to %s", rows.size(), found.c_str());
}

TEST(Autotune, ChoosesTheWayBetweenHostsWithoutChangingABit) {
  const TemporaryFolder folder;
  const std::string log = folder.file("log.csv");
  JobOptions options{.ranks = 4,
                     .environment = {{"HORO_AUTOTUNE", "1"},
                                     {"HORO_AUTOTUNE_LOG", log},
                                     {"HORO_AUTOTUNE_WARMUP_SAMPLES", "0"},
                                     {"HORO_AUTOTUNE_STEPS_PER_SAMPLE", "2"},
                                     {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "5"},
                                     {"HORO_INTERFACE", "127.0.0.1"},
                                     {"HOROVOD_FUSION_THRESHOLD", "8388608"},
                                     {"HORO_GATHER_WINDOW", "700us"}}};
  options.per_rank = [](int rank) {
    return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", rank < 2 ? "a" : "b"}};
  };
  const std::string found = tuned(options, log, {1024, 1024, 1024, 5000, 100'000});
  EXPECT_FALSE(found.empty());
  const auto rows = read_log(log);
  EXPECT_EQ(values_of(rows, "fusion_threshold_bytes"), std::set<std::string>{"8388608"}) << "what is set stays";
  EXPECT_EQ(values_of(rows, "gather_window_us"), std::set<std::string>{"700"});
  EXPECT_LE(std::stoi(rows.back().at("trial")), 5) << "HORO_AUTOTUNE_TRIALS";
  EXPECT_EQ(values_of(rows, "hierarchical_allreduce"), (std::set<std::string>{"0", "1"}));
  EXPECT_TRUE(values_of(rows, "allreduce_algorithm").contains("hierarchy"))
      << "sums keep the order of hosts, whatever is tried";
  EXPECT_FALSE(values_of(rows, "allreduce_algorithm").contains("ring"));
  std::printf("  %zu samples; %s", rows.size(), found.c_str());
}

TEST(Autotune, WithNothingToChooseItIsDoneAtOnce) {
  const TemporaryFolder folder;
  const std::string log = folder.file("log.csv");
  const std::string found = tuned({.ranks = 2,
                                   .environment = {{"HORO_AUTOTUNE", "1"},
                                                   {"HORO_AUTOTUNE_LOG", log},
                                                   {"HORO_AUTOTUNE_STEPS_PER_SAMPLE", "1"},
                                                   {"HORO_FUSION_THRESHOLD", "1MiB"},
                                                   {"HOROVOD_CYCLE_TIME", "2.5"}}},
                                  log, {10, 20});
  EXPECT_NE(found.find("fusion threshold 1 MiB, gather window 2500 us"), std::string::npos) << found;
  const auto rows = read_log(log);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("phase"), "done");
}

TEST(Autotune, HierarchyIsForcedAndForbiddenUnderBothNames) {
  const std::vector<std::pair<std::string, std::string>> knobs = {{"HORO_HIERARCHICAL_ALLREDUCE", "1"},
                                                                  {"HOROVOD_HIERARCHICAL_ALLREDUCE", "0"},
                                                                  {"HORO_HIERARCHICAL_ALLGATHER", "0"},
                                                                  {"HOROVOD_HIERARCHICAL_ALLGATHER", "1"}};
  for (const auto& [name, value] : knobs) {
    JobOptions options{.ranks = 4, .environment = {{name, value}, {"HORO_INTERFACE", "127.0.0.1"}}};
    options.per_rank = [](int rank) {
      return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", rank < 2 ? "a" : "b"}};
    };
    const bool reduces = name.ends_with("REDUCE");
    auto job = Job::start(options, [&, forced = value == "1"](group::Engine& engine) {
      std::vector<uint64_t> values(1000, 1), all(4000);
      collective::Operation gather;
      gather.kind = collective::Kind::kAllgather;
      gather.dtype = DType::kU64;
      gather.counts.assign(4, 1000);
      const auto* in = reinterpret_cast<const std::byte*>(values.data());
      auto* out = reinterpret_cast<std::byte*>(all.data());
      const Status status = engine.world().run(reduces ? sum_of(1000) : gather, in, out);
      const std::string ran(engine.world().algorithm_name());
      const bool in_two_levels = ran.starts_with("hierarchy");
      tell(ran);
      if (!status.ok() || all[999] != (reduces ? 4u : 1u)) return 3;
      return in_two_levels == forced ? 0 : 4;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    auto codes = (*job)->wait(Deadline::after_seconds(30));
    ASSERT_TRUE(codes.ok()) << codes.status();
    EXPECT_EQ(*codes, std::vector<int>(4, 0)) << name << "=" << value << ": " << (*job)->told(0);
  }
}

TEST(Autotune, TheLaunchersFlagsReachIt) {
  const TemporaryFolder folder;
  const std::string log = folder.file("log.csv");
  const Outcome outcome = run_horo({"-np",
                                    "2",
                                    "--autotune",
                                    "--autotune-log-file",
                                    log,
                                    "--autotune-warmup-samples",
                                    "1",
                                    "--autotune-steps-per-sample",
                                    "2",
                                    "--autotune-bayes-opt-max-samples",
                                    "3",
                                    "--autotune-gaussian-process-noise",
                                    "0.5",
                                    "--torus-allreduce",
                                    "--cycle-time-ms",
                                    "0.5",
                                    test_program("traffic"),
                                    "300",
                                    "8",
                                    "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = read_log(log);
  ASSERT_GE(rows.size(), 3u);
  EXPECT_EQ(rows.back().at("phase"), "done");
  EXPECT_EQ(rows.back().at("trial"), "3");
  EXPECT_EQ(values_of(rows, "gather_window_us"), std::set<std::string>{"500"}) << "the flag fixes it";
}

}  // namespace
}  // namespace horo::test
