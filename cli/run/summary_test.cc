#include "cli/run/summary.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "cli/run/hosts.h"

namespace horo::cli::launch {
namespace {

const Time kNow{std::chrono::seconds(9)};

std::vector<std::string> no_words(int) { return {}; }

JobLife running(const Placement& placement) {
  LifeOptions options;
  for (const Host& host : placement.hosts) {
    options.hosts.push_back(host.name);
    options.ranks_per_host.push_back(host.slots);
  }
  JobLife life(options, kNow);
  for (size_t host = 0; host < placement.hosts.size(); ++host) life.host_ready(host, kNow);
  return life;
}

TEST(Summary, OfAGoodEndIsEmpty) {
  const Placement placement = *place_ranks({{"a", 1}}, 1);
  JobLife life = running(placement);
  life.rank_ended({0}, kNow);
  EXPECT_TRUE(summary(life, no_words).empty());
}

TEST(Summary, NamesTheFirstRankItsHostAndItsLastLines) {
  const Placement placement = *place_ranks({{"a", 1}, {"b", 2}}, 3);
  JobLife life = running(placement);
  life.rank_ended({.rank = 2, .signal = SIGSEGV}, kNow);
  life.rank_ended({.rank = 0, .code = 4}, kNow);
  const auto lines =
      summary(life, [](int rank) { return std::vector<std::string>{"<stderr>:of " + std::to_string(rank)}; });
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "rank 2 on b failed first: signal 11 (Segmentation fault). Its last lines:",
                       "  [2]<stderr>:of 2",
                       "rank 0 on a failed too: exit code 4",
                   }));
}

TEST(Summary, OfARankThatDidNotStartSaysWhyOnce) {
  const Placement placement = *place_ranks({{"a", 2}}, 2);
  JobLife life = running(placement);
  life.rank_ended({.rank = 0, .code = 127, .error = "command not found: 'x'"}, kNow);
  life.rank_ended({.rank = 1, .code = 127, .error = "command not found: 'x'"}, kNow);
  EXPECT_EQ(summary(life, no_words), std::vector<std::string>{"rank 0 on a did not start: command not found: 'x'"});
}

TEST(Summary, OfSignalsAndLostHosts) {
  const Placement placement = *place_ranks({{"a", 1}, {"b", 1}}, 2);
  JobLife ended = running(placement);
  ended.signalled(SIGTERM, kNow);
  EXPECT_EQ(summary(ended, no_words), std::vector<std::string>{"ended by signal 15 (Terminated)"});
  JobLife lost = running(placement);
  lost.host_lost(1, "gone", kNow);
  EXPECT_EQ(summary(lost, no_words), std::vector<std::string>{"host b: gone"});
}

}  // namespace
}  // namespace horo::cli::launch
