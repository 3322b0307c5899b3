// Every collective over real processes: 2 to 8 ranks, every transport and algorithm, every element type and reduction,
// in place and out of place, uneven counts and none at all, groups side by side, several threads, asynchronously. Every
// pair of these occurs.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdio>
#include <map>
#include <set>
#include <thread>

#include "tests/all_pairs.h"
#include "tests/exact_call.h"
#include "tests/job.h"
#include "tests/workload.h"

#include "horo/base/text.h"
#include "horo/collective/algorithm.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

TEST(AllPairs, HoldEveryPairThatTheRulesAllowAndNoOther) {
  const std::vector<int> sizes = {5, 3, 4, 2};
  const PairRules rules{
      .pair = [](size_t first, int a, size_t second, int b) { return first != 0 || second != 1 || a + b != 3; },
      .whole = [](const Choice& choice) { return choice[1] != 2 || choice[3] != 1 || choice[2] != 0; }};
  size_t left_out = 0;
  const auto cases = all_pairs(sizes, 7, rules, &left_out);
  EXPECT_EQ(left_out, 0u);
  EXPECT_LT(cases.size(), 40u);
  std::set<std::vector<int>> seen;
  for (const Choice& one : cases) {
    EXPECT_TRUE(rules.whole(one));
    for (int i = 0; i < 4; ++i) {
      for (int j = i + 1; j < 4; ++j) seen.insert({i, one[static_cast<size_t>(i)], j, one[static_cast<size_t>(j)]});
    }
  }
  EXPECT_EQ(seen.size(), 5 * 3 + 5 * 4 + 5 * 2 + 3 * 4 + 3 * 2 + 4 * 2 - 3u);
  EXPECT_EQ(all_pairs(sizes, 7, rules), cases);
}

/// How the ranks of a job reach each other.
struct Path {
  std::string transport;
  std::string algorithm;  ///< Empty: the selector's choice.
  bool two_hosts = false;

  std::string to_string() const {
    return text(transport, two_hosts ? ", two hosts" : "", algorithm.empty() ? "" : ", ", algorithm);
  }
};

std::vector<Path> paths() {
  std::vector<Path> all = {{"shm", ""}, {"tcp", ""}, {"auto", "", true}};
  for (const collective::Algorithm& algorithm : collective::registry()) {
    all.push_back({algorithm.order == collective::Order::kHost ? "auto" : "tcp", std::string(algorithm.name),
                   algorithm.order == collective::Order::kHost});
  }
  return all;
}

enum class Caller : uint8_t { kBlocking, kAsynchronous, kHalves, kThreads };
constexpr const char* kCallers[] = {"blocking", "asynchronous", "groups side by side", "several threads"};
constexpr int kThreads = 3;
constexpr int kFewest = 2, kMost = 8;
constexpr uint64_t kCounts[] = {0, 1, 5, 300, 9'000, 60'000};

/// The parameters, in the order of a Choice.
enum Parameter : uint8_t { kRanks, kPath, kKind, kDType, kOp, kInPlace, kCount, kUneven, kCaller };

struct ProcessCase {
  ExactCase call;
  Caller caller = Caller::kBlocking;
};

PairRules rules() {
  const auto possible = [](int kind, int dtype, int op) {
    return is_possible(static_cast<Kind>(kind), static_cast<DType>(dtype), static_cast<ReduceOp>(op));
  };
  PairRules rules;
  rules.pair = [possible](size_t first, int a, size_t second, int b) {
    if (first == kKind && second == kDType) {
      return possible(a, b, static_cast<int>(ReduceOp::kSum));
    }
    return true;
  };
  // A reduction that an element type lacks can still stand in a case that reduces nothing.
  rules.whole = [possible](const Choice& one) { return possible(one[kKind], one[kDType], one[kOp]); };
  return rules;
}

/// Cases by ranks and path: those of one job.
using Jobs = std::map<std::pair<int, int>, std::vector<ProcessCase>>;

Jobs jobs_of(uint64_t seed, size_t& cases, size_t& left_out) {
  const std::vector<int> sizes = {kMost - kFewest + 1,
                                  static_cast<int>(paths().size()),
                                  static_cast<int>(Kind::kSendRecv) + 1,
                                  kDTypeCount,
                                  kReduceOpCount,
                                  2,
                                  static_cast<int>(std::size(kCounts)),
                                  2,
                                  static_cast<int>(std::size(kCallers))};
  Jobs jobs;
  for (const Choice& one : all_pairs(sizes, seed, rules(), &left_out)) {
    ProcessCase made;
    made.call = {.kind = static_cast<Kind>(one[kKind]),
                 .dtype = static_cast<DType>(one[kDType]),
                 .op = static_cast<ReduceOp>(one[kOp]),
                 .count = kCounts[one[kCount]],
                 .uneven = one[kUneven] == 1,
                 .root = static_cast<int>(cases % 8),
                 .in_place = one[kInPlace] == 1,
                 .salt = seed + cases};
    made.caller = static_cast<Caller>(one[kCaller]);
    jobs[{one[kRanks] + kFewest, one[kPath]}].push_back(made);
    ++cases;
  }
  return jobs;
}

/// The groups of one rank.
struct Groups {
  std::shared_ptr<group::Group> half;                   ///< Of the even or of the odd ranks.
  std::vector<std::shared_ptr<group::Group>> together;  ///< Of all, one per thread.
};

Result<Groups> make_groups(group::Engine& engine) {
  Groups groups;
  std::vector<int> half, all;
  for (int rank = 0; rank < engine.size(); ++rank) {
    all.push_back(rank);
    if (rank % 2 == engine.rank() % 2) half.push_back(rank);
  }
  const Deadline deadline = Deadline::after_seconds(30);
  HORO_ASSIGN(groups.half, engine.create_group(half, deadline));
  for (int thread = 0; thread < kThreads; ++thread) {
    HORO_ASSIGN(auto made, engine.create_group(all, deadline));
    groups.together.push_back(std::move(made));
  }
  return groups;
}

/// A forced algorithm may be unable to serve this group: then it says so, to all members alike, before anything moves.
bool is_refusal(const Status& status, const group::Group& group, const Operation& operation, const Path& path) {
  const collective::Algorithm* forced = collective::find_algorithm(path.algorithm);
  return forced != nullptr && !forced->refusal(operation, group.shape()).empty() &&
         status.code() == Code::kInvalidArgument && status.message().find("possible are") != std::string::npos;
}

std::string run_on(group::Group& group, const ExactCase& of, const Path& path, bool asynchronous = false) {
  ExactCall call(of, group.size(), group.member());
  const Deadline deadline = Deadline::after_seconds(60);
  Status status;
  if (asynchronous) {
    auto request = group.submit(call.operation(), call.in(), call.out(), deadline);
    status = request.ok() ? (*request)->wait(Deadline::after_seconds(70)) : request.status();
  } else {
    status = group.run(call.operation(), call.in(), call.out(), deadline);
  }
  if (is_refusal(status, group, call.operation(), path)) return "";
  return status.ok() ? call.wrong() : text(of.to_string(), ": ", status.to_string());
}

std::string run_case(group::Engine& engine, Groups& groups, const ProcessCase& one, const Path& path) {
  switch (one.caller) {
    case Caller::kBlocking:
      return run_on(engine.world(), one.call, path);
    case Caller::kAsynchronous:
      return run_on(engine.world(), one.call, path, true);
    case Caller::kHalves:
      return run_on(*groups.half, one.call, path);
    case Caller::kThreads:
      break;
  }
  std::vector<std::string> wrong(kThreads);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      ExactCase mine = one.call;
      mine.salt += thread;
      mine.root += static_cast<int>(thread);
      wrong[thread] = run_on(*groups.together[thread], mine, path);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& words : wrong) {
    if (!words.empty()) return words;
  }
  return "";
}

int run_cases(group::Engine& engine, const std::vector<ProcessCase>& cases, const Path& path) {
  const bool direct = path.transport == "shm";
  if (direct != (engine.world().transport_name() == "shm")) {
    tell(text("unexpected transport ", engine.world().transport_name()));
    return 3;
  }
  auto groups = make_groups(engine);
  if (!groups.ok()) {
    tell(groups.status().to_string());
    return 4;
  }
  for (const ProcessCase& one : cases) {
    const std::string wrong = run_case(engine, *groups, one, path);
    if (wrong.empty()) continue;
    tell(text(wrong, ", ", kCallers[static_cast<int>(one.caller)], ", by ", engine.world().algorithm_name(), "\n"));
    return 5;
  }
  return engine.world().run({}, nullptr, nullptr, Deadline::after_seconds(60)).ok() ? 0 : 6;
}

TEST(Processes, GetExactResultsForEveryPairOfParameters) {
  const uint64_t seed = test_seed("Processes");
  size_t cases = 0, left_out = 0;
  const Jobs jobs = jobs_of(seed, cases, left_out);
  EXPECT_EQ(left_out, 0u) << "pairs of parameters that no case holds";
  std::printf("  %zu cases in %zu jobs\n", cases, jobs.size());
  for (const auto& [place, mine] : jobs) {
    const Path path = paths()[static_cast<size_t>(place.second)];
    const int ranks = place.first;
    JobOptions options{.ranks = ranks,
                       .environment = {{"HORO_INTERFACE", "127.0.0.1"},
                                       {"HORO_TRANSPORT", path.transport},
                                       {"HORO_ALGORITHM", path.algorithm},
                                       {"HORO_STAGING", "16MiB"},
                                       {"HORO_LOG_LEVEL", "error"}}};
    if (path.two_hosts) {
      options.per_rank = [ranks](int rank) {
        return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", rank < (ranks + 1) / 2 ? "a" : "b"}};
      };
    }
    const auto& list = mine;
    auto job = Job::start(options, [&](group::Engine& engine) { return run_cases(engine, list, path); });
    ASSERT_TRUE(job.ok()) << job.status();
    auto codes = (*job)->wait(Deadline::after_seconds(120));
    ASSERT_TRUE(codes.ok()) << codes.status() << " in a job of " << ranks << " over " << path.to_string();
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0)
          << "rank " << rank << " of " << ranks << " over " << path.to_string() << ": " << (*job)->told(rank);
    }
  }
}

/// A sum of more bytes than an int can count, in place, checked at every byte. Memory that is touched: twice the
/// operation for the two ranks, and what the library needs on top.
int sum_beyond_an_int(group::Engine& engine) {
  constexpr uint64_t kCount = (uint64_t{1} << 31) + 12'345;
  void* memory = mmap(nullptr, kCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 3;
  auto* values = static_cast<uint8_t*>(memory);
  const auto value = [](int rank, uint64_t i) {
    return static_cast<uint8_t>(i * 7 + (i >> 31) + 13u * unsigned(rank));
  };
  for (uint64_t i = 0; i < kCount; ++i) values[i] = value(engine.rank(), i);
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = DType::kU8;
  operation.count = kCount;
  auto* bytes = reinterpret_cast<std::byte*>(values);
  const Status status = engine.world().run(operation, bytes, bytes, Deadline::after_seconds(300));
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  tell(text(status.to_string(), ", resident ", use.ru_maxrss / 1024, " MiB\n"));
  if (!status.ok()) return 4;
  for (uint64_t i = 0; i < kCount; ++i) {
    if (values[i] == static_cast<uint8_t>(value(0, i) + value(1, i))) continue;
    tell(text("byte ", i, " is ", int{values[i]}, "\n"));
    return 5;
  }
  return 0;
}

TEST(Processes, SumMoreElementsThanAnIntCanCount) {
  if (!long_tests()) GTEST_SKIP() << "touches gigabytes; make test-all runs it (LONG_TESTS=1)";
  for (const char* transport : {"shm", "tcp"}) {
    JobOptions options{.ranks = 2, .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}}};
    auto job = Job::start(options, sum_beyond_an_int);
    ASSERT_TRUE(job.ok()) << job.status();
    auto codes = (*job)->wait(Deadline::after_seconds(400));
    ASSERT_TRUE(codes.ok()) << codes.status();
    for (int rank = 0; rank < 2; ++rank) {
      const std::string told = (*job)->told(rank);
      std::printf("  %s: rank %d: %s", transport, rank, told.c_str());
      EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0) << told;
    }
  }
}

}  // namespace
}  // namespace horo::test
