// One job after the other for as long as TEST_SOAK_SECONDS says: ranks are killed and the survivors reform, then those
// that are left begin anew again and again. Sums are right, and descriptors, memory, mappings, files and processes do
// not become more.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <random>
#include <set>

#include "tests/lanes.h"
#include "tests/process.h"
#include "tests/runtime_job.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

constexpr int kRanks = 5;
constexpr int kLeft = 2;
constexpr auto kHangLimit = std::chrono::seconds(10);

uint64_t share_of(int seat) { return uint64_t{1} << (4 * seat); }

Status sum(Runtime& runtime, int seat, size_t count) {
  std::vector<uint64_t> values(count, share_of(seat));
  Call call;
  call.tensor.name = "sum";
  call.tensor.kind = Kind::kAllreduce;
  call.tensor.dtype = DType::kU64;
  call.tensor.shape = {static_cast<int64_t>(count)};
  call.input = call.output = bytes_of(values);
  HORO_ASSIGN(Handle handle, runtime.submit(0, {call}));
  HORO_TRY(runtime.wait(0, handle, Deadline::after(kHangLimit)));
  for (uint64_t value : values) {
    const bool right = (value & ~uint64_t{0x11111}) == 0 && std::popcount(value) == runtime.size();
    if (!right || value != values[0]) return {Code::kInternal, text("a sum of ", std::hex, value)};
  }
  return {};
}

/// What is in use, the least over several turns: a thread that ends just now still holds something.
struct InUse {
  size_t heap = SIZE_MAX, maps = SIZE_MAX, descriptors = SIZE_MAX;
  void note() {
    heap = std::min(heap, heap_bytes());
    maps = std::min(maps, mappings());
    descriptors = std::min(descriptors, open_descriptors());
  }
  std::string to_string() const { return text(heap, " bytes, ", maps, " mappings, ", descriptors, " descriptors"); }
};

Status begin_anew(Runtime& runtime, int seat, int turns, InUse& least) {
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t count : {size_t{10}, size_t{5000}}) HORO_TRY(sum(runtime, seat, count));
    HORO_TRY(runtime.reform(Deadline::after(kHangLimit)));
    if (runtime.size() != kLeft) return {Code::kInternal, text("a job of ", runtime.size())};
    HORO_TRY(sum(runtime, seat, 10));
    least.note();
  }
  return {};
}

Status live_long(Runtime& runtime, int turns) {
  const int seat = runtime.rank();
  tell("ready\n");
  while (runtime.size() > kLeft) {
    const Status status = sum(runtime, seat, 3000);
    if (status.ok()) continue;
    if (status.code() != Code::kPeerLost) return status;
    HORO_TRY(runtime.reform(Deadline::after(kHangLimit)));
  }
  HORO_TRY(sum(runtime, seat, 10));
  InUse warm, before, after;
  HORO_TRY(begin_anew(runtime, seat, turns / 4, warm));
  HORO_TRY(begin_anew(runtime, seat, turns / 4, before));
  HORO_TRY(begin_anew(runtime, seat, turns / 2, after));
  // Tables with a limit of their own fill up, and grow in steps; what a turn leaves behind adds up beyond that.
  const size_t spare = (16 << 10) + size_t{16} * static_cast<size_t>(turns);
  const bool grown = after.heap > before.heap + spare || after.descriptors > before.descriptors ||
                     (!sanitized() && after.maps > before.maps);
  if (grown) return {Code::kInternal, text("in use before: ", before.to_string(), "; after: ", after.to_string())};
  tell(text("heap ", static_cast<int64_t>(after.heap) - static_cast<int64_t>(before.heap), "\n"));
  return sum(runtime, seat, 1);
}

std::set<std::string> shared_files() {
  std::set<std::string> names;
  DIR* folder = opendir("/dev/shm");
  while (dirent* entry = folder == nullptr ? nullptr : readdir(folder)) {
    if (std::string_view(entry->d_name).find("horo") != std::string_view::npos) names.insert(entry->d_name);
  }
  if (folder != nullptr) closedir(folder);
  return names;
}

void run_job(uint64_t seed, int turns) {
  std::mt19937_64 random(seed);
  JobOptions options{.ranks = kRanks, .environment = {{"HORO_LOG_LEVEL", "error"}}};
  const size_t transport = random() % 3;
  options.environment["HORO_INTERFACE"] = "127.0.0.1";
  if (transport == 1) options.environment["HORO_TRANSPORT"] = "tcp";
  if (transport == 2) {
    options.per_rank = [](int rank) {
      return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", text("host", rank % 2)}};
    };
  }
  SCOPED_TRACE(text("TEST_SEED=", seed, " TEST_SOAK_SECONDS=0"));
  const StatusBody body = [&](Runtime& runtime) { return live_long(runtime, turns); };
  auto job = start(options, body);
  ASSERT_TRUE(job);
  std::vector<int> seats(kRanks);
  for (int seat = 0; seat < kRanks; ++seat) {
    seats[static_cast<size_t>(seat)] = seat;
    ASSERT_TRUE(job->next_line(seat, Deadline::after(kHangLimit)).ok());
  }
  std::shuffle(seats.begin(), seats.end(), random);
  for (int i = 0; i < kRanks - kLeft; ++i) {
    const int seat = seats[static_cast<size_t>(i)];
    (void)job->next_line(seat, Deadline::after(std::chrono::microseconds(random() % 20'000))).ok();
    job->signal(seat, SIGKILL);
  }
  auto codes = job->wait(Deadline::after(kHangLimit + std::chrono::milliseconds(200) * turns));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (int i = 0; i < kRanks; ++i) {
    const int seat = seats[static_cast<size_t>(i)];
    const int code = (*codes)[static_cast<size_t>(seat)];
    ASSERT_EQ(code, i < kRanks - kLeft ? -SIGKILL : 0) << "rank " << seat << ": " << job->told(seat);
  }
}

TEST(Soak, JobsThatLoseRanksAndBeginAnewForLongLeaveNothingBehind) {
  const uint64_t seed = test_seed("Soak");
  const Deadline end = Deadline::after(std::chrono::seconds(test_count("TEST_SOAK_SECONDS", 1, 20)));
  const int turns = static_cast<int>(test_count("TEST_SOAK_TURNS", 200, 200));
  const auto files = shared_files();
  size_t descriptors = 0;
  uint64_t jobs = 0;
  do {
    run_job(seed + jobs, turns);
    if (HasFatalFailure()) return;
    EXPECT_EQ(reap_orphans(), "");
    if (++jobs == 1) descriptors = open_descriptors();
    ASSERT_EQ(open_descriptors(), descriptors) << "after job " << jobs;
  } while (!end.expired());
  EXPECT_EQ(shared_files(), files);
  std::printf("  %llu jobs, %llu kills, %llu times begun anew\n", static_cast<unsigned long long>(jobs),
              static_cast<unsigned long long>(jobs * (kRanks - kLeft)),
              static_cast<unsigned long long>(jobs) * static_cast<unsigned long long>(turns));
}

}  // namespace
}  // namespace horo::test
