// What two processes can do with memory that both have mapped, and nothing else: an allreduce of f32 without
// negotiation, signatures, deadlines, failure or rollback. It spins. horo is compared with it (`--peers bare`) to see
// what safety costs; the arithmetic is horo's, so that only the protocol differs.
//
// Ordinary memory: each rank copies its input into a ring that stays in cache, step by step, and adds the peer's steps.
// Memory of `allocate`, which the peer sees: each rank adds one half and writes it on both sides, without a copy in.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "bench/peers/launch.h"
#include "cli/bench/participant.h"

#include "horo/base/pause.h"
#include "horo/kernel/reduce.h"

namespace horo::bench {

namespace {

constexpr size_t kRing = 4;
constexpr size_t kLargestStep = 256 << 10;
constexpr size_t kSmallestStep = 16 << 10;
constexpr size_t kArena = size_t{4} << 30;  // Per rank; only what is touched exists.
constexpr size_t kBlock = 16 << 10;         // Added and written to the peer while in the first cache.

/// What a rank says to the other.
struct alignas(128) Words {
  std::atomic<uint64_t> arrived{0};
  alignas(128) std::atomic<uint64_t> given{0};  ///< Steps that lie in the ring.
  alignas(128) std::atomic<uint64_t> taken{0};  ///< Steps of the peer that are added.
  alignas(128) size_t input = 0;                ///< Where in its arena; valid after arrival.
  size_t output = 0;
};

struct Shared {
  Words words[2];
  alignas(4096) std::byte ring[2][kRing][kLargestStep];
  alignas(4096) std::byte arena[2][kArena];
};

void await(const std::atomic<uint64_t>& word, uint64_t value) {
  // Only a machine with one processor gets as far as yielding.
  for (int spins = 0; word.load(std::memory_order_acquire) < value; ++spins) {
    if (spins < 100'000) cpu_pause();
    if (spins >= 100'000) sched_yield();
  }
}

class BareRank final : public Participant {
 public:
  BareRank(int rank, Shared& shared)
      : rank_(rank), shared_(shared), own_(shared.words[rank]), other_(shared.words[1 - rank]) {}

  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::string transport() const override { return "shm"; }

  Status barrier() override {
    own_.arrived.store(++meeting_, std::memory_order_release);
    await(other_.arrived, meeting_);
    return {};
  }

  Status run(const Command& command, const std::byte* input, std::byte* output) override {
    if (command.op == Op::kBarrier) return barrier();
    if (command.op != Op::kAllreduce || command.dtype != DType::kF32) {
      return Status(Code::kUnavailable, "bare is an allreduce of f32");
    }
    if (lies_in_arena(input) && lies_in_arena(output)) return without_copy(command.count, input, output);
    return staged(command.count * sizeof(float), input, output);
  }

  Result<std::byte*> allocate(size_t bytes) override {
    const size_t size = (bytes + 4095) / 4096 * 4096;
    if (used_ + size > kArena) return Status(Code::kUnavailable, "the arena of bare is full");
    std::byte* memory = shared_.arena[rank_] + used_;
    std::memset(memory, 1, bytes);
    used_ += size;
    return memory;
  }
  // release(): the arena is not used again. Sizes grow, so that all together take twice the largest.

 private:
  bool lies_in_arena(const std::byte* memory) const {
    return memory >= shared_.arena[rank_] && memory < shared_.arena[rank_] + kArena;
  }

  Status staged(size_t bytes, const std::byte* input, std::byte* output) {
    const size_t step = std::clamp(bytes / kRing / 4096 * 4096, kSmallestStep, kLargestStep);
    const uint64_t steps = (bytes + step - 1) / step;
    for (uint64_t i = 0; i <= steps; ++i) {
      if (i < steps) give(i, input + i * step, std::min(step, bytes - i * step));
      if (i > 0) take(i - 1, input, output, step * (i - 1), std::min(step, bytes - step * (i - 1)));
    }
    done_ += steps;
    return {};
  }
  void give(uint64_t i, const std::byte* from, size_t bytes) {
    if (done_ + i >= kRing) await(other_.taken, done_ + i + 1 - kRing);
    std::memcpy(shared_.ring[rank_][(done_ + i) % kRing], from, bytes);
    own_.given.store(done_ + i + 1, std::memory_order_release);
  }
  void take(uint64_t i, const std::byte* input, std::byte* output, size_t offset, size_t bytes) {
    await(other_.given, done_ + i + 1);
    // In rank order, as horo adds.
    const std::byte* in[] = {input + offset, shared_.ring[1 - rank_][(done_ + i) % kRing]};
    add_(output + offset, in[rank_], in[1 - rank_], bytes / sizeof(float));
    own_.taken.store(done_ + i + 1, std::memory_order_release);
  }

  Status without_copy(uint64_t count, const std::byte* input, std::byte* output) {
    own_.input = static_cast<size_t>(input - shared_.arena[rank_]);
    own_.output = static_cast<size_t>(output - shared_.arena[rank_]);
    HORO_TRY(barrier());
    const std::byte* in[] = {shared_.arena[0] + shared_.words[0].input, shared_.arena[1] + shared_.words[1].input};
    std::byte* peer_output = shared_.arena[1 - rank_] + other_.output;
    const size_t half = count / 2 * sizeof(float);
    const size_t end = rank_ == 0 ? half : count * sizeof(float);
    for (size_t at = rank_ == 0 ? 0 : half; at < end; at += kBlock) {
      const size_t bytes = std::min(kBlock, end - at);
      add_(output + at, in[0] + at, in[1] + at, bytes / sizeof(float));
      std::memcpy(peer_output + at, output + at, bytes);
    }
    return barrier();
  }

  const int rank_;
  Shared& shared_;
  Words& own_;
  Words& other_;
  uint64_t meeting_ = 0;
  uint64_t done_ = 0;  ///< Steps of all operations so far.
  size_t used_ = 0;
  const kernel::CombineFn add_ = kernel::combine(DType::kF32, ReduceOp::kSum);
};

int launch(const Launch& asked) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  std::string why;
  if (memory == MAP_FAILED) why = "cannot map shared memory";
  if (asked.ranks != 2 || asked.tcp) why = "bare is for 2 ranks that share memory";
  return fork_ranks(asked, [&](int rank) {
    if (!why.empty()) return refuse(rank, asked.folder, why);
    BareRank participant(rank, *static_cast<Shared*>(memory));  // Zeros are what its words begin with.
    return serve(participant, asked.folder);
  });
}

}  // namespace

}  // namespace horo::bench

int main(int argc, char** argv) {
  if (argc < 4 || std::string(argv[1]) != "launch") {
    std::fprintf(stderr, "usage: %s launch FOLDER RANKS\n", argv[0]);
    return 2;
  }
  return horo::bench::launch(horo::bench::read_launch({argv + 2, argv + argc}));
}
