#include "bench/peers/bare/bare_rank.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "horo/base/pause.h"

namespace horo::bench {

namespace {

constexpr size_t kRing = BareMemory::kRing;
constexpr size_t kLargestStep = BareMemory::kLargestStep;
constexpr size_t kSmallestStep = 16 << 10;
constexpr size_t kShortSteps = 16;   // Of what one gives and others take: the first is worth waiting for.
constexpr size_t kBlock = 16 << 10;  // Added and written to the others while in the first cache.
constexpr size_t kPage = 4096;

size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

size_t step_of(size_t bytes, size_t steps, size_t largest) {
  return std::min(std::max(bytes / steps / kPage * kPage, kSmallestStep), largest);
}

int cores() {
  cpu_set_t usable;
  return sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
}

}  // namespace

BareRank::BareRank(int rank, int size, BareMemory& memory)
    : rank_(rank),
      size_(size),
      memory_(memory),
      crowded_(size > cores()),
      near_(kernel::streams() ? kernel::Placement::kCached : kernel::Placement::kAsked) {}

void BareRank::await(const Word& word, uint64_t value) const {
  const int patience = crowded_ ? 200 : 100'000;
  for (int spins = 0; word.load(std::memory_order_acquire) < value; ++spins) {
    if (spins < patience) cpu_pause();
    if (spins >= patience) sched_yield();
  }
}

void BareRank::await_others(Word BareWords::*word, uint64_t value) const {
  for (int other = 0; other < size_; ++other) {
    if (other != rank_) await(words(other).*word, value);
  }
}

void BareRank::say(Word BareWords::*word, uint64_t value) const {
  (words(rank_).*word).store(value, std::memory_order_release);
}

void BareRank::await_room(uint64_t i) const {
  if (done_ + i >= kRing) await_others(&BareWords::taken, after(i) - kRing);
}

void BareRank::give(uint64_t i, const std::byte* from, size_t bytes) {
  await_room(i);
  kernel::copy(slot(rank_, i), from, bytes, near_);
  say(&BareWords::given, after(i));
}

// Who gave or took nothing has done all of it.
void BareRank::end(uint64_t steps) {
  done_ += steps;
  for (Word BareWords::*word : {&BareWords::given, &BareWords::reduced, &BareWords::taken}) say(word, done_);
}

Status BareRank::barrier() {
  say(&BareWords::arrived, ++meeting_);
  await_others(&BareWords::arrived, meeting_);
  return {};
}

Status BareRank::run(const Command& command, const std::byte* input, std::byte* output) {
  if (command.op == Op::kBarrier) return barrier();
  const size_t bytes = command.count * sizeof(float);
  if (command.dtype == DType::kF32 && command.op == Op::kBroadcast) return broadcast(bytes, output);
  if (command.dtype == DType::kF32 && command.op == Op::kAllgather) return allgather(bytes, input, output);
  if (command.dtype != DType::kF32 || command.op != Op::kAllreduce) {
    return Status(Code::kUnavailable, "bare is an allreduce, a broadcast and an allgather of f32");
  }
  if (lies_in_arena(input) && lies_in_arena(output)) return add_in_arena(command.count, input, output);
  return size_ == 2 ? add_pair(bytes, input, output) : add_slices(command.count, input, output);
}

Result<std::byte*> BareRank::allocate(size_t bytes) {
  const size_t size = divide_up(bytes, kPage) * kPage;
  if (used_ + size > BareMemory::kArena) return Status(Code::kUnavailable, "the arena of bare is full");
  std::byte* memory = memory_.arena[rank_] + used_;
  std::memset(memory, 1, bytes);
  used_ += size;
  return memory;
}

bool BareRank::lies_in_arena(const std::byte* memory) const {
  return memory >= memory_.arena[rank_] && memory < memory_.arena[rank_] + BareMemory::kArena;
}

Status BareRank::add_pair(size_t bytes, const std::byte* input, std::byte* output) {
  const int other = 1 - rank_;
  const size_t step = step_of(bytes, kRing, kLargestStep);
  const uint64_t steps = divide_up(bytes, step);
  for (uint64_t i = 0; i <= steps; ++i) {
    if (i < steps) give(i, input + i * step, std::min(step, bytes - i * step));
    if (i == 0) continue;
    const size_t offset = (i - 1) * step;
    await(words(other).given, after(i - 1));
    std::array<const std::byte*, 2> in;
    in[static_cast<size_t>(rank_)] = input + offset;
    in[static_cast<size_t>(other)] = slot(other, i - 1);
    add_(output + offset, in, std::min(step, bytes - offset) / sizeof(float), {});
    say(&BareWords::taken, after(i - 1));
  }
  end(steps);
  return {};
}

// A slot of the ring has a piece for each rank, which adds them; that of the own rank takes the sum.
Status BareRank::add_slices(uint64_t count, const std::byte* input, std::byte* output) {
  const auto ranks = static_cast<size_t>(size_);
  const size_t slice = divide_up(divide_up(count * sizeof(float), ranks), 64) * 64;
  const size_t step = std::max<size_t>(step_of(slice, kRing, kLargestStep / ranks) / 64 * 64, 64);
  const uint64_t steps = divide_up(slice, step);
  const auto part = [&](int rank, uint64_t i) {
    const size_t end = std::min(count * sizeof(float), slice * (static_cast<size_t>(rank) + 1));
    const size_t begin = std::min(end, slice * static_cast<size_t>(rank) + step * i);
    return Part{begin, std::min(step, end - begin)};
  };
  const auto piece = [&](int whose, uint64_t i, int of) { return slot(whose, i) + static_cast<size_t>(of) * step; };
  const auto give = [&](uint64_t i) {
    await_room(i);
    for (int other = 0; other < size_; ++other) {
      const Part its = part(other, i);
      if (other != rank_) kernel::copy(piece(rank_, i, other), input + its.offset, its.bytes, near_);
    }
    say(&BareWords::given, after(i));
  };
  const auto add = [&](uint64_t i) {
    await_others(&BareWords::given, after(i));
    std::vector<const std::byte*> in;
    const Part mine = part(rank_, i);
    for (int rank = 0; rank < size_; ++rank) {
      in.push_back(rank == rank_ ? input + mine.offset : piece(rank, i, rank_));
    }
    add_(piece(rank_, i, rank_), in, mine.bytes / sizeof(float), {});
    say(&BareWords::reduced, after(i));
  };
  const auto take = [&](uint64_t i) {
    for (int k = 1; k <= size_; ++k) {
      const int rank = (rank_ + k) % size_;
      const Part its = part(rank, i);
      await(words(rank).reduced, after(i));
      kernel::copy_piece(output + its.offset, piece(rank, i, rank), its.bytes, count * sizeof(float));
    }
    say(&BareWords::taken, after(i));
  };
  for (uint64_t i = 0; i < steps + 2; ++i) {
    if (i < steps) give(i);
    if (i >= 1 && i - 1 < steps) add(i - 1);
    if (i >= 2) take(i - 2);
  }
  end(steps);
  return {};
}

Status BareRank::broadcast(size_t bytes, std::byte* buffer) {
  const size_t step = step_of(bytes, kShortSteps, kLargestStep);
  const uint64_t steps = divide_up(bytes, step);
  for (uint64_t i = 0; i < steps; ++i) {
    const size_t now = std::min(step, bytes - i * step);
    if (rank_ == 0) {
      give(i, buffer + i * step, now);
    } else {
      await(words(0).given, after(i));
      kernel::copy_piece(buffer + i * step, slot(0, i), now, bytes);
      say(&BareWords::taken, after(i));
    }
  }
  end(steps);
  return {};
}

Status BareRank::allgather(size_t bytes, const std::byte* input, std::byte* output) {
  const size_t block = bytes / static_cast<size_t>(size_);
  const size_t step = step_of(block, kRing, kLargestStep);
  const uint64_t steps = divide_up(block, step);
  for (uint64_t i = 0; i <= steps; ++i) {
    if (i < steps) give(i, input + i * step, std::min(step, block - i * step));
    if (i == 0) continue;
    const size_t offset = (i - 1) * step;
    for (int k = 1; k <= size_; ++k) {
      const int rank = (rank_ + k) % size_;
      await(words(rank).given, after(i - 1));
      const std::byte* from = rank == rank_ ? input + offset : slot(rank, i - 1);
      std::byte* to = output + static_cast<size_t>(rank) * block + offset;
      if (to != from) kernel::copy_piece(to, from, std::min(step, block - offset), bytes);
    }
    say(&BareWords::taken, after(i - 1));
  }
  end(steps);
  return {};
}

Status BareRank::add_in_arena(uint64_t count, const std::byte* input, std::byte* output) {
  words(rank_).input = static_cast<size_t>(input - memory_.arena[rank_]);
  words(rank_).output = static_cast<size_t>(output - memory_.arena[rank_]);
  HORO_TRY(barrier());
  const auto boundary = [&](int rank) {
    return count * static_cast<uint64_t>(rank) / static_cast<uint64_t>(size_) * sizeof(float);
  };
  std::vector<const std::byte*> in(static_cast<size_t>(size_));
  for (size_t at = boundary(rank_), end = boundary(rank_ + 1); at < end; at += kBlock) {
    const size_t bytes = std::min(kBlock, end - at);
    for (int rank = 0; rank < size_; ++rank) {
      in[static_cast<size_t>(rank)] = memory_.arena[rank] + words(rank).input + at;
    }
    add_(output + at, in, bytes / sizeof(float), {});
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) std::memcpy(memory_.arena[rank] + words(rank).output + at, output + at, bytes);
    }
  }
  return barrier();
}

}  // namespace horo::bench
