// One rank of the prototype that horo is compared with.
#pragma once

#include <atomic>
#include <vector>

#include "cli/bench/participant.h"

#include "horo/kernel/reduce.h"

namespace horo::bench {

/// What a rank says to the others.
struct alignas(128) BareWords {
  std::atomic<uint64_t> arrived{0};
  alignas(128) std::atomic<uint64_t> given{0};    ///< Steps that lie in its ring.
  alignas(128) std::atomic<uint64_t> reduced{0};  ///< Steps of its slice that are added.
  alignas(128) std::atomic<uint64_t> taken{0};    ///< Steps of the others that it needs no more.
  alignas(128) size_t input = 0;                  ///< Where in its arena; valid after arrival.
  size_t output = 0;
};

/// What all ranks have mapped. Zeros are what it begins with.
struct BareMemory {
  static constexpr int kRanks = 16;
  static constexpr size_t kRing = 4;  ///< Steps.
  static constexpr size_t kLargestStep = 256 << 10;
  static constexpr size_t kArena = size_t{4} << 30;  ///< Per rank; only what is touched exists.

  BareWords words[kRanks];
  alignas(4096) std::byte ring[kRanks][kRing][kLargestStep];
  alignas(4096) std::byte arena[kRanks][kArena];
};

/// Collectives of f32 among processes that all have mapped the same memory, and nothing else: without negotiation,
/// signatures, deadlines, failure or rollback. It spins, or gives way where ranks share cores. The arithmetic and the
/// copying are horo's, so that only the protocol differs.
///
/// Ordinary memory: what others need is copied into a ring that stays in cache, step by step. Of an allreduce two ranks
/// add everything; of more everybody adds its slice and takes the others' sums.
/// Memory of `allocate`, which the others see: each rank adds its slice and writes it to all, without a copy in.
class BareRank final : public Participant {
 public:
  BareRank(int rank, int size, BareMemory& memory);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override { return "shm"; }
  Status barrier() override;
  Status run(const Command& command, const std::byte* input, std::byte* output) override;
  Result<std::byte*> allocate(size_t bytes) override;
  // release(): the arena is not used again. Sizes grow, so that all together take twice the largest.

 private:
  using Word = std::atomic<uint64_t>;
  /// Where a step lies in what is cut into steps.
  struct Part {
    size_t offset, bytes;
  };

  Status add_pair(size_t bytes, const std::byte* input, std::byte* output);
  Status add_slices(uint64_t count, const std::byte* input, std::byte* output);
  Status broadcast(size_t bytes, std::byte* buffer);
  Status allgather(size_t bytes, const std::byte* input, std::byte* output);
  Status add_in_arena(uint64_t count, const std::byte* input, std::byte* output);

  bool lies_in_arena(const std::byte* memory) const;
  BareWords& words(int rank) const { return memory_.words[rank]; }
  void await(const Word& word, uint64_t value) const;
  void await_others(Word BareWords::*word, uint64_t value) const;
  void say(Word BareWords::*word, uint64_t value) const;
  /// Step i of this operation, as the words count.
  uint64_t after(uint64_t i) const { return done_ + i + 1; }
  std::byte* slot(int rank, uint64_t i) const { return memory_.ring[rank][(done_ + i) % BareMemory::kRing]; }
  /// Waits until step i of the own ring may be written.
  void await_room(uint64_t i) const;
  /// Step i of the own ring is `from`.
  void give(uint64_t i, const std::byte* from, size_t bytes);
  void end(uint64_t steps);

  const int rank_, size_;
  BareMemory& memory_;
  const bool crowded_;  ///< More ranks than cores.
  uint64_t meeting_ = 0;
  uint64_t done_ = 0;  ///< Steps of all operations so far.
  size_t used_ = 0;
  const kernel::Placement near_;
  const kernel::CombineManyFn add_ = kernel::combine_many(DType::kF32, ReduceOp::kSum);
};

}  // namespace horo::bench
