// Named tensors of every kind and element type by real processes, with results that are known exactly.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "tests/exact_call.h"
#include "tests/runtime_job.h"
#include "tests/workload.h"

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::test {
namespace {

constexpr collective::Kind kOfGroups[] = {collective::Kind::kAllreduce, collective::Kind::kAllgather,
                                          collective::Kind::kBroadcast, collective::Kind::kAlltoall,
                                          collective::Kind::kReduceScatter};
constexpr Kind kNamed[] = {Kind::kAllreduce, Kind::kAllgather, Kind::kBroadcast, Kind::kAlltoall, Kind::kReduceScatter};

Kind named(collective::Kind kind) { return kNamed[std::find(kOfGroups, kOfGroups + 5, kind) - kOfGroups]; }

/// Every operation on every element type that it is possible for.
std::vector<ExactCase> every_case(uint64_t count) {
  std::vector<ExactCase> cases;
  for (collective::Kind kind : kOfGroups) {
    for (int dtype = 0; is_valid(static_cast<DType>(dtype)); ++dtype) {
      ExactCase one{.kind = kind, .dtype = static_cast<DType>(dtype), .count = count, .salt = cases.size()};
      // Here the rows that do not divide evenly go to the first members, and not to whom the caller says.
      one.uneven = kind != collective::Kind::kReduceScatter;
      if (kind != collective::Kind::kAllreduce && kind != collective::Kind::kReduceScatter) {
        one.root = dtype;
        cases.push_back(one);
        continue;
      }
      for (int op = 0; op <= static_cast<int>(ReduceOp::kXor); ++op) {
        one.op = static_cast<ReduceOp>(op);
        one.in_place = kind == collective::Kind::kAllreduce && op % 2 == 0;
        const bool scattered = kind == collective::Kind::kReduceScatter && one.op > ReduceOp::kAverage;
        if (!scattered && is_possible(kind, one.dtype, one.op)) cases.push_back(one);
      }
    }
  }
  return cases;
}

Call call_of(const ExactCase& of, ExactCall& exact, std::string name, int member) {
  const collective::Operation& operation = exact.operation();
  Call call;
  call.tensor.name = std::move(name);
  call.tensor.kind = named(of.kind);
  call.tensor.dtype = of.dtype;
  call.tensor.reduction = static_cast<Reduction>(of.op);
  call.tensor.root = of.kind == collective::Kind::kBroadcast ? operation.root : 0;
  uint64_t rows =
      of.kind == collective::Kind::kAllgather ? operation.counts[static_cast<size_t>(member)] : operation.total();
  if (of.kind == collective::Kind::kAlltoall) call.splits = operation.counts;
  call.tensor.shape = {static_cast<int64_t>(rows)};
  call.input = exact.in();
  call.output = exact.out();
  return call;
}

/// Hands all cases in, in an order of this rank's own, and checks what comes out.
int run_cases(Runtime& runtime, const std::vector<ExactCase>& cases, std::mt19937_64& random) {
  std::vector<size_t> order(cases.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::unique_ptr<ExactCall>> calls(cases.size());
  std::vector<Handle> handles;
  for (size_t i : order) {
    calls[i] = std::make_unique<ExactCall>(cases[i], runtime.size(), runtime.rank());
    auto handle = runtime.submit(0, {call_of(cases[i], *calls[i], text("case ", i), runtime.rank())});
    REQUIRE_OK(handle.status());
    handles.push_back(*handle);
  }
  for (const Handle& handle : handles) REQUIRE_OK(runtime.wait(0, handle));
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string wrong = calls[i]->wrong();
    if (wrong.empty()) continue;
    std::fprintf(stderr, "rank %d: %s: %s\n", runtime.rank(), cases[i].to_string().c_str(), wrong.c_str());
    return 1;
  }
  return 0;
}

int every_operation_on_every_type(Runtime& runtime) {
  std::mt19937_64 random(static_cast<uint64_t>(runtime.rank()));
  for (uint64_t count : {1, 33}) {
    if (const int code = run_cases(runtime, every_case(count), random); code != 0) return code;
  }
  return leave_together(runtime);
}

TEST(Operations, EveryOneOnEveryElementType) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(text(ranks, " ranks"));
    auto job = start({.ranks = ranks}, every_operation_on_every_type);
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

TEST(Operations, EveryOneOnEveryElementTypeOverSocketsAndBetweenHosts) {
  auto tcp = start({.ranks = 3, .environment = {{"HORO_TRANSPORT", "tcp"}}}, every_operation_on_every_type);
  ASSERT_TRUE(tcp);
  expect_zero(*tcp);
  tcp.reset();  // And its threads, before the next ranks are forked.
  JobOptions hosts{.ranks = 4};
  hosts.per_rank = [](int rank) {
    return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", text("host", rank / 2)}};
  };
  auto mixed = start(hosts, every_operation_on_every_type);
  ASSERT_TRUE(mixed);
  expect_zero(*mixed);
}

TEST(Operations, AHundredThousandOfAllKindsComeOutRight) {
  const uint64_t operations = test_count("TEST_OPERATIONS", 100'000, 1'000'000);
  const uint64_t seed = test_seed("operations");
  const Time begin = Clock::now();
  auto job = start({.ranks = 2}, [=](Runtime& runtime) {
    const std::vector<ExactCase> all = every_case(5);
    std::mt19937_64 shared(seed), mine(seed + 1 + static_cast<uint64_t>(runtime.rank()));
    for (uint64_t done = 0; done < operations;) {
      std::vector<ExactCase> some;
      while (some.size() < 100) some.push_back(all[shared() % all.size()]);
      for (ExactCase& one : some) one.salt = shared();
      if (const int code = run_cases(runtime, some, mine); code != 0) return code;
      done += some.size();
    }
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job, 300);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("  %llu operations in %.1f s\n", static_cast<unsigned long long>(operations), seconds);
}

TEST(Operations, AJoinedRankGivesTheIdentityOfEveryElementType) {
  for (const char* transport : {"shm", "tcp"}) {
    auto job = start({.ranks = 3, .environment = {{"HORO_TRANSPORT", transport}}}, [](Runtime& runtime) {
      std::vector<ExactCase> cases;
      for (const ExactCase& one : every_case(9)) {
        // The others' average divides by all ranks: known exactly elsewhere.
        if (one.kind == collective::Kind::kAllreduce && one.op != ReduceOp::kAverage) cases.push_back(one);
      }
      // As if the last rank did not exist.
      for (size_t i = 0; runtime.rank() < 2 && i < cases.size(); ++i) {
        ExactCall exact(cases[i], 2, runtime.rank());
        auto handle = runtime.submit(0, {call_of(cases[i], exact, text("case ", i), runtime.rank())});
        REQUIRE_OK(handle.status());
        REQUIRE_OK(runtime.wait(0, *handle));
        if (!exact.wrong().empty()) std::fprintf(stderr, "%s: ", cases[i].to_string().c_str());
        REQUIRE(exact.wrong().empty());
      }
      auto joined = runtime.join();
      REQUIRE_OK(joined.status());
      REQUIRE_OK(runtime.wait(0, *joined));
      REQUIRE((*joined)->answer() != 2);
      return leave_together(runtime);
    });
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

TEST(Operations, MoreElementsThanAnIntCanCount) {
  constexpr uint64_t kCount = (uint64_t{1} << 31) + 17;
  if (!long_tests()) GTEST_SKIP() << "touches gigabytes; make test-all runs it (LONG_TESTS=1)";
  const auto memory = System().memory();
  if (!memory.ok() || memory->available() < 6 * kCount) GTEST_SKIP() << "needs 12 GiB of memory";
  auto job = start({.ranks = 2}, [](Runtime& runtime) {
    for (DType dtype : {DType::kI8, DType::kBool}) {
      void* at = mmap(nullptr, kCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      REQUIRE(at != MAP_FAILED);
      auto* values = static_cast<int8_t*>(at);
      const auto given = [&](int rank, uint64_t i) {
        return static_cast<int8_t>(dtype == DType::kBool ? (i >> rank) & 1 : (i * 7 + (i >> 31)) % 50);
      };
      for (uint64_t i = 0; i < kCount; ++i) values[i] = given(runtime.rank(), i);
      Call call;
      call.tensor = {.name = text("large ", name(dtype)), .kind = Kind::kAllreduce, .dtype = dtype, .shape = {kCount}};
      call.output = reinterpret_cast<std::byte*>(values);
      call.input = call.output;
      auto handle = runtime.submit(0, {call});
      REQUIRE_OK(handle.status());
      REQUIRE_OK(runtime.wait(0, *handle));
      for (uint64_t i = 0; i < kCount; ++i) {
        const int sum = given(0, i) + given(1, i);
        REQUIRE(values[i] == (dtype == DType::kBool ? sum > 0 : sum));
      }
      munmap(at, kCount);
    }
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job, 400);
}

}  // namespace
}  // namespace horo::test
