#include "cli/run/config_file.h"

#include <gtest/gtest.h>

#include <random>

#include "horo/base/text.h"

namespace horo::cli::launch {
namespace {

FlagValues read(const std::string& yaml, FlagValues flags = {}) {
  const Status status = add_settings(yaml, "c.yaml", flags);
  EXPECT_TRUE(status.ok()) << status;
  return flags;
}

std::string error_of(const std::string& yaml) {
  FlagValues flags;
  return add_settings(yaml, "c.yaml", flags).message();
}

void expect_error(const std::string& yaml, const std::string& words) {
  EXPECT_NE(error_of(yaml).find(words), std::string::npos) << error_of(yaml);
}

TEST(ConfigFile, HasTheSectionsOfHorovods) {
  const FlagValues flags = read(
      "controller: gloo\n"
      "params:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 5\n  cache_capacity: 2048\n"
      "  hierarchical_allreduce: true\n  hierarchical_allgather: no\n  torus_allreduce: off\n"
      "autotune:\n  enabled: yes\n  log_file: 'a b.csv'\n  warmup_samples: 5\n  steps_per_sample: 20\n"
      "  bayes_opt_max_samples: 50\n  gaussian_process_noise: 0.9\n"
      "timeline:\n  filename: t.json  # a comment\n  mark_cycles: true\n"
      "stall_check:\n  enabled: false\n  warning_time_seconds: 120\n  shutdown_time_seconds: 240\n"
      "library_options:\n  mpi_threads_disable: true\n  num_nccl_streams: 2\n  thread_affinity: 1\n"
      "  gloo_timeout_seconds: 60\n"
      "logging:\n  level: INFO\n  with_timestamp: false\n");
  EXPECT_TRUE(flags.is_on("--gloo"));
  EXPECT_EQ(flags.find("--fusion-threshold-mb"), "32");
  EXPECT_EQ(flags.find("--hierarchical-allreduce"), "true");
  EXPECT_EQ(flags.find("--hierarchical-allgather"), "false");
  EXPECT_EQ(flags.find("--autotune-log-file"), "a b.csv");
  EXPECT_EQ(flags.find("--timeline-filename"), "t.json");
  EXPECT_EQ(flags.find("--stall-check"), "false");
  EXPECT_EQ(flags.find("--gloo-timeout-seconds"), "60");
  EXPECT_EQ(variables_of(flags, "").at("HOROVOD_LOG_HIDE_TIME"), "1");
  EXPECT_EQ(variables_of(flags, "").at("HOROVOD_STALL_CHECK_DISABLE"), "1");
}

TEST(ConfigFile, EverySettingOfTheTableIsRead) {
  for (const FlagRow& row : flag_table()) {
    if (row.setting.empty()) continue;
    const size_t dot = row.setting.find('.');
    const std::string value = row.kind == FlagKind::kLevel                                        ? "INFO"
                              : row.kind == FlagKind::kSwitch || row.kind == FlagKind::kNegatable ? "true"
                                                                                                  : "1";
    const FlagValues flags = read(text(row.setting.substr(0, dot), ":\n  ", row.setting.substr(dot + 1), ": ", value));
    EXPECT_EQ(flags.find(row.name), value) << row.setting;
  }
}

TEST(ConfigFile, FlagsThatWereGivenStay) {
  FlagValues given;
  given.values["--cycle-time-ms"] = {"3"};
  given.values["--log-without-timestamp"] = {"true"};
  const FlagValues flags = read("params:\n  cycle_time_ms: 9\nlogging:\n  with_timestamp: true\n", given);
  EXPECT_EQ(flags.find("--cycle-time-ms"), "3");
  // Another flag for the same variable decides too.
  EXPECT_EQ(variables_of(flags, "").at("HOROVOD_LOG_HIDE_TIME"), "1");
}

TEST(ConfigFile, AnEmptyOneSaysNothing) {
  EXPECT_TRUE(read("").values.empty());
  EXPECT_TRUE(read("# nothing\n").values.empty());
}

TEST(ConfigFile, MistakesAreNamedWithTheirLine) {
  expect_error("params:\n  cycle_time: 3\n",
               "c.yaml:2: 'params.cycle_time' is no setting; did you mean 'params.cycle_time_ms'?");
  expect_error("params:\n  cycle_time_ms: -3\n", "c.yaml:2: params.cycle_time_ms: '-3' is not a number, 0 or more");
  expect_error("autotune:\n  enabled: perhaps\n", "'perhaps' is not true or false");
  expect_error("autotune:\n  gaussian_process_noise: 2\n", "from 0 to 1");
  expect_error("params:\n  cycle_time_ms: [1, 2]\n", "c.yaml:2: params.cycle_time_ms must have one value");
  expect_error("params: [\n", "no YAML");
  expect_error("- a\n- b\n", "name: value");
  expect_error("controller: slurm\n", "'slurm' is not gloo or mpi");
  expect_error("\tparams: 3\n", "no YAML");
}

TEST(ConfigFile, RandomBytesDoNoHarm) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  const std::string letters = "params:\n  cycle_time_ms: 3\n[]{}&*!|>'\"%@`#-?,\t";
  for (int i = 0; i < 3000; ++i) {
    std::string yaml(random() % 60, ' ');
    for (char& c : yaml) c = letters[random() % letters.size()];
    FlagValues flags;
    if (add_settings(yaml, "x", flags).ok()) {
      EXPECT_LE(flags.values.size(), 2u) << yaml;
    }
  }
}

}  // namespace
}  // namespace horo::cli::launch
