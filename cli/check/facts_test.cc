#include "cli/check/facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/check/frameworks.h"

#include "horo/base/text.h"

namespace horo::cli {
namespace {

const Fact* find(const Facts& facts, std::string_view name) {
  for (const Fact& fact : facts) {
    if (fact.name == name) return &fact;
  }
  return nullptr;
}

TEST(CheckFacts, HaveAVerdictAndSayWhatToDoWhereItIsNotGood) {
  const Facts facts = all_facts(Environment::of_process());
  std::set<std::string> sections;
  for (const Fact& fact : facts) {
    sections.insert(fact.section);
    EXPECT_FALSE(fact.name.empty());
    EXPECT_EQ(fact.verdict == Verdict::kOk, fact.advice.empty()) << fact.name << ": " << fact.advice;
  }
  EXPECT_EQ(sections, (std::set<std::string>{"transports", "software", "machine", "limits", "network", "knobs"}));
  for (const char* name : {"shared memory", "tcp", "plugins", "devices", "Python", "frameworks", "cores", "NUMA nodes",
                           "memory", "locked memory", "/dev/shm", "ssh", "HORO_TIMEOUT", "instruction sets"}) {
    EXPECT_NE(find(facts, name), nullptr) << name;
  }
}

TEST(CheckFacts, FitOnOneScreenAndIntoJson) {
  const Facts facts{{"a", "good", "yes"}, {"b", "so-so", "a bit", Verdict::kNote, "do this"}};
  const std::string shown = facts_text(facts, false);
  EXPECT_NE(shown.find("horo "), std::string::npos) << shown;
  EXPECT_NE(shown.find("note"), std::string::npos) << shown;
  EXPECT_NE(shown.find("do this"), std::string::npos) << shown;
  const auto parsed = nlohmann::json::parse(facts_json(facts));
  EXPECT_EQ(parsed["facts"][1]["verdict"], "note");
  EXPECT_EQ(parsed["facts"][1]["advice"], "do this");
  EXPECT_FALSE(has_problem(facts));
  EXPECT_TRUE(has_problem({{"c", "bad", "no", Verdict::kProblem, "fix it"}}));
  const std::string all = facts_text(all_facts(Environment::of_process()), false);
  EXPECT_LE(std::count(all.begin(), all.end(), '\n'), 60) << all;
}

TEST(CheckFacts, TellWhatTheEnvironmentSets) {
  const Facts set =
      knob_facts(Environment(Environment::Variables{{"HOROVOD_GLOO_TIMEOUT_SECONDS", "7"}, {"HORO_TIMEOTU", "1"}}));
  EXPECT_EQ(find(set, "HORO_TIMEOUT")->value, "7 s");
  EXPECT_EQ(find(set, "HORO_FREEZE_TIMEOUT")->value, "10 s (default)");
  const Fact* unknown = find(set, "environment");
  ASSERT_NE(unknown, nullptr);
  EXPECT_EQ(unknown->verdict, Verdict::kNote);
  EXPECT_NE(unknown->advice.find("did you mean HORO_TIMEOUT?"), std::string::npos) << unknown->advice;
  const Facts wrong = knob_facts(Environment(Environment::Variables{{"HORO_TIMEOUT", "long"}}));
  EXPECT_TRUE(has_problem(wrong));
  EXPECT_NE(wrong[0].advice.find("HORO_TIMEOUT holds 'long'"), std::string::npos) << wrong[0].advice;
}

TEST(CheckFacts, MissingProgramsAreNoted) {
  const Environment nowhere(Environment::Variables{{"PATH", "/nonexistent"}});
  EXPECT_EQ(find(network_facts(nowhere), "ssh")->verdict, Verdict::kNote);
  EXPECT_EQ(find_python(nowhere, "/nonexistent"), "");
}

/// A Python of its own, with distributions that are nothing but their metadata.
class Frameworks : public testing::Test {
 protected:
  void SetUp() override {
    python_ = find_python(Environment::of_process(), "/nonexistent");
    if (python_.empty()) GTEST_SKIP() << "there is no Python here";
    std::string pattern = (std::filesystem::temp_directory_path() / "horo-frameworks-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ + "/python3") << "#!/bin/sh\nPYTHONPATH=" << folder_ << "/site exec " << python_
                                        << " -S \"$@\"\n";
    std::filesystem::permissions(folder_ + "/python3", std::filesystem::perms::owner_all);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  void add(const std::string& name, const std::string& version) const {
    const std::string info = text(folder_, "/site/", name, "-", version, ".dist-info");
    std::filesystem::create_directories(info);
    std::ofstream(info + "/METADATA") << "Metadata-Version: 2.1\nName: " << name << "\nVersion: " << version << "\n";
  }

  std::string python_, folder_;
};

TEST_F(Frameworks, AreFoundByTheirMetadataWithoutBeingImported) {
  add("torch", "2.9.1");
  add("tensorflow_cpu", "2.20.0");
  add("mpi4py", "4.0.0");
  // What would be imported ends the interpreter.
  std::ofstream(folder_ + "/site/torch.py") << "import os\nos._exit(3)\n";
  EXPECT_EQ(find_python(Environment::of_process(), folder_), folder_ + "/python3")
      << "the one beside the program first";
  const auto found = frameworks_of(folder_ + "/python3");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found,
            (std::map<std::string, std::string>{{"torch", "2.9.1"}, {"tensorflow", "2.20.0"}, {"mpi4py", "4.0.0"}}));
}

TEST_F(Frameworks, ComeWithThePluginsOfTheirHoro) {
  std::filesystem::create_directories(folder_ + "/site/horo");
  std::ofstream(folder_ + "/site/horo/__init__.py") << "import os\nos._exit(3)\n";
  std::ofstream(folder_ + "/site/horo/libhoro_cuda.so") << "nobody opens it";
  std::ofstream(folder_ + "/site/horo/libhoro_mpi.so") << "no library";
  const auto found = frameworks_of(folder_ + "/python3");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(found->at("plugin:cuda"), "here");
  EXPECT_EQ(found->at("plugin:mpi").rfind("cannot be loaded: ", 0), 0u) << found->at("plugin:mpi");
}

TEST_F(Frameworks, OfAPythonThatDoesNotAnswerAreUnknown) {
  std::ofstream(folder_ + "/python3") << "#!/bin/sh\nexit 3\n";
  EXPECT_FALSE(frameworks_of(folder_ + "/python3").ok());
}

}  // namespace
}  // namespace horo::cli
