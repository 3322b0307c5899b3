// Timelines with clocks that are wrong in known ways come out right.
#include "cli/timeline/merge.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include <nlohmann/json.hpp>

#include "cli/timeline/align.h"

#include "horo/base/text.h"

namespace horo::cli::timeline {
namespace {

using Json = nlohmann::json;

/// A clock that shows `offset + (1 + drift) * true time`, in microseconds.
struct FalseClock {
  double offset = 0, drift = 0;
  double show(double true_us) const { return offset + true_us * (1 + drift); }
};

/// Operations that all ranks enter at random times, and leave up to `latency_us` after the last one has entered.
std::vector<Track> tracks_of(const std::vector<FalseClock>& clocks, double seconds, double latency_us, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> lateness(0, 3000), latency(0, latency_us);
  std::vector<Track> tracks;
  for (size_t r = 0; r < clocks.size(); ++r) {
    Track track;
    track.rank = static_cast<int>(r);
    track.clock = std::to_string(r);
    track.start_us = clocks[r].show(1000.0 * static_cast<double>(r));
    tracks.push_back(track);
  }
  int64_t batch = 0;
  for (double now = 5e4; now < seconds * 1e6; now += 5e4) {
    std::vector<double> entries(clocks.size());
    double last = 0;
    for (double& entry : entries) last = std::max(last, entry = now + lateness(random));
    for (size_t r = 0; r < clocks.size(); ++r) {
      const double leaves = last + latency(random);
      tracks[r].meetings[{0, batch, 0}] = {clocks[r].show(entries[r]) - tracks[r].start_us,
                                           clocks[r].show(leaves) - tracks[r].start_us};
    }
    ++batch;
  }
  return tracks;
}

/// How wrong the aligned time of something that happened at `true_us` is.
double error_at(const Track& track, const Track& first, const Aligned& aligned, const FalseClock& clock,
                const FalseClock& reference, double true_us) {
  const double own = clock.show(true_us) - track.start_us;
  return std::abs(own + aligned.shift.at(own) - (reference.show(true_us) - first.start_us));
}

TEST(Align, ClocksThatDifferAreFoundToAFractionOfTheLatency) {
  const std::vector<FalseClock> clocks = {{1e9, 0}, {-3.5e9, 0}, {77, 0}};
  const std::vector<Track> tracks = tracks_of(clocks, 30, 40, 1);
  const std::vector<Aligned> aligned = align(tracks);
  for (size_t r = 1; r < clocks.size(); ++r) {
    EXPECT_EQ(aligned[r].by, Aligned::By::kMeetings);
    EXPECT_EQ(aligned[r].meetings, tracks[r].meetings.size());
    EXPECT_LT(aligned[r].error_us, 200) << "latest entries and first exits leave little room";
    for (double time : {0.0, 10e6, 29e6}) {
      const double error = error_at(tracks[r], tracks[0], aligned[r], clocks[r], clocks[0], time);
      EXPECT_LT(error, 10) << "rank " << r << " at " << time;
      EXPECT_LE(error, aligned[r].error_us);
    }
  }
}

TEST(Align, ClocksThatRunAtDifferentSpeedsAreFollowed) {
  const std::vector<FalseClock> clocks = {{0, 0}, {5e8, 40e-6}};  // 40 us per second; 4.8 ms in two minutes.
  const std::vector<Track> tracks = tracks_of(clocks, 120, 40, 2);
  const std::vector<Aligned> aligned = align(tracks);
  for (double time = 6e6; time < 115e6; time += 1e6) {
    EXPECT_LT(error_at(tracks[1], tracks[0], aligned[1], clocks[1], clocks[0], time), 60) << time;
  }
}

TEST(Align, RanksThatReadOneClockAreExactWithoutAnyOperation) {
  Track a{0, "boot", 1000, 5e15, {}}, b{1, "boot", 4500, 7e15, {}};
  const std::vector<Aligned> aligned = align({a, b});
  EXPECT_EQ(aligned[1].by, Aligned::By::kSameClock);
  EXPECT_EQ(aligned[1].shift.at(12345), 3500);
}

TEST(Align, WithoutOperationsInCommonTheTimeOfDayIsUsed) {
  Track a{0, "one", 1000, 5000, {}}, b{1, "other", 9e9, 5700, {}};
  const std::vector<Aligned> aligned = align({a, b});
  EXPECT_EQ(aligned[1].by, Aligned::By::kWallClock);
  EXPECT_EQ(aligned[1].shift.at(1), 700);
}

class MergeTest : public testing::Test {
 protected:
  MergeTest() {
    std::string name = (std::filesystem::temp_directory_path() / "horo-merge-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~MergeTest() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& contents) const {
    std::ofstream(path(name)) << contents;
    return path(name);
  }
  Json read(const std::string& name) const { return Json::parse(std::ifstream(path(name))); }

  std::string folder_;
};

/// As the engine writes it; not closed.
std::string file_of(const Track& track) {
  std::string out =
      text(R"([{"name":"horo_timeline","ph":"M","pid":)", track.rank, R"(,"tid":0,"args":{"version":1,"rank":)",
           track.rank, R"(,"clock":")", track.clock, R"(","start_ns":)", static_cast<int64_t>(track.start_us * 1e3),
           R"(,"wall_us":)", static_cast<int64_t>(track.wall_us), "}}");
  for (const auto& [key, meeting] : track.meetings) {
    out += text(",\n", R"({"name":"TCP_ALLREDUCE","ph":"X","pid":)", track.rank, R"(,"tid":1,"ts":)",
                std::to_string(meeting.begin_us), R"(,"dur":)", std::to_string(meeting.end_us - meeting.begin_us),
                R"(,"args":{"operation":"allreduce","process_set":0,"part":0,"batch":)", std::get<1>(key), "}}");
  }
  return out;
}

TEST_F(MergeTest, EndsOfOneOperationComeOutTogetherAlthoughTheClocksDifferByHours) {
  const std::vector<Track> tracks = tracks_of({{2e10, 0}, {9e6, 0}}, 20, 30, 3);
  const std::string a = write("a", file_of(tracks[0]) + "\n]\n" + std::string(5000, ' ')),
                    b = write("b", file_of(tracks[1]));
  auto merged = merge(path("out"), {b, a});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->skipped, 0u);
  ASSERT_EQ(merged->ranks.size(), 2u);
  EXPECT_NE(merged->ranks[1].find("aligned by"), std::string::npos) << merged->ranks[1];
  std::map<int, std::map<int, double>> ends;
  const Json trace = read("out");
  EXPECT_EQ(trace.size(), merged->records);
  for (const Json& record : trace) {
    if (record["ph"] != "X") continue;
    EXPECT_GE(record["ts"], 0);
    ends[record["args"]["batch"]][record["pid"]] = record["ts"].get<double>() + record["dur"].get<double>();
  }
  EXPECT_EQ(ends.size(), tracks[0].meetings.size());
  for (const auto& [batch, by_rank] : ends) EXPECT_NEAR(by_rank.at(0), by_rank.at(1), 45) << batch;
}

TEST_F(MergeTest, AFileThatWasCutOffAnywhereIsReadAsFarAsItGoes) {
  const std::vector<Track> tracks = tracks_of({{0, 0}, {500, 0}}, 0.5, 30, 4);
  const std::string whole = file_of(tracks[1]);
  const std::string a = write("a", file_of(tracks[0]) + "\n]\n");
  for (size_t length = whole.find('\n') + 1; length < whole.size(); length += 37) {
    const std::string b = write("b", whole.substr(0, length));
    auto merged = merge(path("out"), {a, b});
    ASSERT_TRUE(merged.ok()) << merged.status();
    EXPECT_LE(merged->skipped, 1u);
    EXPECT_EQ(read("out").size(), merged->records);
  }
}

TEST_F(MergeTest, WhatCannotBeMergedIsNamed) {
  const auto message = [&](const std::vector<std::string>& files) {
    auto merged = merge(path("out"), files);
    return merged.ok() ? std::string("ok") : merged.status().message();
  };
  const Track track = tracks_of({{0, 0}}, 1, 1, 5)[0];
  const std::string a = write("a", file_of(track)), b = write("b", file_of(track));
  EXPECT_NE(message({a, b}).find("both of rank 0"), std::string::npos);
  EXPECT_NE(message({path("missing")}).find("cannot read"), std::string::npos);
  EXPECT_NE(message({write("foreign", "[\n{\"name\":\"x\",\"ph\":\"B\"}\n]\n")}).find("no timeline of horo"),
            std::string::npos);
  EXPECT_NE(message({write("empty", "")}).find("no timeline of horo"), std::string::npos);
  EXPECT_NE(message({write("odd", R"([{"name":"horo_timeline","args":{"rank":"two"}}])")}).find("damaged"),
            std::string::npos);
  EXPECT_NE(merge(a, {a}).status().message().find("would replace"), std::string::npos);
  EXPECT_FALSE(merge(path("no/such/folder"), {a}).ok());
}

}  // namespace
}  // namespace horo::cli::timeline
