// The memory in which an engine's process sets put tensors together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/engine/carrier.h"

namespace horo::engine {

/// Where a pool gets memory from: best what peers see (group::Engine::allocate()).
struct BufferSource {
  std::function<Result<std::span<std::byte>>(uint64_t bytes)> allocate;
  std::function<void(std::byte*)> free;
  /// Whether it still is what allocate() gave. If not, it is not lent again.
  std::function<bool(std::span<std::byte>)> shared;
};

struct BufferPoolOptions {
  uint64_t most_idle = uint64_t{256} << 20;  ///< Bytes. What would be kept beyond this is freed at once.
  Duration patience = std::chrono::seconds(1);
};

/// Lends buffers; one that comes back is kept for the next until it has not been used for `patience`. There are never
/// more buffers than were lent at the same time: one that is too small makes room for a larger one.
///
/// A buffer is given back when its operation has ended on this rank. Peers neither read nor write it any more then: an
/// operation that succeeds with a buffer in shared memory has waited until everybody is done with what lies there, and
/// one that fails takes it away from them.
///
/// Thread-safe. Nothing here waits or wakes by itself: whoever owns the pool calls trim() when it says.
class BufferPool {
 public:
  /// `timer_begins` is called, from any thread, when trim() has something to do again after it had nothing.
  BufferPool(BufferSource source, BufferPoolOptions options, std::function<void()> timer_begins);
  /// What is lent now is the source's to free.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// At least `bytes`.
  Result<std::span<std::byte>> lend(uint64_t bytes);
  void take_back(std::span<std::byte> buffer, Time now);
  /// Frees what has not been used for long. Says when to call again; never, until `timer_begins`, when nothing is kept.
  Deadline trim(Time now);

  struct Counts {
    size_t lent = 0, idle = 0;  ///< Buffers.
    uint64_t lent_bytes = 0, idle_bytes = 0;
  };
  Counts counts() const;

 private:
  struct Idle {
    std::span<std::byte> memory;
    Time since;
  };
  using Freed = std::vector<std::span<std::byte>>;
  std::span<std::byte> take_fitting(uint64_t bytes);
  Result<std::span<std::byte>> allocate(uint64_t bytes);
  Freed take_oldest(size_t count);
  void free(const Freed& memory) const;

  const BufferSource source_;
  const BufferPoolOptions options_;
  const std::function<void()> timer_begins_;
  mutable std::mutex mutex_;
  std::vector<Idle> idle_;  ///< Longest idle first.
  Counts counts_;
  bool timed_ = false;  ///< Somebody knows when to call trim().
};

/// A pool as one executor sees it: slots, given back after each batch. Used by one thread at a time.
class PooledScratch : public Scratch {
 public:
  explicit PooledScratch(BufferPool& pool) : pool_(pool) {}
  ~PooledScratch() override { give_back(); }
  Result<std::span<std::byte>> get(int slot, uint64_t bytes) override;
  void give_back();

 private:
  BufferPool& pool_;
  std::array<std::span<std::byte>, 2> slots_;
};

}  // namespace horo::engine
