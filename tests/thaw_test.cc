// A rank that is stopped in the middle of taking a result, given up by the others, and wakes up later: what it finishes
// is right or fails, and it disturbs nobody.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "tests/job.h"

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

constexpr int kRanks = 4;
constexpr int kVictim = 1;

/// Who has memory that the library allocated: nobody, the victim, all.
enum class Library : uint8_t { kNobody, kOne, kAll };

struct Case {
  const char* name;
  Kind kind;
  uint64_t count;
  Library library;
  uint64_t trap;        ///< An element that the victim writes late, when it has taken most of the rest.
  bool pushes = false;  ///< The victim is stopped when it has yet to write to the others.
};
constexpr uint64_t kLarge = 512 * 1024;  // Slices and contributions take several steps.
constexpr Case kCases[] = {
    {"Small", Kind::kAllreduce, 2000, Library::kNobody, 1500},
    // The victim pulls the slice of rank 0 last.
    {"Large", Kind::kAllreduce, kLarge, Library::kNobody, kLarge / kRanks - 1},
    {"LargeInTheLibrarysMemoryOfOne", Kind::kAllreduce, kLarge, Library::kOne, kLarge / kRanks - 1},
    {"LargeInTheLibrarysMemoryOfAll", Kind::kAllreduce, kLarge, Library::kAll, 2 * kLarge / kRanks - 1, true},
    {"Broadcast", Kind::kBroadcast, kLarge, Library::kNobody, kLarge - 1},
    {"BroadcastInTheLibrarysMemory", Kind::kBroadcast, kLarge, Library::kAll, kLarge - 1},
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

uint64_t share_of(int rank) { return uint64_t{1} << (4 * rank); }

/// Writing to one page of this process stops the process, once.
class Trap {
 public:
  static void set(std::byte* page) {
    page_ = page;
    struct sigaction action = {};
    action.sa_sigaction = [](int, siginfo_t*, void*) {
      mprotect(page_, page_size(), PROT_READ | PROT_WRITE);
      raise(SIGSTOP);
    };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    mprotect(page, page_size(), PROT_READ);
  }

 private:
  static inline std::byte* page_ = nullptr;
};

Status run(const Case& one, group::Group& group, std::span<uint64_t> values) {
  Operation operation;
  operation.kind = one.kind;
  operation.dtype = DType::kU64;
  operation.count = values.size();
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return group.run(operation, bytes, bytes);
}

bool all_are(std::span<const uint64_t> values, uint64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](uint64_t value) { return value == wanted; });
}

uint64_t result_of(const Case& one) { return one.kind == Kind::kBroadcast ? share_of(0) : 0x1111; }

/// How the victim's operation ended: "right" and "failed" are fine.
std::string outcome(const Case& one, const Status& status, std::span<const uint64_t> values) {
  if (status.ok()) return all_are(values, result_of(one)) ? "right" : "WRONG";
  const bool intact = one.kind == Kind::kBroadcast || all_are(values, share_of(kVictim));
  return intact || !status.contents_intact() ? text("failed ", status.to_string()) : "CHANGED";
}

int be_stopped(const Case& one, group::Group& group, std::span<uint64_t> values) {
  const auto at = reinterpret_cast<uintptr_t>(values.data() + one.trap);
  Trap::set(reinterpret_cast<std::byte*>(at / page_size() * page_size()));
  const Status status = run(one, group, values);
  tell(outcome(one, status, values) + "\n");
  return run(one, group, values).code() == Code::kEvicted ? 0 : 4;
}

/// Uses again what the group that is over had, as soon as it is given back.
int go_on(const Case& one, group::Engine& engine, std::shared_ptr<group::Group> group, std::span<uint64_t> values,
          Hold& hold) {
  const Status first = run(one, *group, values);
  const bool lost = first.code() == Code::kPeerLost && !first.contents_intact();
  if (one.pushes ? !lost : !first.ok() || !all_are(values, result_of(one))) return 5;
  std::fill(values.begin(), values.end(), 7);
  const std::span<uint64_t> left_alone = values;
  if (one.pushes) {  // What the victim wrote to, and will write to when it wakes up, is not used again.
    auto other = engine.allocate(values.size_bytes());
    if (!other.ok()) return 3;
    values = {reinterpret_cast<uint64_t*>(other->data()), values.size()};
    std::fill(values.begin(), values.end(), 7);
  }
  if (run(one, *group, values).code() != Code::kPeerLost) return 6;
  engine.remove_group(group);
  group.reset();
  auto next = engine.create_group({0, 2, 3}, Deadline::after_seconds(10));
  if (!next.ok()) return 7;
  const Case sum{"", Kind::kAllreduce, one.count, one.library, 0};
  for (bool told = false, ended = false; !ended; told = true) {
    std::fill(values.begin(), values.end(), share_of(engine.rank()));
    values.back() = engine.rank() == 0 && hold.wait(Deadline::after(std::chrono::milliseconds(0))) ? 1 : 0;
    if (!run(sum, **next, values).ok() || !all_are(values.first(values.size() - 1), 0x1101)) return 8;
    ended = values.back() != 0;
    if (!told) tell("goes on\n");
  }
  return !one.pushes || all_are(left_alone, 7) ? 0 : 9;
}

int take_part(const Case& one, group::Engine& engine, Hold& hold) {
  hold.take_part();
  auto group = engine.create_group({0, 1, 2, 3});
  if (!group.ok()) return 3;
  const size_t bytes = one.count * sizeof(uint64_t);
  auto allocated = engine.allocate(bytes);
  if (!allocated.ok()) return 3;
  void* memory = allocated->data();
  if (one.library == Library::kNobody || (one.library == Library::kOne && engine.rank() != kVictim)) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  }
  std::span<uint64_t> values(static_cast<uint64_t*>(memory), one.count);
  std::fill(values.begin(), values.end(), share_of(engine.rank()));
  return engine.rank() == kVictim ? be_stopped(one, **group, values) : go_on(one, engine, *group, values, hold);
}

class Thaw : public testing::TestWithParam<Case> {};

TEST_P(Thaw, ARankStoppedWhileItTakesAResultGetsARightOneOrAnErrorAndDisturbsNobody) {
  Hold hold;
  JobOptions options{.ranks = kRanks, .environment = {{"HORO_FREEZE_TIMEOUT", "1s"}, {"HORO_TRANSPORT", "shm"}}};
  auto started = Job::start(options, [&](group::Engine& engine) { return take_part(GetParam(), engine, hold); });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  for (int rank : {0, 2, 3}) {
    auto line = job.next_line(rank, Deadline::after_seconds(20));
    ASSERT_TRUE(line.ok()) << "rank " << rank << ": " << line.status();
  }
  job.signal(kVictim, SIGCONT);
  auto line = job.next_line(kVictim, Deadline::after_seconds(10));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_TRUE(*line == "right" || line->starts_with("failed evicted")) << *line;
  std::printf("  the stopped operation: %s\n", line->c_str());
  hold.let_go();
  auto codes = job.wait(Deadline::after_seconds(20));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, std::vector<int>(kRanks, 0));
}

INSTANTIATE_TEST_SUITE_P(Operations, Thaw, testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace horo::test
