// Timelines of real jobs, read by a JSON parser while they are written and afterwards.
#include "horo/engine/timeline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/runtime_job.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using engine::timeline_path;
using Json = nlohmann::json;

class Timelines : public testing::Test {
 protected:
  Timelines() {
    std::string name = (std::filesystem::temp_directory_path() / "horo-timelines-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Timelines() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name = "t.json") const { return folder_ + "/" + name; }

  std::string folder_;
};

/// Under the shared lock, so that not even the microsecond of a write is met.
Json read_live(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return Json::array();  // Not begun yet.
  ::flock(descriptor, LOCK_SH);
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  ::close(descriptor);
  return Json::parse(out.str());
}

std::map<std::string, size_t> count_names(const Json& trace) {
  std::map<std::string, size_t> counts;
  for (const Json& record : trace) ++counts[record.value("name", "")];
  return counts;
}

/// Hands in `tensors` of 40 bytes at once and waits for all.
Status step(Runtime& runtime, int tensors, const std::string& prefix = "t") {
  std::vector<std::vector<float>> memory(static_cast<size_t>(tensors), std::vector<float>(10, 1));
  std::vector<Handle> handles;
  for (int i = 0; i < tensors; ++i) {
    HORO_ASSIGN(Handle handle, runtime.submit(0, {in_place(text(prefix, i), memory[static_cast<size_t>(i)])}));
    handles.push_back(handle);
  }
  for (const Handle& handle : handles) HORO_TRY(runtime.wait(0, handle));
  for (const std::vector<float>& values : memory) {
    if (values[0] != static_cast<float>(runtime.size())) return {Code::kInternal, "a wrong sum"};
  }
  return {};
}

Result<float> sum(Runtime& runtime, const std::string& name, float value) {
  std::vector<float> values{value};
  HORO_TRY(allreduce(runtime, name, values));
  return values[0];
}

TEST_F(Timelines, CanBeParsedWhileTheJobRunsAndHaveEveryPhaseAfterwards) {
  constexpr int kRanks = 3, kSteps = 20, kTensors = 8;
  Hold hold;
  JobOptions options;
  options.ranks = kRanks;
  options.environment = {{"HORO_TIMELINE", path()}, {"HORO_TIMELINE_MARK_CYCLES", "1"}};
  auto job = start(options, [&](Runtime& runtime) -> Status {
    hold.take_part();
    HORO_TRY(step(runtime, kTensors));
    tell("running\n");
    for (float released = 0; released == 0;) {  // All ranks leave in the same turn.
      const bool mine = hold.wait(Deadline::after(std::chrono::milliseconds(1)));
      HORO_ASSIGN(released, sum(runtime, "more", mine ? 1 : 0));
    }
    for (int i = 1; i < kSteps; ++i) HORO_TRY(step(runtime, kTensors));
    return {};
  });
  ASSERT_TRUE(job);
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(job->next_line(rank, Deadline::after_seconds(20)).ok());
  }
  size_t most = 0, grown = 0;
  const Deadline limit = Deadline::after_seconds(20);
  while (grown < 5 && !limit.expired()) {
    const Json trace = read_live(timeline_path(path(), 1));
    ASSERT_TRUE(trace.is_array());
    grown += trace.size() > most ? 1 : 0;
    most = std::max(most, trace.size());
  }
  EXPECT_EQ(grown, 5u) << "it grows while the job runs";
  hold.let_go();
  expect_zero(*job);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::map<std::string, size_t> counts = count_names(read_live(timeline_path(path(), rank)));
    EXPECT_GE(counts["NEGOTIATE_ALLREDUCE"], size_t{kSteps * kTensors}) << rank;
    EXPECT_EQ(counts["ALLREDUCE"], counts["NEGOTIATE_ALLREDUCE"]) << rank;
    EXPECT_EQ(counts["QUEUE"], counts["ALLREDUCE"]) << rank;
    EXPECT_GE(counts["SHM_ALLREDUCE"], counts["ALLREDUCE"]) << rank;
    EXPECT_GT(counts["MEMCPY_IN_FUSION_BUFFER"], 0u) << rank;
    EXPECT_EQ(counts["MEMCPY_IN_FUSION_BUFFER"], counts["MEMCPY_OUT_FUSION_BUFFER"]) << rank;
    EXPECT_GT(counts["CYCLE_START"], 0u) << rank;
    EXPECT_EQ(counts["EVENTS_DROPPED"], 0u) << rank;
  }
  std::map<std::string, size_t> counts = count_names(read_live(path()));
  EXPECT_GE(counts["ready: rank 1"], size_t{kSteps * kTensors}) << "the coordinator knows who was ready when";
  EXPECT_GE(counts["ready: rank 2"], size_t{kSteps * kTensors});
}

TEST_F(Timelines, OfARankThatWasKilledCanBeParsed) {
  constexpr size_t kSteps = 50, kTensors = 4;
  Hold hold;
  JobOptions options;
  options.environment = {{"HORO_TIMELINE", path()}};
  auto job = start(options, [&](Runtime& runtime) -> Status {
    hold.take_part();
    for (size_t i = 0; i < kSteps; ++i) HORO_TRY(step(runtime, kTensors));
    if (runtime.rank() == 1) hold.wait(Deadline::after_seconds(60));
    const Status status = step(runtime, kTensors);
    return status.code() == Code::kPeerLost ? Status() : Status(Code::kInternal, status.to_string());
  });
  ASSERT_TRUE(job);
  const auto waits = [&] {  // Rank 0 has handed in what rank 1 never will.
    return count_names(read_live(path()))["NEGOTIATE_ALLREDUCE"] == (kSteps + 1) * kTensors;
  };
  const Deadline limit = Deadline::after_seconds(20);
  while (!waits() && !limit.expired()) {
  }
  job->signal(1, SIGKILL);
  auto codes = job->wait(Deadline::after_seconds(60));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, (std::vector<int>{0, -SIGKILL})) << job->told(0);
  // What came in the last 20 ms before the end may be missing.
  EXPECT_GT(count_names(read_live(timeline_path(path(), 1)))["ALLREDUCE"], 0u);
  const Json survivor = read_live(path());
  EXPECT_EQ(count_names(survivor)["ALLREDUCE"], kSteps * kTensors);
  EXPECT_NE(survivor.dump().find("peer-lost"), std::string::npos) << "what it ended in is in the timeline";
}

TEST_F(Timelines, AreStartedAndStoppedWhileTheJobRuns) {
  JobOptions options;
  options.environment = {{"HOROVOD_TIMELINE", "DYNAMIC"}};
  auto job = start(options, [&](Runtime& runtime) -> Status {
    HORO_TRY(step(runtime, 2, "before"));
    for (const char* name : {"a.json", "b.json"}) {
      HORO_TRY(runtime.start_timeline(path(name)));
      HORO_TRY(step(runtime, 2, name));
      runtime.stop_timeline();
      HORO_TRY(step(runtime, 2, "between"));
    }
    if (runtime.start_timeline(path("no/such/folder.json")).ok()) return {Code::kInternal, "it was started"};
    return step(runtime, 2, "after");
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
  for (const std::string name : {"a.json", "b.json"}) {
    for (int rank : {0, 1}) {
      const Json trace = read_live(timeline_path(path(name), rank));
      std::map<std::string, size_t> counts = count_names(trace);
      EXPECT_EQ(counts["NEGOTIATE_ALLREDUCE"], 2u) << "what came between is at most marked as ready on another rank";
      EXPECT_EQ(counts["ALLREDUCE"], 2u);
      EXPECT_NE(trace.dump().find(name), std::string::npos);
    }
  }
}

TEST_F(Timelines, ThatCannotBeWrittenAreALineInTheLogAndNoHarm) {
  for (const std::string& where : {std::string("/dev/full"), path("no/such/folder.json")}) {
    JobOptions options;
    options.ranks = 1;
    options.environment = {{"HORO_TIMELINE", where}};
    auto job = Job::start_part(options, [](group::EngineOptions engine_options) {
      tell_log();
      auto runtime = Runtime::start({.engine = std::move(engine_options), .process_sets = {}});
      return runtime.ok() && step(**runtime, 2).ok() ? 0 : 1;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_zero(**job);
    const std::string said = (*job)->told(0);
    EXPECT_NE(said.find("the job goes on"), std::string::npos) << said;
    EXPECT_NE(said.find(where), std::string::npos) << said;
  }
}

// As root on a file system of its own; the same refusal without one is in horo_engine_test.
TEST_F(Timelines, OnADiskThatFillsUpStayCompleteJson) {
  if (::mount("none", folder_.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "no right to mount a file system";
  }
  JobOptions options;
  options.ranks = 1;
  options.environment = {{"HORO_TIMELINE", path()}};
  auto job = Job::start_part(options, [](group::EngineOptions engine_options) {
    tell_log();
    auto runtime = Runtime::start({.engine = std::move(engine_options), .process_sets = {}});
    for (int i = 0; i < 600; ++i) {
      if (!runtime.ok() || !step(**runtime, 8).ok()) return 1;
    }
    return 0;
  });
  EXPECT_TRUE(job.ok()) << job.status();
  if (job.ok()) {
    expect_zero(**job);
    EXPECT_NE((*job)->told(0).find("No space left on device"), std::string::npos);
    EXPECT_GT(read_live(path()).size(), 1000u);
  }
  ::umount2(folder_.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace horo::test
