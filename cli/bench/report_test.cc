// What becomes of measured times: statistics, floors, dropped rounds.
#include "cli/bench/report.h"

#include <gtest/gtest.h>
#include <time.h>

#include <nlohmann/json.hpp>

#include "cli/bench/quiet.h"
#include "cli/bench/statistics.h"
#include "cli/process.h"

namespace horo::bench {
namespace {

TEST(Statistics, MediansAndQuantiles) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) values.push_back(i);
  EXPECT_EQ(quantile(values, 0.99), 99);
  EXPECT_EQ(quantile(values, 1), 100);
  EXPECT_EQ(quantile({7}, 0.99), 7);
}

TEST(Floors, CountTheBytesThatMustCrossMemory) {
  EXPECT_EQ(floor_bytes(Op::kAllreduce, 100, 2), 400);
  EXPECT_EQ(floor_bytes(Op::kBroadcast, 100, 4), 400);
  EXPECT_EQ(floor_bytes(Op::kAllgather, 100, 2), 300);
  EXPECT_DOUBLE_EQ(bus_factor(Op::kAllreduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Op::kBroadcast, 4), 1);
}

TEST(QuietWatch, ReadsTheProcessorsTimes) {
  const auto times = parse_cpu_times("cpu  100 20 30 4000 5 6 7 8 0 0\ncpu0 1 2\n", 100);
  ASSERT_TRUE(times.ok());
  EXPECT_DOUBLE_EQ(times->busy, 1.5);
  EXPECT_DOUBLE_EQ(times->idle, 40.05);
  EXPECT_DOUBLE_EQ(times->stolen, 0.08);
  EXPECT_FALSE(parse_cpu_times("intr 5", 100).ok());
  EXPECT_TRUE((QuietWatch::Finding{.wall = 1, .others = 0.2}.disturbed()));
  EXPECT_FALSE((QuietWatch::Finding{.wall = 1, .others = 0.1}.disturbed()));
  EXPECT_FALSE((QuietWatch::Finding{.wall = 1, .others = 0.2, .doubt = 0.25}.disturbed()));
  EXPECT_TRUE((QuietWatch::Finding{.wall = 1, .stolen = 0.1}.disturbed()));
}

/// Processor time of another process.
double cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return -1;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

TEST(QuietWatch, NoticesABusyProcessAndDoesNotBlameOurOwn) {
  const QuietWatch watch;
  cli::ProcessOptions options;
  options.arguments = {"/bin/sh", "-c", "while :; do :; done"};
  auto busy = cli::Process::start(options);
  ASSERT_TRUE(busy.ok()) << busy.status();
  const Deadline deadline = Deadline::after_seconds(20);
  while (cpu_seconds((*busy)->pid()) < 0.4 && !deadline.expired()) (*busy)->wait(Deadline::after_seconds(0.01));
  const auto finding = watch.look(0);
  // On a machine that is busy with other things it gets its share of these 0.4 s, and others get the rest.
  EXPECT_TRUE(finding.disturbed()) << finding.others << " of " << finding.wall << ", doubt " << finding.doubt;
  const double used = cpu_seconds((*busy)->pid());
  EXPECT_LE(watch.look(used).others, watch.look(0).others - used + 0.2);
}

Turn turn_of(double us) {
  Turn turn;
  turn.latency.microseconds = {us, us, us * 3};
  turn.latency.cpu_seconds = 1;
  return turn;
}

/// horo, a peer and a copy; the second round was disturbed.
Report report_of(const std::vector<Lane>& lanes) {
  Report report;
  report.options.rounds = 3;
  SizeResult size{.asked_bytes = 1 << 20,
                  .bytes = 1 << 20,
                  .lanes = {},
                  .rounds = 3,
                  .disturbed = {false, true, false},
                  .taken = 0.5,
                  .wanted = 3};
  double scale = 1;
  for (const Lane& lane : lanes) {
    size.lanes.push_back({.lane = &lane,
                          .left_out = {},
                          .bytes = 1 << 20,
                          .iterations = 3,
                          .turns = {turn_of(10 * scale), turn_of(1000), turn_of(12 * scale)}});
    scale *= 2;
  }
  report.sizes.push_back(size);
  return report;
}

TEST(Report, LeavesDisturbedRoundsOutAndComparesWithPeersAndLimits) {
  const std::vector<Lane> lanes{{.name = "horo", .label = "horo"},
                                {.name = "other", .label = "other"},
                                {.name = "copy", .label = "copy", .is_limit = true}};
  const Report report = report_of(lanes);
  const Figures f = figures(report.sizes[0], report.sizes[0].lanes[0]);
  EXPECT_DOUBLE_EQ(f.median_us, 11);
  EXPECT_DOUBLE_EQ(f.p99_us, 36);
  EXPECT_DOUBLE_EQ(f.cpu_seconds_per_gib, 2.0 / (6.0 / 1024));
  EXPECT_DOUBLE_EQ(copy_floor_us(report, report.sizes[0]), 44);
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_DOUBLE_EQ(json["results"][0]["ratios"]["ordinary"]["other"], 2);
  EXPECT_DOUBLE_EQ(json["results"][0]["ratios"]["ordinary"]["copy_floor"], 4);
  EXPECT_EQ(json["results"][0]["dropped_rounds"], std::vector<int>{1});
  EXPECT_EQ(json["results"][0]["disturbed"], false);
  EXPECT_NE(to_table(report, false).find("1 of 3 rounds dropped"), std::string::npos);
  EXPECT_EQ(json["results"][0]["taken_processors"], 0.5);
}

TEST(Report, KeepsAllRoundsAndSaysSoWhenMostWereDisturbed) {
  const std::vector<Lane> lanes{{.name = "horo", .label = "horo"}};
  Report report = report_of(lanes);
  report.sizes[0].disturbed = {true, true, false};
  EXPECT_EQ(report.sizes[0].counted().size(), 3u);
  EXPECT_NE(to_table(report, false).find("DISTURBED"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["results"][0]["disturbed"], true);
}

}  // namespace
}  // namespace horo::bench
