// The program as a user runs it: real ranks, real namespaces, real mistakes.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/process.h"

#include "horo/base/text.h"

namespace horo::cli {
namespace {

struct Outcome {
  int code = -1;
  std::string said;  ///< Both streams.
};

/// The program lies in bin/ beside the test.
std::string program() { return own_folder() + "/bin/horo"; }

class Program : public testing::Test {
 protected:
  void SetUp() override {
    if (access(program().c_str(), X_OK) != 0) GTEST_SKIP() << program() << " is not built";
    std::string pattern = (std::filesystem::temp_directory_path() / "horo-program-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }

  Result<std::unique_ptr<Process>> start(const std::string& arguments) {
    ProcessOptions options;
    options.arguments = {"/bin/sh", "-c", text("exec ", program(), " ", arguments, " > ", file("said"), " 2>&1")};
    return Process::start(options);
  }
  std::string said() const {
    std::ifstream in(file("said"));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Outcome run(const std::string& arguments) {
    auto process = start(arguments);
    if (!process.ok()) return {-1, process.status().to_string()};
    const auto code = (*process)->wait(Deadline::after_seconds(120));
    return {code.value_or(-999), said()};
  }

  std::string folder_;
};

/// Namespaces that runs of the program left behind.
std::vector<std::string> namespaces_of(pid_t pid) {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns", none)) {
    if (entry.path().filename().string().rfind(text("horo-", pid, "-"), 0) == 0) found.push_back(entry.path());
  }
  return found;
}

TEST_F(Program, BenchMeasuresTwoRanksAndWritesJson) {
  const Outcome outcome = run(
      text("bench allreduce -np 2 --sizes 4,64K --rounds 1 --seconds 0.01 --buffers both --json ", file("out.json")));
  ASSERT_EQ(outcome.code, 0) << outcome.said;
  const auto json = nlohmann::json::parse(std::ifstream(file("out.json")));
  EXPECT_EQ(json["operation"], "allreduce");
  EXPECT_EQ(json["ranks"], 2);
  ASSERT_EQ(json["results"].size(), 2u);
  for (const auto& result : json["results"]) {
    ASSERT_EQ(result["contenders"].size(), 2u);
    for (const auto& contender : result["contenders"]) {
      EXPECT_GT(contender["median_us"], 0) << result;
      EXPECT_GE(contender["p99_us"], contender["minimum_us"]) << result;
      EXPECT_GT(contender["back_to_back_us"], 0) << result;
      EXPECT_EQ(contender["transport"], json["transport"]);
    }
    EXPECT_GT(result["copy_floor_us"], 0);
    EXPECT_GT(result["ratios"]["ordinary"]["copy_floor"], 0);
  }
  EXPECT_EQ(json["results"][1]["bytes"], 65536);
}

TEST_F(Program, BenchMeasuresEveryCollectiveOverSockets) {
  for (const char* op : {"reduce", "broadcast", "allgather", "reducescatter", "alltoall", "barrier"}) {
    const Outcome outcome = run(text("bench ", op, " -np 3 --transport tcp --sizes 40K --rounds 1 --seconds 0.01"));
    EXPECT_EQ(outcome.code, 0) << outcome.said;
    EXPECT_NE(outcome.said.find("transport tcp"), std::string::npos) << outcome.said;
  }
}

TEST_F(Program, APeerThatIsAbsentIsNamedAndLeftOut) {
  const Outcome outcome = run("bench allreduce --sizes 4 --rounds 1 --seconds 0.01 --peers nobody");
  EXPECT_EQ(outcome.code, 0) << outcome.said;
  EXPECT_NE(outcome.said.find("left out: nobody"), std::string::npos) << outcome.said;
}

TEST_F(Program, BenchMarksRoundsInWhichSomethingElseUsedTheProcessors) {
  ProcessOptions options;
  options.arguments = {"/bin/sh", "-c", "while :; do :; done"};
  auto busy = Process::start(options);
  ASSERT_TRUE(busy.ok()) << busy.status();
  const Outcome outcome = run(text("bench allreduce --sizes 4,16M --rounds 1 --seconds 1 --json ", file("out.json")));
  ASSERT_EQ(outcome.code, 0) << outcome.said;
  const auto report = nlohmann::json::parse(std::ifstream(file("out.json")));
  for (const auto& result : report["results"]) {
    EXPECT_EQ(result["disturbed"], true) << outcome.said;
    EXPECT_GT(result["taken_processors"], 0.15) << outcome.said;
  }
}

TEST_F(Program, BenchMeasuresWhatWaitingCosts) {
  const Outcome outcome = run(text("bench wait -np 2 --rounds 1 --json ", file("out.json")));
  ASSERT_EQ(outcome.code, 0) << outcome.said;
  const auto json = nlohmann::json::parse(std::ifstream(file("out.json")));
  std::set<std::string> kinds;
  for (const auto& wait : json["waits"]) {
    kinds.insert(wait["kind"].get<std::string>());
    EXPECT_GE(wait["cpu_us"], 0) << wait;
    // Nobody burns a core: a wait of a second takes far less than that of processor time.
    if (wait["microseconds"] >= 1e6) {
      EXPECT_LT(wait["cpu_us"], 1e5) << wait;
    }
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"wait", "idle"}));
}

TEST_F(Program, AWrongFlagIsAnsweredWithTheNearestOne) {
  const Outcome flag = run("bench allreduce --dtyp f32");
  EXPECT_EQ(flag.code, 2);
  EXPECT_NE(flag.said.find("'--dtype'"), std::string::npos) << flag.said;
  const Outcome command = run("bnech");
  EXPECT_EQ(command.code, 2);
  EXPECT_NE(command.said.find("'bench'"), std::string::npos) << command.said;
  const Outcome size = run("bench allreduce --sizes 4Q");
  EXPECT_EQ(size.code, 2);
  EXPECT_NE(size.said.find("'4Q'"), std::string::npos) << size.said;
}

TEST_F(Program, TellsItsVersionItsKnobsAndItsAlgorithms) {
  EXPECT_NE(run("--version").said.find("horo "), std::string::npos);
  EXPECT_NE(run("--help").said.find("bench"), std::string::npos);
  EXPECT_NE(run("knobs").said.find("HORO_STAGING"), std::string::npos);
  EXPECT_NE(run("knobs --markdown").said.find("| `HORO_STAGING`"), std::string::npos);
  EXPECT_NE(run("check --algorithms").said.find("pairwise"), std::string::npos);
  EXPECT_NE(run("check").said.find("instruction sets"), std::string::npos);
}

TEST_F(Program, CheckTellsWhatThereIsAndFailsWhereSomethingIsWrong) {
  const Outcome good = run("check --json");
  EXPECT_EQ(good.code, 0) << good.said;
  const auto parsed = nlohmann::json::parse(good.said);
  EXPECT_GT(parsed["facts"].size(), 15u);
  EXPECT_FALSE(parsed["version"].empty());
  auto process =
      Process::start({.arguments = {program(), "check"}, .environment = {{"HORO_STALL_ABORT", "x"}}, .quiet = true});
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ((*process)->wait(Deadline::after_seconds(60)), 1);
}

TEST_F(Program, AFolderForTemporaryFilesThatIsNotThereIsNamed) {
  const std::string command = text("TMPDIR=", file("absent"), " ", program(), " bench allreduce --sizes 4 --rounds 1");
  ProcessOptions options;
  options.arguments = {"/bin/sh", "-c", text(command, " > ", file("said"), " 2>&1")};
  auto process = Process::start(options);
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ((*process)->wait(Deadline::after_seconds(60)), 1);
  EXPECT_NE(said().find("set TMPDIR to one that is writable"), std::string::npos) << said();
}

TEST_F(Program, TheSelfTestHolds) {
  const Outcome outcome = run("check --self-test --seconds 0");
  EXPECT_EQ(outcome.code, 0) << outcome.said;
  EXPECT_NE(outcome.said.find("everything held"), std::string::npos) << outcome.said;
}

TEST_F(Program, HostsAreNamespacesThatAreGoneAfterwards) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make network namespaces";
  const Outcome outcome = run("bench allreduce --hosts 2 --sizes 4K --rounds 1 --seconds 0.01");
  for (const char* none : {"Operation not permitted", "ip: not found"}) {
    if (outcome.said.find(none) != std::string::npos) GTEST_SKIP() << outcome.said;
  }
  EXPECT_EQ(outcome.code, 0) << outcome.said;
  EXPECT_NE(outcome.said.find("transport tcp"), std::string::npos) << outcome.said;
}

TEST_F(Program, NamespacesAreRemovedWhenTheBenchIsKilled) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make network namespaces";
  auto process = start("bench allreduce --hosts 2 --sizes 1M --rounds 1000");
  ASSERT_TRUE(process.ok()) << process.status();
  const pid_t pid = (*process)->pid();
  const Deadline made = Deadline::after_seconds(20);
  while (namespaces_of(pid).size() < 2 && !made.expired() && !(*process)->wait(Deadline::after_seconds(0.01))) {
  }
  if ((*process)->wait(Deadline::after_seconds(0))) GTEST_SKIP() << "no namespaces here: " << said();
  ASSERT_EQ(namespaces_of(pid).size(), 2u);
  (*process)->signal(SIGKILL);
  const Deadline gone = Deadline::after_seconds(20);
  // The one who removes them is no child of this test: only looking tells.
  while (!namespaces_of(pid).empty() && !gone.expired()) (*process)->wait(Deadline::after_seconds(0.01));
  EXPECT_TRUE(namespaces_of(pid).empty());
}

}  // namespace
}  // namespace horo::cli
