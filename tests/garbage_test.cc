// Strangers at every door of a running job: random, truncated, mutated and replayed byte strings. Nobody gets in,
// nobody crashes, the sums stay right, and turning strangers away costs little.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <random>
#include <thread>

#include "tests/job.h"
#include "tests/process.h"
#include "tests/relay.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;
using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;

constexpr int kRanks = 3;

/// Makes strings out of what real ranks said.
class Liar {
 public:
  Liar(uint64_t seed, std::vector<Bytes> heard) : random_(seed), heard_(std::move(heard)) {}

  Bytes next() {
    switch (random_() % 7) {
      case 0:
        return noise(random_() % 600);
      case 1:
        return noise(random_() % 12);
      case 2:
        return truncated();
      case 3:
        return mutated(truncated());
      case 4:
        return mutated(client_hello());
      case 5:
        return attach();
      default:
        return whole();
    }
  }

 private:
  Bytes noise(size_t bytes) {
    Bytes all(bytes);
    for (std::byte& one : all) one = static_cast<std::byte>(random_());
    return all;
  }
  /// A replay of everything that a rank said to the store.
  Bytes whole() { return heard_[random_() % heard_.size()]; }
  Bytes truncated() {
    Bytes all = whole();
    all.resize(random_() % (all.size() + 1));
    return all;
  }
  /// A first flight of TLS as it was said, whole: its length stands in bytes 3 and 4.
  Bytes client_hello() {
    Bytes all = whole();
    const size_t length = 5 + (static_cast<size_t>(all[3]) << 8 | static_cast<size_t>(all[4]));
    all.resize(std::min(all.size(), length));
    return all;
  }
  Bytes mutated(Bytes all) {
    for (uint64_t i = random_() % 4; !all.empty() && i < 4; ++i) {
      all[random_() % all.size()] ^= static_cast<std::byte>(1 << random_() % 8);
    }
    return all;
  }
  Bytes attach() {
    Bytes all = noise(4 + random_() % 200);
    for (size_t i = 0; i < 4; ++i) all[i] = static_cast<std::byte>("HATT"[i]);
    return all;
  }

  std::mt19937_64 random_;
  const std::vector<Bytes> heard_;
};

/// Throws one string and waits until the door is shut. False when nobody was there.
bool throw_at(const net::Address& door, const Bytes& string) {
  auto socket = net::Socket::connect(door, Deadline::after_seconds(10));
  if (!socket.ok()) return false;
  (void)socket->send_all(string, Deadline::after_seconds(5)).ok();
  socket->shutdown_send();
  std::array<std::byte, 4096> answer;
  const Deadline deadline = Deadline::after_seconds(10);
  while (!deadline.expired()) {
    const net::IoResult got = socket->receive(answer);
    if (got.is_moved()) continue;
    if (!got.is_would_block()) return true;
    pollfd item{socket->fd(), POLLIN, 0};
    poll(&item, 1, deadline.poll_milliseconds());
  }
  return false;
}

/// A job that reduces until it is told to stop, and all its doors.
struct Target {
  Hold hold;
  std::unique_ptr<Relay> relay;
  std::unique_ptr<Job> job;
  std::vector<net::Address> doors;
};

int reduce_and_check(group::Engine& engine, Hold& hold, bool busy) {
  hold.take_part();
  tell("ready\n");
  if (!busy && !hold.wait(Deadline::after_seconds(300))) return 3;
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = DType::kU64;
  operation.count = 1001;
  uint64_t all = 0;
  for (int rank = 0; rank < kRanks; ++rank) all |= uint64_t{1} << (4 * rank);
  while (true) {
    if (engine.epoch() != 0 || engine.members().size() != kRanks) return 6;
    std::vector<uint64_t> values(1001, uint64_t{1} << (4 * engine.rank()));
    values[1000] = engine.rank() == 0 && hold.wait(Deadline::after_seconds(0)) ? 1 : 0;
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    const Status status = engine.world().run(operation, bytes, bytes);
    if (!status.ok()) {
      tell(status.to_string());
      return 4;
    }
    for (int i = 0; i < 1000; ++i) {
      if (values[static_cast<size_t>(i)] != all) return 5;
    }
    if (values[1000] == 1) break;
    // Leaves room for the strangers: the flood, not the reductions, is what is tested.
    hold.wait(Deadline::after(milliseconds(2)));
  }
  return 0;
}

void start_target(Target& target, const char* transport, bool busy) {
  JobOptions options{
      .ranks = kRanks,
      .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}, {"HORO_LOG_LEVEL", "off"}}};
  options.store_through = [&](const net::Address& store) {
    auto relay = Relay::start(store);
    HORO_CHECK(relay.ok(), relay.status().to_string());
    target.relay = std::move(*relay);
    return target.relay->address().to_string();
  };
  auto job = Job::start(options, [&](group::Engine& engine) { return reduce_and_check(engine, target.hold, busy); });
  ASSERT_TRUE(job.ok()) << job.status();
  target.job = std::move(*job);
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(target.job->next_line(rank, Deadline::after_seconds(20)).ok());
    for (const std::string& door : listening_at(target.job->pid(rank))) {
      auto address = net::Address::parse(door);
      ASSERT_TRUE(address.ok()) << address.status();
      target.doors.push_back(*address);
    }
  }
  target.doors.push_back(target.job->store_address());
}

void expect_unharmed(Target& target) {
  target.hold.let_go();
  auto codes = target.job->wait(Deadline::after_seconds(30));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0) << "rank " << rank << ": " << target.job->told(rank);
  }
}

TEST(Garbage, AtEveryDoorOfARunningJobChangesNothing) {
  const uint64_t seed = test_seed("Garbage");
  const uint64_t each = test_count("TEST_STRINGS", 5'000, 100'000);
  for (const char* transport : {"shm", "tcp"}) {
    Target target;
    start_target(target, transport, true);
    ASSERT_EQ(target.doors.size(), transport == std::string("shm") ? 2u * kRanks + 1 : kRanks + 1u);
    const std::vector<Bytes> heard = target.relay->said();
    ASSERT_GE(heard.size(), static_cast<size_t>(kRanks));
    std::atomic<uint64_t> next{0}, nobody_there{0};
    const uint64_t most = each * target.doors.size();
    const Time began = Clock::now();
    std::vector<std::thread> throwers;
    for (uint64_t thrower = 0; thrower < 8; ++thrower) {
      throwers.emplace_back([&, thrower] {
        Liar liar(seed + thrower, heard);
        for (uint64_t i = 0; (i = next++) < most;) {
          if (!throw_at(target.doors[i % target.doors.size()], liar.next())) ++nobody_there;
        }
      });
    }
    for (std::thread& thrower : throwers) thrower.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    std::printf("  %s: %llu strings at each of %zu doors in %.1f s\n", transport, static_cast<unsigned long long>(each),
                target.doors.size(), seconds);
    EXPECT_EQ(nobody_there, 0u) << "a door stayed closed, or a stranger was kept waiting";
    expect_unharmed(target);
  }
}

/// Somebody who says nothing, somebody who says one byte after the other, and somebody who begins like a rank and goes
/// on without end, at every door at once.
TEST(Garbage, NobodyWithoutAKeyIsKeptForMoreThanTwoSeconds) {
  constexpr double kLimit = 2, kSlack = 8;  // What a machine that is busy may add.
  Target target;
  start_target(target, "shm", true);
  Bytes endless(64 << 10, std::byte{0});
  const int head[] = {22, 3, 1, 0x3F, 0xF0, 1, 0, 0x3F, 0xEC, 3, 3};
  std::transform(std::begin(head), std::end(head), endless.begin(), [](int byte) { return std::byte(byte); });
  struct Stranger {
    net::Socket socket;
    bool trickles;
    size_t said = 0;
  };
  std::vector<Stranger> strangers;
  const Time began = Clock::now();
  for (const net::Address& door : target.doors) {
    for (int kind = 0; kind < 3; ++kind) {
      auto socket = net::Socket::connect(door, Deadline::after_seconds(10));
      ASSERT_TRUE(socket.ok()) << socket.status();
      if (kind == 2) (void)socket->send(endless).is_moved();  // As much as fits.
      strangers.push_back({std::move(*socket), kind == 1});
    }
  }
  const Deadline limit(began + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kLimit + kSlack)));
  while (!strangers.empty() && !limit.expired()) {
    std::erase_if(strangers, [&](Stranger& one) {
      if (one.trickles && one.said < 11) one.said += one.socket.send(std::span(endless).subspan(one.said, 1)).bytes();
      std::array<std::byte, 64> answer;
      const net::IoResult got = one.socket.receive(answer);
      return !got.is_moved() && !got.is_would_block();
    });
    target.hold.wait(Deadline::after(milliseconds(50)));  // Nobody lets go: this is the pace.
  }
  EXPECT_EQ(strangers.size(), 0u) << "strangers are still there after " << kLimit + kSlack << " s";
  expect_unharmed(target);
}

/// CPU time that rank 0 spends on one stranger. What the kernel counts as its threads' run time does not depend on what
/// else this machine does, nor on whether the strangers keep their pace.
TEST(Garbage, TwoHundredConnectionsASecondCostARankLessThanTwoPercentOfACore) {
  constexpr double kPerSecond = 200;
  const uint64_t seed = test_seed("Garbage");
  const uint64_t connections = test_count("TEST_CONNECTIONS", 2'000, 20'000);
  Target target;
  start_target(target, "shm", false);
  Liar liar(seed, target.relay->said());
  // The doors of rank 0: tcp and Unix.
  const std::vector<net::Address> doors(target.doors.begin(), target.doors.begin() + 2);
  for (uint64_t i = 0; i < 200; ++i) EXPECT_TRUE(throw_at(doors[i % 2], liar.next()));  // Fills what fills once.
  // Noise of the machine (other tenants, a hypervisor) only adds to a cost, so the cheapest of several stretches is the
  // rank's own.
  constexpr uint64_t kStretch = 200;
  std::vector<double> stretches_us;
  Use before = use_of(target.job->pid(0));
  const Time began = Clock::now();
  for (uint64_t i = 0; i < connections; ++i) {
    EXPECT_TRUE(throw_at(doors[i % 2], liar.next()));
    const Time due = began + milliseconds(5) * (i + 1);
    target.hold.wait(Deadline(due));  // Nobody lets go: this is the pace.
    if ((i + 1) % kStretch != 0) continue;
    const Use after = use_of(target.job->pid(0));
    stretches_us.push_back((after.cpu_ms - before.cpu_ms) * 1e3 / static_cast<double>(kStretch));
    before = after;
  }
  ASSERT_FALSE(stretches_us.empty()) << "TEST_CONNECTIONS must be " << kStretch << " at least";
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  std::sort(stretches_us.begin(), stretches_us.end());
  const double each_us = stretches_us.front();
  const double share = each_us * 1e-6 * kPerSecond;
  std::printf("  %.0f us of CPU for each of %llu strangers (at most %.0f), %.0f/s: at 200/s %.2f %% of a core\n",
              each_us, static_cast<unsigned long long>(connections), stretches_us.back(),
              static_cast<double>(connections) / seconds, share * 100);
  if (!sanitized()) {
    EXPECT_LE(share, 0.02);
  }
  expect_unharmed(target);
}

}  // namespace
}  // namespace horo::test
