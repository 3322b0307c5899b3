// Ranks that die exactly between two steps: of joining, of an operation, of the agreement about a loss, of making a
// group, of going on. The storms of kill_test.cc and reform_test.cc hit these instants only by chance.
#include "horo/base/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <bit>
#include <set>

#include "tests/runtime_job.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

#ifdef HORO_FAILPOINTS

constexpr int kRanks = 4;
constexpr int kTrigger = 1;  ///< Dies first, so that the others have something to agree about.
constexpr auto kHangLimit = std::chrono::seconds(10);

struct Case {
  const char* point;
  int passage = 1;
  int victim = 0;
  bool triggered = true;  ///< Rank kTrigger dies first.
  int late = -1;          ///< Does not die there, but is long about it.
};

std::string words_of(const Case& one) { return text(one.point, "=kill@", one.passage); }

uint64_t share_of(int seat) { return uint64_t{1} << (4 * seat); }

Status sum(Runtime& runtime, int seat, uint64_t& members) {
  std::vector<uint64_t> values(1000, share_of(seat));
  Call call;
  call.tensor.name = "sum";
  call.tensor.kind = Kind::kAllreduce;
  call.tensor.dtype = DType::kU64;
  call.tensor.shape = {static_cast<int64_t>(values.size())};
  call.input = call.output = bytes_of(values);
  auto handle = runtime.submit(0, {call});
  if (!handle.ok()) return handle.status();
  const Status status = runtime.wait(0, *handle, Deadline::after(kHangLimit));
  if (!status.ok() && values != std::vector<uint64_t>(1000, share_of(seat))) return {Code::kInternal, "input changed"};
  members = values[0];
  const bool right = (members & ~uint64_t{0x1111}) == 0 && std::popcount(members) == runtime.size();
  return status.ok() && !right ? Status(Code::kInternal, text("a sum of ", std::hex, members)) : status;
}

int live_through(Runtime& runtime, const Case& one) {
  const int seat = runtime.rank();
  uint64_t members = 0;
  REQUIRE_OK(arm_failpoints(seat == one.victim ? words_of(one)
                            : seat == one.late ? text(one.point, "=delay:200ms")
                                               : ""));
  for (int step = 0; step < 3 && one.triggered && seat == kTrigger; ++step) (void)sum(runtime, seat, members).ok();
  if (one.triggered && seat == kTrigger) raise(SIGKILL);
  const int left = kRanks - (one.triggered ? 2 : 1);
  for (int after = 0; after < 5;) {
    const Status status = sum(runtime, seat, members);
    if (status.ok()) {
      after += runtime.size() == left ? 1 : 0;
      continue;
    }
    tell(text("failed ", runtime.size(), "\n"));
    REQUIRE(status.code() == Code::kPeerLost);
    REQUIRE_OK(runtime.reform(Deadline::after(kHangLimit)));
  }
  tell(text("on with ", std::hex, members, "\n"));
  return leave_together(runtime);
}

void expect_survivors_go_on(const Case& one, const char* hosts) {
  SCOPED_TRACE(text(words_of(one), " on rank ", one.victim, ", ", hosts));
  JobOptions options{.ranks = kRanks, .environment = {{"HORO_LOG_LEVEL", "error"}}};
  options.environment["HORO_INTERFACE"] = "127.0.0.1";
  if (hosts == std::string_view("two hosts")) {
    options.per_rank = [](int rank) {
      return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", text("host", rank % 2)}};
    };
  }
  auto job = start(options, [&](Runtime& runtime) { return live_through(runtime, one); });
  ASSERT_TRUE(job);
  auto codes = job->wait(Deadline::after(2 * kHangLimit));
  for (int rank = 0; rank < kRanks && !codes.ok(); ++rank) {
    job->signal(rank, SIGKILL);
    ADD_FAILURE() << "rank " << rank << " told: " << job->told(rank);
  }
  ASSERT_TRUE(codes.ok()) << codes.status();
  std::set<std::string> stories;
  for (int rank = 0; rank < kRanks; ++rank) {
    const bool dies = rank == one.victim || (one.triggered && rank == kTrigger);
    EXPECT_EQ((*codes)[static_cast<size_t>(rank)], dies ? -SIGKILL : 0) << "rank " << rank << ": " << job->told(rank);
    if (!dies) stories.insert(job->told(rank));
  }
  EXPECT_EQ(stories.size(), 1u) << "the survivors tell different stories";
}

TEST(Failpoints, SurvivorsGoOnWhereverARankDiesWhileTheyAgreeAndReform) {
  // The lowest rank leads; it alone announces. Each sign to each member is a passage of its own.
  const std::vector<Case> cases{{"membership.send", 1, 0},    {"membership.send", 2, 3},    {"membership.send", 3, 0},
                                {"membership.send", 4, 2},    {"membership.decide", 1, 0},  {"membership.decide", 1, 3},
                                {"membership.install", 1, 0}, {"membership.install", 1, 2}, {"reform.begin", 1, 0},
                                {"reform.left", 1, 3},        {"reform.view", 1, 0},        {"reform.closed", 1, 2},
                                {"group.offer", 1, 0},        {"group.offer", 1, 3},        {"group.announce", 1, 0},
                                {"group.announce", 2, 0},     {"group.announce", 3, 0},     {"group.agreed", 1, 0},
                                {"group.agreed", 1, 2},       {"group.plane", 1, 3},        {"reform.group", 1, 0},
                                {"reform.group", 1, 3},       {"reform.decided", 1, 0},     {"reform.decided", 1, 2},
                                {"reform.seated", 1, 0},      {"reform.seated", 1, 3}};
  for (size_t i = 0; i < cases.size() && !HasFatalFailure(); ++i) {
    expect_survivors_go_on(cases[i], i % 3 == 2 ? "two hosts" : "one host");
  }
}

// Others begin the next group while the late one has left the old one, and has yet to end it.
TEST(Failpoints, ALateSurvivorDisturbsNoGroupThatCameAfterTheOneItEnds) {
  for (const char* hosts : {"one host", "two hosts"}) {
    expect_survivors_go_on({.point = "reform.seated", .victim = 3, .late = 2}, hosts);
    expect_survivors_go_on({.point = "reform.decided", .victim = 3, .late = 0}, hosts);
  }
}

TEST(Failpoints, SurvivorsGoOnWhereverARankDiesInAnOperation) {
  for (const Case& one : std::vector<Case>{{"operation.held", 2, 0, false},
                                           {"operation.completed", 2, 3, false},
                                           {"post.publish", 2, 0, false},
                                           {"post.ring", 3, 3, false}}) {
    for (const char* hosts : {"one host", "two hosts"}) expect_survivors_go_on(one, hosts);
  }
}

TEST(Failpoints, WhereARankDiesOrFailsWhileItJoinsTheOthersAreToldInTime) {
  for (const char* words : {"join.listening=kill", "join.found=kill", "join.dialled=kill", "join.connected=kill",
                            "group.offer=kill", "join.listening=error"}) {
    JobOptions options{.ranks = 3, .environment = {{"HORO_LOG_LEVEL", "off"}, {"HORO_TIMEOUT", "1s"}}};
    auto job = Job::start_part(options, [&](group::EngineOptions engine_options) {
      // Rank 2 is late, so that rank 0 hears of the loss of rank 1 before it knows everybody.
      const char* mine[] = {"", words, "join.found=delay:200ms"};
      if (!arm_failpoints(mine[engine_options.rank]).ok()) return 3;
      auto runtime = Runtime::start({.engine = std::move(engine_options)});
      tell(runtime.status().to_string());
      return runtime.ok() ? 1 : 0;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    auto codes = (*job)->wait(Deadline::after(kHangLimit));
    ASSERT_TRUE(codes.ok()) << words << ": " << codes.status();
    const bool killed = std::string_view(words).ends_with("kill");
    EXPECT_EQ(*codes, (std::vector<int>{0, killed ? -SIGKILL : 0, 0})) << words << ": " << (*job)->told(0);
  }
}

#else

TEST(Failpoints, AreNotBuilt) { GTEST_SKIP() << "configured without HORO_FAILPOINTS"; }

#endif

}  // namespace
}  // namespace horo::test
