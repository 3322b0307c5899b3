// Metrics of real jobs: the numbers are those of the traffic, wherever they are read.
#include "horo/engine/metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "tests/runtime_job.h"

#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/net/socket.h"

namespace horo::test {
namespace {

using engine::KindMetrics;

/// Ends the rank with what was wrong.
#define EXPECT_VALUE(value, expected)                                                                             \
  do {                                                                                                            \
    const auto got = (value);                                                                                     \
    if (got != (expected)) return Status(Code::kInternal, text(#value " is ", got, " and should be " #expected)); \
  } while (false)

struct Memory {
  std::vector<float> values;
  Call call(std::string name, Kind kind = Kind::kAllreduce) { return call_of(std::move(name), kind, values); }
};

Status run(Runtime& runtime, std::vector<Call> calls, int set = 0) {
  HORO_ASSIGN(Handle handle, runtime.submit(set, std::move(calls)));
  return runtime.wait(set, handle);
}

/// One allreduce at a time, then groups, then ranks that disagree.
Status known_traffic(Runtime& runtime) {
  constexpr uint64_t kSteps = 50, kGroups = 10;
  Memory memory{std::vector<float>(100, 1)};
  for (uint64_t i = 0; i < kSteps; ++i) HORO_TRY(run(runtime, {memory.call("one")}));
  for (uint64_t i = 0; i < kGroups; ++i) HORO_TRY(run(runtime, {memory.call("a"), memory.call("b"), memory.call("c")}));
  Call odd = memory.call("odd");
  odd.tensor.reduction = runtime.rank() == 0 ? Reduction::kSum : Reduction::kMax;
  EXPECT_VALUE(code_name(run(runtime, {odd}).code()), code_name(Code::kMismatch));
  HORO_TRY(run(runtime, {memory.call("gathered", Kind::kAllgather)}));

  const engine::SetMetrics& set = *runtime.metrics().find(0);
  const KindMetrics& sums = set.of(Kind::kAllreduce);
  EXPECT_VALUE(sums.handed_in.get(), kSteps + 3 * kGroups + 1);
  EXPECT_VALUE(sums.tensors.get(), kSteps + 3 * kGroups);
  EXPECT_VALUE(sums.errors.get(), 1u);
  EXPECT_VALUE(sums.bytes.get(), (kSteps + 3 * kGroups) * 400);
  EXPECT_VALUE(sums.batches.get(), kSteps + kGroups);
  EXPECT_VALUE(sums.latency.values().count(), kSteps + kGroups);
  EXPECT_VALUE(sums.wait.values().count(), kSteps + kGroups);
  EXPECT_VALUE(sums.latency.values().sum_seconds >= sums.wait.values().sum_seconds, true);
  EXPECT_VALUE(set.of(Kind::kAllgather).bytes.get(), 400u);
  EXPECT_VALUE(set.of(Kind::kBroadcast).handed_in.get(), 0u);
  // Everything but the first time of a name is announced by number; what failed was never remembered.
  EXPECT_VALUE(set.announced_in_full.get(), 4u);
  EXPECT_VALUE(set.announced_by_number.get(), kSteps - 1 + kGroups - 1);
  const uint64_t units = kSteps + kGroups + 2;
  // Two ranks: each unit is one message up and one down, and one more may say that somebody waits.
  const engine::Counter& up = runtime.rank() == 0 ? set.messages_received : set.messages_sent;
  const engine::Counter& down = runtime.rank() == 0 ? set.messages_sent : set.messages_received;
  EXPECT_VALUE(down.get(), units);
  EXPECT_VALUE(up.get() >= units && up.get() <= 2 * units, true);
  return {};
}

TEST(Metrics, AreThoseOfTheTraffic) {
  auto job = start({}, known_traffic);
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Metrics, OfProcessSetsAreApart) {
  auto job = start({}, [](Runtime& runtime) -> Status {
    Memory memory{std::vector<float>(8, 1)};
    HORO_ASSIGN(int own, runtime.add_set({0}));
    HORO_TRY(run(runtime, {memory.call("all")}));
    if (runtime.rank() == 0) {
      for (int i = 0; i < 3; ++i) HORO_TRY(run(runtime, {memory.call("own")}, own));
      EXPECT_VALUE(runtime.metrics().find(own)->of(Kind::kAllreduce).tensors.get(), 3u);
    }
    EXPECT_VALUE(runtime.metrics().find(0)->of(Kind::kAllreduce).tensors.get(), 1u);
    return run(runtime, {memory.call("the end")});
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Metrics, OfARankThatWaitedShowThatItDid) {
  Hold hold;
  auto job = start({}, [&](Runtime& runtime) -> Status {
    hold.take_part();
    Memory memory{std::vector<float>(8, 1)};
    HORO_TRY(run(runtime, {memory.call("together")}));
    if (runtime.rank() == 1) {
      tell("waiting\n");
      hold.wait(Deadline::after_seconds(20));
    }
    HORO_TRY(run(runtime, {memory.call("late")}));
    const double waited = runtime.metrics().find(0)->of(Kind::kAllreduce).wait.values().sum_seconds;
    tell(text(waited, "\n"));
    return {};
  });
  ASSERT_TRUE(job);
  ASSERT_TRUE(job->next_line(1, Deadline::after_seconds(20)).ok());
  EXPECT_EQ(job->next_line(0, Deadline::after_seconds(0.3)).status().code(), Code::kTimeout);
  hold.let_go();
  auto early = job->next_line(0, Deadline::after_seconds(20)), late = job->next_line(1, Deadline::after_seconds(20));
  ASSERT_TRUE(early.ok() && late.ok());
  EXPECT_GT(std::stod(*early), 0.25);
  EXPECT_LT(std::stod(*late), 0.25) << "the late one waits for nobody";
  expect_zero(*job);
}

Result<std::string> fetch(const net::Address& at) {
  HORO_ASSIGN(net::Socket socket, net::Socket::connect(at, Deadline::after_seconds(10)));
  const std::string_view request = "GET /metrics HTTP/1.1\r\n\r\n";
  HORO_TRY(socket.send_all(std::as_bytes(std::span(request)), Deadline::after_seconds(10)));
  std::string heard;
  std::array<std::byte, 4096> bytes;
  while (true) {
    HORO_TRY(net::wait_ready(socket.fd(), net::Interest::kRead, Deadline::after_seconds(10), "metrics"));
    const net::IoResult got = socket.receive(bytes);
    if (got.is_moved()) heard.append(reinterpret_cast<const char*>(bytes.data()), got.bytes());
    if (got.is_end()) return heard;
    if (got.is_failed()) return got.status();
  }
}

/// A port at which nobody listens, nor at the one after it: below those that the kernel gives to connections, of which
/// one may be in use before the job opens it.
uint16_t free_port() {
  constexpr int kFirst = 10000, kPorts = 20000;
  const auto is_free = [](uint16_t port) { return net::ListenSocket::listen(net::Address::loopback(port)).ok(); };
  for (int i = 0; i < 100; ++i) {
    const auto port = static_cast<uint16_t>(kFirst + 2 * (getpid() + i) % kPorts);
    if (is_free(port) && is_free(static_cast<uint16_t>(port + 1))) return port;
  }
  return 0;
}

void expect_served(const std::string& address) {
  Hold hold;
  JobOptions options;
  const uint16_t port = free_port();
  ASSERT_GT(port, 0);
  options.environment = {{"HORO_METRICS_PORT", std::to_string(port)}};
  if (address != "127.0.0.1") options.environment["HORO_METRICS_ADDRESS"] = address;
  auto job = start(options, [&](Runtime& runtime) -> Status {
    hold.take_part();
    Memory memory{std::vector<float>(10, 1)};
    for (int i = 0; i < 7; ++i) HORO_TRY(run(runtime, {memory.call("t")}));
    tell(runtime.metrics_address() ? "served\n" : "not served\n");
    hold.wait(Deadline::after_seconds(30));
    return run(runtime, {memory.call("the end")});
  });
  ASSERT_TRUE(job);
  for (int rank : {0, 1}) {
    auto line = job->next_line(rank, Deadline::after_seconds(20));
    ASSERT_TRUE(line.ok() && *line == "served") << rank;
    auto page = fetch(*net::Address::ip(address, static_cast<uint16_t>(port + rank)));
    ASSERT_TRUE(page.ok()) << page.status();
    const std::string labels = text("{rank=\"", rank, "\",process_set=\"0\",operation=\"allreduce\"}");
    EXPECT_NE(page->find(text("horo_tensors_total", labels, " 7\n")), std::string::npos) << *page;
    EXPECT_NE(page->find(text("horo_bytes_total", labels, " 280\n")), std::string::npos) << *page;
  }
  if (address != "127.0.0.1") {
    EXPECT_FALSE(fetch(net::Address::loopback(port)).ok()) << "and nowhere else";
  }
  hold.let_go();
  expect_zero(*job);
}

TEST(Metrics, AreServedByEachRankOnItsOwnPort) { expect_served("127.0.0.1"); }

TEST(Metrics, AreServedAtTheAddressThatWasAskedFor) { expect_served("127.0.0.2"); }

TEST(Metrics, ThatCannotBeServedAreALineInTheLogAndNoHarm) {
  auto taken = net::ListenSocket::listen(net::Address::loopback());
  ASSERT_TRUE(taken.ok());
  for (const auto& environment :
       {std::map<std::string, std::string, std::less<>>{{"HORO_METRICS_PORT", std::to_string(taken->address().port())}},
        {{"HORO_METRICS_PORT", "1234"}, {"HORO_METRICS_ADDRESS", "somewhere"}}}) {
    JobOptions options;
    options.ranks = 1;
    options.environment = environment;
    auto job = Job::start_part(options, [](group::EngineOptions engine_options) {
      tell_log();
      auto runtime = Runtime::start({.engine = std::move(engine_options), .process_sets = {}});
      Memory memory{std::vector<float>(10, 1)};
      return runtime.ok() && run(**runtime, {memory.call("t")}).ok() ? 0 : 1;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_zero(**job);
    EXPECT_NE((*job)->told(0).find("HORO_METRICS_PORT"), std::string::npos);
  }
}

}  // namespace
}  // namespace horo::test
