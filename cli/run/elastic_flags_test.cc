#include <gtest/gtest.h>

#include "cli/run/flags.h"
#include "cli/run/options.h"

namespace horo::cli::launch {
namespace {

bool contains(const std::string& all, const std::string& words) { return all.find(words) != all.npos; }

Result<RunOptions> options_of(const std::vector<std::string>& words, const Environment& environment = {}) {
  HORO_ASSIGN(FlagValues flags, parse_flags(words));
  return make_options(std::move(flags), environment);
}

std::string error_of(const std::vector<std::string>& words) {
  const auto options = options_of(words);
  return options.ok() ? "" : options.status().message();
}

TEST(ElasticFlags, TheLauncherWaitsAsLongAsTheRanksDo) {
  const auto seconds = [](const std::vector<std::string>& words, const char* variable, const char* value) {
    const auto options = options_of(words, Environment(Environment::Variables{{variable, value}}));
    return options.ok() ? std::chrono::duration<double>(options->elastic.timeout).count() : -1;
  };
  const std::vector<std::string> plain = {"-np", "2", "--min-np", "1", "x"};
  const std::vector<std::string> flagged = {"-np", "2", "--min-np", "1", "--elastic-timeout", "7", "x"};
  EXPECT_EQ(seconds(plain, "HOME", "/"), 600);
  EXPECT_EQ(seconds(plain, "HORO_ELASTIC_TIMEOUT", "3"), 3);
  EXPECT_EQ(seconds(plain, "HOROVOD_ELASTIC_TIMEOUT", "4"), 4);
  EXPECT_EQ(seconds(flagged, "HORO_ELASTIC_TIMEOUT", "3"), 7);
  EXPECT_EQ(seconds(plain, "HORO_ELASTIC_TIMEOUT", "soon"), -1);
}

TEST(ElasticFlags, AnElasticJobTakesAllSlotsUpToItsMost) {
  const auto ranks_of = [](const std::vector<std::string>& words) {
    const auto options = options_of(words);
    return options.ok() ? static_cast<int>(options->placement.ranks.size()) : -1;
  };
  EXPECT_EQ(ranks_of({"-np", "2", "-H", "a:2,b:4", "x"}), 2);
  EXPECT_EQ(ranks_of({"-np", "2", "-H", "a:2,b:4", "--min-np", "1", "x"}), 6);
  EXPECT_EQ(ranks_of({"-np", "2", "-H", "a:2,b:4", "--max-np", "5", "x"}), 5);
  EXPECT_EQ(ranks_of({"-np", "2", "--max-np", "5", "x"}), 2) << "this host has -np slots if nothing else is said";
  const auto options = options_of({"-np", "2", "-H", "a:2,b:4", "--max-np", "5", "x"});
  EXPECT_EQ(options->elastic.offered, (std::vector<Host>{{"a", 2}, {"b", 4}}));
  EXPECT_EQ(options->variables.at("HOROVOD_ELASTIC"), "1");
  EXPECT_EQ(options->variables.at("HORO_ELASTIC_MIN_RANKS"), "2");
  EXPECT_EQ(options->variables.at("HORO_ELASTIC_MAX_RANKS"), "5");
}

TEST(ElasticFlags, ACooldownHasALeastAndAMost) {
  const auto options = options_of({"-np", "1", "--min-np", "1", "--blacklist-cooldown-range", "2", "60", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->elastic.cooldown->least, std::chrono::seconds(2));
  EXPECT_EQ(options->elastic.cooldown->most, std::chrono::seconds(60));
  const std::vector<std::string> turned{"-np", "1", "--min-np", "1", "--blacklist-cooldown-range", "9", "3", "x"};
  EXPECT_TRUE(contains(error_of(turned), "not above the second"));
  EXPECT_TRUE(contains(error_of({"-np", "1", "--blacklist-cooldown-range", "1", "3", "x"}), "give --min-np"));
}

}  // namespace
}  // namespace horo::cli::launch
