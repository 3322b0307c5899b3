// The tables of knobs against the tests, the old names and the documentation.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "horo/api/joining.h"
#include "horo/api/old_variables.h"
#include "horo/base/pattern_testing.h"
#include "horo/base/text.h"

namespace horo::api {
namespace {

/// Every variable that Horovod's ranks read, by its documentation and sources.
constexpr std::string_view kHorovodVariables =
    "FUSION_THRESHOLD CYCLE_TIME CACHE_CAPACITY HIERARCHICAL_ALLREDUCE HIERARCHICAL_ALLGATHER TORUS_ALLREDUCE AUTOTUNE "
    "AUTOTUNE_LOG AUTOTUNE_WARMUP_SAMPLES AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_BAYES_OPT_MAX_SAMPLES "
    "AUTOTUNE_GAUSSIAN_PROCESS_NOISE TIMELINE TIMELINE_MARK_CYCLES STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS "
    "STALL_SHUTDOWN_TIME_SECONDS LOG_LEVEL LOG_HIDE_TIME CPU_OPERATIONS CONTROLLER GLOO_IFACE GLOO_TIMEOUT_SECONDS "
    "GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT HOSTNAME RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE ELASTIC "
    "DYNAMIC_PROCESS_SETS DISABLE_GROUP_FUSION NUM_NCCL_STREAMS BATCH_D2D_MEMCOPIES ENABLE_ASYNC_COMPLETION "
    "ENABLE_XLA_OPS DISABLE_NVTX_RANGES MPI_THREADS_DISABLE THREAD_AFFINITY ADASUM_MPI_CHUNK_SIZE CCL_CACHE "
    "START_TIMEOUT ELASTIC_TIMEOUT SPARK_USE_LOCAL_RANK_GPU_INDEX SPARK_PYTHONPATH SPARK_WORK_DIR";

std::vector<const Knob*> all_knobs() {
  std::vector<const Knob*> all;
  for (KnobTable table : knob_tables()) all.insert(all.end(), table.begin(), table.end());
  return all;
}

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// "test_names::test_that_a_name_is_found": functions of tests/python.
void add_python_tests(std::map<std::string, std::string>& tests) {
  const std::filesystem::path root = std::filesystem::path(HORO_SOURCE_DIR) / "tests" / "python";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".py") continue;
    const std::string contents = contents_of(entry.path());
    for (const auto& match : test::find_all("\ndef (test_[A-Za-z0-9_]+)[(]", contents)) {
      tests[text(entry.path().stem().string(), "::", match[1])] = contents;
    }
  }
}

/// By their names, the files that hold the tests of the project.
std::map<std::string, std::string> tests_of_the_project() {
  constexpr const char* kTest = "TEST(_F|_P)?[(][[:space:]]*([A-Za-z0-9_]+),[[:space:]]*([A-Za-z0-9_]+)[[:space:]]*[)]";
  std::map<std::string, std::string> tests;
  add_python_tests(tests);
  for (const char* folder : {"horo", "plugins", "cli", "tests", "sim"}) {
    const std::filesystem::path root = std::filesystem::path(HORO_SOURCE_DIR) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (!entry.path().string().ends_with("_test.cc")) continue;
      const std::string contents = contents_of(entry.path());
      for (const auto& match : test::find_all(kTest, contents)) {
        tests[text(match[2], ".", match[3])] = contents;
      }
    }
  }
  return tests;
}

TEST(KnobTables, EveryRowNamesATestThatExistsAndMentionsTheKnob) {
  const auto tests = tests_of_the_project();
  ASSERT_GT(tests.size(), 100u) << "the sources are not where they should be: " << HORO_SOURCE_DIR;
  for (const Knob* knob : all_knobs()) {
    const KnobRow& row = knob->row;
    const auto found = tests.find(std::string(row.test));
    if (found == tests.end()) {
      ADD_FAILURE() << row.name << " names the test '" << row.test << "', which does not exist";
      continue;
    }
    const bool mentioned = found->second.find(row.name) != std::string::npos ||
                           (!row.legacy.empty() && found->second.find(row.legacy) != std::string::npos);
    EXPECT_TRUE(mentioned) << "the file of " << row.test << " says nothing of " << row.name;
  }
}

TEST(KnobTables, EveryVariableOfHorovodsIsAnAliasOrIsExplained) {
  std::set<std::string_view> aliases, explained;
  for (const Knob* knob : all_knobs()) aliases.insert(knob->row.legacy);
  for (const OldVariable& old : kOldVariables) {
    EXPECT_TRUE(explained.insert(old.name).second) << old.name << " is explained twice";
    EXPECT_FALSE(old.why.empty()) << old.name;
    EXPECT_EQ(aliases.count(old.name), 0u) << old.name << " sets something, and is said to set nothing";
  }
  std::istringstream words{std::string(kHorovodVariables)};
  for (std::string word; words >> word;) {
    const std::string name = "HOROVOD_" + word;
    EXPECT_TRUE(aliases.count(name) + explained.count(name) == 1) << name << " is in no table";
  }
  EXPECT_EQ(explained.count("_HOROVOD_SECRET_KEY"), 1u);
}

TEST(KnobTables, OldVariablesThatSetNothingAreExplainedByName) {
  for (const OldVariable& old : kOldVariables) {
    const auto config =
        Config::read(knob_tables(), Environment(Environment::Variables{{std::string(old.name), "7"}}), kOldVariables);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto& lines = old.matters ? config->warnings() : config->notes();
    ASSERT_EQ(lines.size(), 1u) << old.name;
    EXPECT_EQ(lines[0], text(old.name, " changes nothing: ", old.why));
    EXPECT_TRUE((old.matters ? config->notes() : config->warnings()).empty()) << old.name;
    if (old.usual.empty()) continue;
    const Environment usual(Environment::Variables{{std::string(old.name), std::string(old.usual)}});
    const auto quiet = Config::read(knob_tables(), usual, kOldVariables);
    EXPECT_TRUE(quiet->warnings().empty() && quiet->notes().empty()) << old.name << "=" << old.usual;
  }
}

/// Something that the knob cannot mean; empty where everything is accepted.
std::string malformed(const Knob& knob) {
  if (knob.kind == KnobKind::kText) return "";
  return knob.kind == KnobKind::kChoice ? "none-of-these" : "1x";
}

TEST(KnobTables, MalformedValuesNameTheVariableTheValueAndWhatIsAllowed) {
  for (const Knob* knob : all_knobs()) {
    const std::string wrong = malformed(*knob);
    if (wrong.empty()) continue;
    for (std::string_view name : {knob->row.name, knob->row.legacy}) {
      if (name.empty()) continue;
      const auto config = Config::read(knob_tables(), Environment(Environment::Variables{{std::string(name), wrong}}));
      const std::string message = config.ok() ? "" : config.status().message();
      EXPECT_EQ(message.find(text(name, " holds '", wrong)), 0u) << name << ": " << message;
      EXPECT_NE(message.find("accepted is "), std::string::npos) << message;
    }
  }
}

TEST(KnobTables, AreDocumented) {
  const std::string page = contents_of(std::filesystem::path(HORO_SOURCE_DIR) / "docs" / "knobs.md");
  for (const Knob* knob : all_knobs()) {
    EXPECT_NE(page.find(text("| `", knob->row.name, "` |")), std::string::npos)
        << knob->row.name << " is not in docs/knobs.md; run make docs";
  }
  EXPECT_NE(page.find(old_variables_markdown()), std::string::npos) << "docs/knobs.md is not of today; run make docs";
}

}  // namespace
}  // namespace horo::api
