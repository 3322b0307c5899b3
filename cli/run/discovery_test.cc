#include "cli/run/discovery.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace horo::cli::launch {
namespace {

using std::chrono::seconds;
using Step = Discovery::Step;

const Time kBegin{seconds(100)};

/// A discovery whose script has just been started.
Discovery running() {
  Discovery discovery("find.sh", 2, kBegin - Discovery::kInterval);
  EXPECT_EQ(discovery.step(kBegin), Step::kRun);
  discovery.started(kBegin);
  return discovery;
}

std::string only_word(Discovery& discovery) {
  const auto words = discovery.take_words();
  EXPECT_EQ(words.size(), 1u);
  return words.empty() ? "" : words[0];
}

TEST(Discovery, RunsAgainASecondAfterTheLastEnd) {
  Discovery discovery("find.sh", 2, kBegin);
  EXPECT_EQ(discovery.step(kBegin), Step::kNothing);
  EXPECT_EQ(discovery.deadline().at(), kBegin + seconds(1));
  EXPECT_EQ(discovery.step(kBegin + seconds(1)), Step::kRun);
  discovery.started(kBegin + seconds(1));
  EXPECT_EQ(discovery.step(kBegin + seconds(2)), Step::kNothing) << "one at a time";
  const auto hosts = discovery.ended({.printed = "a:3\nb\n"}, kBegin + seconds(3));
  ASSERT_TRUE(hosts.has_value());
  EXPECT_EQ(*hosts, (std::vector<Host>{{"a", 3}, {"b", 2}}));
  EXPECT_EQ(discovery.step(kBegin + seconds(3)), Step::kNothing);
  EXPECT_EQ(discovery.step(kBegin + seconds(4)), Step::kRun);
  EXPECT_TRUE(discovery.take_words().empty());
}

TEST(Discovery, AScriptThatHangsIsKilledAndReported) {
  Discovery discovery = running();
  EXPECT_EQ(discovery.deadline().at(), kBegin + Discovery::kLimit);
  EXPECT_EQ(discovery.step(kBegin + Discovery::kLimit), Step::kKill);
  EXPECT_EQ(discovery.step(kBegin + Discovery::kLimit), Step::kNothing);
  EXPECT_TRUE(discovery.deadline().is_never()) << "until its end is seen";
  EXPECT_FALSE(discovery.ended({.signal = SIGKILL, .printed = "a:1\n"}, kBegin + seconds(11)));
  EXPECT_NE(only_word(discovery).find("find.sh took more than 10 s"), std::string::npos);
  EXPECT_EQ(discovery.step(kBegin + seconds(12)), Step::kRun) << "it gets another chance";
}

TEST(Discovery, TroubleOfEachKindIsReportedOnceAndAgainAfterALongTime) {
  const Discovery::Run failed{.code = 3, .complaint = "no such table"};
  const Discovery::Run garbage{.printed = "<html>\n"};
  Discovery discovery = running();
  EXPECT_FALSE(discovery.ended(failed, kBegin));
  const std::string words = only_word(discovery);
  EXPECT_NE(words.find("failed with code 3 (it says: no such table); the hosts that are known stay"), std::string::npos)
      << words;
  EXPECT_FALSE(discovery.ended(failed, kBegin + seconds(2)));
  EXPECT_TRUE(discovery.take_words().empty());
  EXPECT_FALSE(discovery.ended(garbage, kBegin + seconds(4)));
  EXPECT_NE(only_word(discovery).find("prints no list of hosts: output of find.sh:1"), std::string::npos);
  discovery.failed_to_start("no more processes", kBegin + seconds(5));
  EXPECT_NE(only_word(discovery).find("cannot be run: no more processes"), std::string::npos);
  EXPECT_FALSE(discovery.ended({.signal = SIGSEGV}, kBegin + seconds(6)));
  EXPECT_TRUE(discovery.take_words().empty()) << "it failed before";
  EXPECT_FALSE(discovery.ended(failed, kBegin + Discovery::kSayAgain + seconds(1)));
  EXPECT_EQ(discovery.take_words().size(), 1u);
}

TEST(Discovery, AnEmptyListIsTroubleAndNotTheEndOfAllHosts) {
  Discovery discovery = running();
  EXPECT_FALSE(discovery.ended({.printed = "\n"}, kBegin));
  EXPECT_NE(only_word(discovery).find("names no host"), std::string::npos);
}

}  // namespace
}  // namespace horo::cli::launch
