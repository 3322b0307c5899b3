// The timeline's file, its records and its thread; everything that is written is read by an independent parser.
#include "horo/engine/timeline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "horo/base/text.h"

namespace horo::engine {
namespace {

using Json = nlohmann::json;

std::string read(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

/// A folder that goes with the test.
class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    std::string name = (std::filesystem::temp_directory_path() / "horo-timeline-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~TimelineTest() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name = "t.json") const { return folder_ + "/" + name; }
  Timeline timeline(int rank = 0, size_t capacity = Timeline::kCapacity) { return {rank, 4, "clock", log_, capacity}; }

  std::string folder_;
  std::vector<std::string> lines_;
  std::mutex mutex_;
  Log log_{LogLevel::kWarning, [this](LogLevel, std::string_view line) {
             std::lock_guard lock(mutex_);
             lines_.emplace_back(line);
           }};
};

std::vector<Json> named(const Json& trace, const std::string& name) {
  std::vector<Json> found;
  for (const Json& record : trace) {
    if (record.value("name", "") == name) found.push_back(record);
  }
  return found;
}

TraceEvent event(TraceStep step, int64_t at_us, uint64_t batch = 0, std::string words = {}) {
  TraceEvent event;
  event.step = step;
  event.at = Time(std::chrono::microseconds(at_us));
  event.batch = batch;
  event.words = std::move(words);
  return event;
}

TraceEvent about(TraceStep step, int64_t at_us, const std::vector<std::string>& names, uint64_t batch = 0) {
  TraceEvent made = event(step, at_us, batch);
  for (const std::string& name : names) made.tensors.push_back({name, Kind::kAllreduce, DType::kF32, 40});
  return made;
}

TEST_F(TimelineTest, TheFileIsAnArrayAfterEveryRecord) {
  auto file = TraceFile::create(path(), R"({"n":0})");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Json::parse(read(path())), Json::parse(R"([{"n":0}])"));
  std::string long_record = text(",\n{\"n\":1,\"s\":\"", std::string(TraceFile::kStep / 3, 'x'), "\"}");
  for (size_t i = 1; i < 20; ++i) {
    ASSERT_TRUE(file->append(i % 2 == 0 ? long_record : text(",\n{\"n\":", i, "}")).ok());
    ASSERT_EQ(Json::parse(read(path())).size(), i + 1);
  }
  ASSERT_TRUE(file->finish().ok());
  const std::string whole = read(path());
  EXPECT_EQ(Json::parse(whole).size(), 20u);
  EXPECT_TRUE(whole.ends_with("}\n]\n")) << "no blanks are left";
}

// Whoever reads to the end in several calls meets what was added meanwhile: it must not be records.
TEST_F(TimelineTest, AReaderThatIsAtTheEndFindsOnlyBlanksBehindIt) {
  auto file = TraceFile::create(path(), "{}");
  ASSERT_TRUE(file.ok());
  size_t growths = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string before = read(path());
    ASSERT_TRUE(file->append(text(",\n{\"s\":\"", std::string(5000, 'x'), "\"}")).ok());
    const std::string added = read(path()).substr(before.size());
    growths += added.empty() ? 0 : 1;
    ASSERT_EQ(added.find_first_not_of(" \n"), std::string::npos);
  }
  EXPECT_GE(growths, 3u);
}

TEST_F(TimelineTest, AReaderThatHoldsTheLockIsWaitedForUnlessItTakesTooLong) {
  auto file = TraceFile::create(path(), "{}");
  ASSERT_TRUE(file.ok());
  const int reader = ::open(path().c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(reader, LOCK_SH), 0);
  EXPECT_FALSE(*file->append(",\n{}"));
  EXPECT_EQ(Json::parse(read(path())).size(), 1u);
  EXPECT_TRUE(*file->append(",\n{}", true));
  ASSERT_EQ(::flock(reader, LOCK_UN), 0);
  EXPECT_TRUE(*file->append(",\n{}"));
  EXPECT_EQ(Json::parse(read(path())).size(), 3u);
  ::close(reader);
}

TEST_F(TimelineTest, PlacesThatCannotBeWrittenAreNamed) {
  const auto message = [](const std::string& where) {
    auto file = TraceFile::create(where, "{}");
    return file.ok() ? std::string("ok") : file.status().message();
  };
  EXPECT_NE(message(path("no/such/folder.json")).find("No such file or directory"), std::string::npos);
  EXPECT_NE(message(folder_).find("Is a directory"), std::string::npos);
  EXPECT_NE(message("/dev/full").find("No space left on device"), std::string::npos);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(message(path("pipe")).find(path("pipe")), std::string::npos) << "and does not wait for a reader";
}

TEST_F(TimelineTest, AFileIsNeverFoundEmptyAndLinksAreFollowed) {
  std::ofstream(path()) << "[1]";
  const int reader = ::open(path().c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(TraceFile::create(path(), "{}").ok());
  char before[4] = {};
  EXPECT_EQ(::pread(reader, before, sizeof before, 0), 3) << "who reads the file of before keeps it";
  ::close(reader);
  std::filesystem::create_symlink(path(), path("link"));
  ASSERT_TRUE(TraceFile::create(path("link"), R"({"n":2})").ok());
  EXPECT_EQ(Json::parse(read(path())), Json::parse(R"([{"n":2}])"));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 2u) << "nothing else is left";
}

// A limit of the process stands for a disk: the kernel refuses in the same place.
TEST_F(TimelineTest, WhenTheDiskIsFullTheFileStaysClosedAndTheLogSaysSo) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{TraceFile::kStep * 3 + 1234, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    Timeline timeline = this->timeline();
    ASSERT_TRUE(timeline.start(path(), false).ok());
    const Deadline limit = Deadline::after_seconds(20);
    for (uint64_t i = 1; timeline.on() && !limit.expired(); ++i) {
      timeline.push(about(TraceStep::kAgreed, 1, {std::string(200, 'n')}, i));
      timeline.push(event(TraceStep::kDone, 2, i));
      std::this_thread::yield();
    }
    EXPECT_FALSE(timeline.on()) << "it ends itself";
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_GT(Json::parse(read(path())).size(), 100u);
  std::string said;
  for (const std::string& line : lines_) said += line + "\n";
  EXPECT_NE(said.find("File too large"), std::string::npos) << said;
  EXPECT_NE(said.find("the job goes on"), std::string::npos) << said;
}

TEST_F(TimelineTest, ATensorGoesThroughItsPhasesInItsOwnRow) {
  TraceText text({2, 4, "host \"a\"", "clock", Time(std::chrono::microseconds(1000)), 77});
  std::string out = "[" + text.first();
  const auto add = [&](const TraceEvent& one) { text.add(one, out); };
  add(about(TraceStep::kHandedIn, 1010, {"a", "b"}));
  TraceEvent ready = event(TraceStep::kReady, 1015, 0, "a");
  ready.ranks = {3};
  add(ready);
  add(about(TraceStep::kAgreed, 1020, {"a", "b"}, 7));
  add(event(TraceStep::kBegun, 1030, 7));
  add(event(TraceStep::kBegin, 1031, 7, "MEMCPY_IN_FUSION_BUFFER"));
  add(event(TraceStep::kEnd, 1032, 7));
  TraceEvent carry = event(TraceStep::kBegin, 1033, 7, "SHM_ALLREDUCE");
  carry.carries = true;
  add(carry);
  carry.step = TraceStep::kEnd;
  carry.at += std::chrono::microseconds(5);
  carry.detail = "direct";
  add(carry);
  add(event(TraceStep::kDone, 1040, 7));
  const Json trace = Json::parse(out + "]");
  EXPECT_EQ(trace[0]["args"]["rank"], 2);
  EXPECT_EQ(trace[0]["args"]["wall_us"], 77);
  int row = -1;
  for (const Json& record : named(trace, "thread_name")) {
    if (record["args"]["name"] == "a") row = record["tid"];
  }
  ASSERT_GE(row, 0);
  std::vector<std::string> seen;
  for (const Json& record : trace) {
    EXPECT_EQ(record["pid"], 2);
    if (record["tid"] != row || record["ph"] == "M") continue;
    seen.push_back(
        horo::text(record["ph"].get<std::string>(), " ", record.value("name", ""), " ", record["ts"].get<double>()));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"B NEGOTIATE_ALLREDUCE 10", "i ready: rank 3 15", "E  20", "B ALLREDUCE 20",
                                            "B QUEUE 20", "E  30", "B MEMCPY_IN_FUSION_BUFFER 31", "E  32",
                                            "B SHM_ALLREDUCE 33", "E  38", "E  40"}));
  const Json bar = named(trace, "SHM_ALLREDUCE").back();
  EXPECT_EQ(bar["ph"], "X");
  EXPECT_EQ(bar["dur"], 5);
  EXPECT_EQ(bar["args"]["batch"], 7);
  EXPECT_EQ(bar["args"]["tensors"], 2);
  EXPECT_EQ(bar["args"]["bytes"], 80);
}

/// Every E must have its B, and nothing may stay open but what `open` says.
void expect_nested(const Json& trace, int open) {
  std::map<int, int> depths;
  for (const Json& record : trace) {
    int& depth = depths[record["tid"]];
    if (record["ph"] == "B") ++depth;
    if (record["ph"] == "E") --depth;
    ASSERT_GE(depth, 0) << record;
  }
  int total = 0;
  for (const auto& [row, depth] : depths) total += depth;
  EXPECT_EQ(total, open);
}

TEST_F(TimelineTest, PhasesStayNestedWhateverIsMissing) {
  const std::vector<TraceEvent> life = {about(TraceStep::kHandedIn, 1, {"a"}), about(TraceStep::kAgreed, 2, {"a"}, 1),
                                        event(TraceStep::kBegun, 3, 1),        event(TraceStep::kBegin, 4, 1, "X"),
                                        event(TraceStep::kEnd, 5, 1),          event(TraceStep::kDone, 6, 1)};
  for (unsigned kept = 0; kept < 1U << life.size(); ++kept) {
    TraceText text({});
    std::string out = "[" + text.first();
    for (size_t i = 0; i < life.size(); ++i) {
      if ((kept >> i & 1U) != 0) text.add(life[i], out);
    }
    for (const TraceEvent& one : life) text.add(one, out);
    SCOPED_TRACE(kept);
    expect_nested(Json::parse(out + "]"), 0);
  }
}

TEST_F(TimelineTest, TensorsBeyondTheRowsShareThem) {
  TraceText text({});
  std::string out = "[" + text.first();
  for (size_t i = 0; i < TraceText::kMostRows + 50; ++i) {
    const std::string name = "t\"" + std::to_string(i);
    text.add(about(TraceStep::kHandedIn, 1, {name}), out);
    text.add(about(TraceStep::kAgreed, 2, {name}, i + 1), out);
    text.add(event(TraceStep::kDone, 3, i + 1), out);
  }
  const Json trace = Json::parse(out + "]");
  expect_nested(trace, 0);
  EXPECT_EQ(named(trace, "thread_name").size(), TraceText::kMostRows + 2) << "one for the set, one that is shared";
}

TEST_F(TimelineTest, WhatWasPushedIsInTheFileOnceItIsStopped) {
  Timeline timeline = this->timeline(3);
  timeline.stop();
  timeline.push(event(TraceStep::kCycle, 1));
  for (int round = 0; round < 2; ++round) {
    const std::string name = "round" + std::to_string(round) + ".json";
    ASSERT_TRUE(timeline.start(path(name), true).ok());
    EXPECT_TRUE(timeline.on() && timeline.marks_cycles());
    for (int i = 0; i <= round; ++i) timeline.push(event(TraceStep::kCycle, 5));
    timeline.stop();
    EXPECT_FALSE(timeline.on());
    timeline.push(event(TraceStep::kCycle, 9));
    const Json trace = Json::parse(read(timeline_path(path(name), 3)));
    EXPECT_EQ(named(trace, "CYCLE_START").size(), static_cast<size_t>(round) + 1);
  }
}

TEST_F(TimelineTest, StartingAnotherFinishesTheOneBefore) {
  Timeline timeline = this->timeline();
  ASSERT_TRUE(timeline.start(path("a.json"), true).ok());
  timeline.push(event(TraceStep::kCycle, 5));
  ASSERT_TRUE(timeline.start(path("b.json"), false).ok());
  EXPECT_FALSE(timeline.marks_cycles());
  const std::string first = read(path("a.json"));
  EXPECT_EQ(named(Json::parse(first), "CYCLE_START").size(), 1u);
  EXPECT_TRUE(first.ends_with("]\n"));
  EXPECT_FALSE(timeline.start(path("no/such/folder"), false).ok());
  EXPECT_FALSE(timeline.on());
}

TEST_F(TimelineTest, EventsThatDoNotFitAreCountedInTheFileAndTheLog) {
  Timeline timeline = this->timeline(0, 16);
  ASSERT_TRUE(timeline.start(path(), true).ok());
  uint64_t pushed = 0;
  const Deadline limit = Deadline::after_seconds(20);
  while (timeline.dropped() < 1000 && !limit.expired()) {
    timeline.push(event(TraceStep::kCycle, 1));
    ++pushed;
  }
  timeline.stop();
  const Json trace = Json::parse(read(path()));
  uint64_t said = 0;
  for (const Json& record : named(trace, "EVENTS_DROPPED")) said += record["args"]["count"].get<uint64_t>();
  EXPECT_EQ(said, timeline.dropped());
  EXPECT_EQ(named(trace, "CYCLE_START").size() + said, pushed);
  ASSERT_FALSE(lines_.empty());
  EXPECT_NE(lines_.front().find("leaves out"), std::string::npos);
}

TEST_F(TimelineTest, ManyThreadsPushWhileTheFileIsRead) {
  Timeline timeline = this->timeline();
  ASSERT_TRUE(timeline.start(path(), true).ok());
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!over) {
        timeline.push(event(TraceStep::kCycle, 1));
        std::this_thread::yield();
      }
    });
  }
  const int reader = ::open(path().c_str(), O_RDONLY | O_CLOEXEC);
  size_t records = 0, changes = 0;
  const Deadline limit = Deadline::after_seconds(20);
  while (changes < 5 && !limit.expired()) {
    ASSERT_EQ(::flock(reader, LOCK_SH), 0);
    const Json trace = Json::parse(read(path()));
    ASSERT_EQ(::flock(reader, LOCK_UN), 0);
    ASSERT_GE(trace.size(), records);
    changes += trace.size() > records ? 1 : 0;
    records = trace.size();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  ::close(reader);
  EXPECT_EQ(changes, 5u) << "it grows while it is read";
}

TEST(TimelinePath, IsTheGivenOneForRankZeroAndNamedAfterItForOthers) {
  EXPECT_EQ(timeline_path("/tmp/t.json", 0), "/tmp/t.json");
  EXPECT_EQ(timeline_path("/tmp/t.json", 12), "/tmp/t.rank12.json");
  EXPECT_EQ(timeline_path("trace", 1), "trace.rank1");
  EXPECT_EQ(timeline_path("a.b/trace.out", 1), "a.b/trace.out.rank1");
}

}  // namespace
}  // namespace horo::engine
