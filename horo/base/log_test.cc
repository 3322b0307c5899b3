#include "horo/base/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace horo {
namespace {

struct Lines {
  std::vector<std::string> lines;
  Log::Sink sink() {
    return [this](LogLevel, std::string_view line) { lines.emplace_back(line); };
  }
};

// A line starts with a time such as 2000-01-01T00:00:00.000Z.
std::string without_time(const std::string& line) { return line.substr(line.find(' ') + 1); }

TEST(Log, WritesOnlyWhatTheLevelAllows) {
  Lines out;
  Log log(LogLevel::kWarning, out.sink());
  log.info("quiet");
  log.warning("loud ", 1);
  log.set_level(LogLevel::kDebug);
  log.debug("now this too");
  log.set_level(LogLevel::kOff);
  log.error("nobody hears this");
  ASSERT_EQ(out.lines.size(), 2u);
  EXPECT_EQ(without_time(out.lines[0]), "horo warning loud 1");
  EXPECT_EQ(without_time(out.lines[1]), "horo debug now this too");
}

TEST(Log, WhatAStrangerCallsItselfBeginsNoLineAndCommandsNoTerminal) {
  Lines out;
  Log log(LogLevel::kWarning, out.sink());
  log.warning("a connection for job 'x\nhoro error [rank 0] \x1b[2J\x7f' of j\xc3\xb6rg");
  ASSERT_EQ(out.lines.size(), 1u);
  EXPECT_EQ(without_time(out.lines[0]),
            "horo warning a connection for job 'x\\x0ahoro error [rank 0] \\x1b[2J\\x7f' of j\xc3\xb6rg");
}

TEST(Log, ALineStartsWithTheTimeInUtc) {
  Lines out;
  Log log(LogLevel::kInfo, out.sink());
  log.info("x");
  ASSERT_EQ(out.lines.size(), 1u);
  const std::string& line = out.lines[0];
  ASSERT_GT(line.size(), 24u);
  EXPECT_EQ(line[10], 'T');
  EXPECT_EQ(line[19], '.');
  EXPECT_EQ(line[23], 'Z');
}

TEST(Log, NamesRankAndEpochOnceTheyAreKnown) {
  Lines out;
  Log log(LogLevel::kInfo, out.sink());
  log.set_rank(3);
  log.set_epoch(2);
  log.info("hello");
  ASSERT_EQ(out.lines.size(), 1u);
  EXPECT_EQ(without_time(out.lines[0]), "horo info [rank 3 epoch 2] hello");
}

TEST(Log, LimitsLinesOfOneKeyAndCountsWhatItLeftOut) {
  Lines out;
  Log log(LogLevel::kInfo, out.sink());
  Time start = Clock::now();
  uint64_t written = 0;
  while (out.lines.size() < 2 && Clock::now() - start < std::chrono::seconds(10)) {
    log.limited(LogLevel::kInfo, "flood", "again");
    ++written;
  }
  log.limited(LogLevel::kInfo, "other", "another key is not held back");
  ASSERT_EQ(out.lines.size(), 3u);
  EXPECT_GE(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(without_time(out.lines[0]), "horo info again");
  EXPECT_EQ(without_time(out.lines[1]), text("horo info again (", written - 2, " like it left out)"));
  EXPECT_EQ(without_time(out.lines[2]), "horo info another key is not held back");
}

TEST(Log, ThreadsMayWriteAtOnce) {
  std::mutex mutex;
  size_t lines = 0;
  Log log(LogLevel::kInfo, [&](LogLevel, std::string_view) {
    std::lock_guard lock(mutex);
    ++lines;
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&log, i] {
      for (int k = 0; k < 100; ++k) log.info(i, " ", k);
      log.limited(LogLevel::kInfo, text("key ", i), "once");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines, 404u);
}

TEST(Log, GoesToStandardErrorWithoutASink) {
  testing::internal::CaptureStderr();
  Log(LogLevel::kInfo).info("to stderr");
  std::string captured = testing::internal::GetCapturedStderr();
  EXPECT_NE(captured.find("horo info to stderr\n"), std::string::npos) << captured;
}

TEST(LogLevel, IsNamedInAnyCase) {
  EXPECT_EQ(log_level_named("DEBUG"), LogLevel::kDebug);
  EXPECT_EQ(log_level_named("Warn"), LogLevel::kWarning);
  EXPECT_EQ(log_level_named("fatal"), LogLevel::kError);
  EXPECT_EQ(log_level_named("loud"), std::nullopt);
  for (int level = 0; level <= static_cast<int>(LogLevel::kOff); ++level) {
    EXPECT_EQ(log_level_named(name(static_cast<LogLevel>(level))), static_cast<LogLevel>(level));
  }
}

}  // namespace
}  // namespace horo
