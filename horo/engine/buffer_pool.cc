#include "horo/engine/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace horo::engine {

namespace {

constexpr uint64_t kLeast = 1 << 20;

/// Four sizes between a power of two and the next: sizes that differ a little share buffers, and little is wasted.
uint64_t size_class(uint64_t bytes) {
  if (bytes <= kLeast) return kLeast;
  const uint64_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

BufferPool::BufferPool(BufferSource source, BufferPoolOptions options, std::function<void()> timer_begins)
    : source_(std::move(source)), options_(options), timer_begins_(std::move(timer_begins)) {}

BufferPool::~BufferPool() { free(take_oldest(idle_.size())); }

// The smallest that is large enough, so that larger ones that nobody needs any more grow old.
std::span<std::byte> BufferPool::take_fitting(uint64_t bytes) {
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->memory.size() >= bytes && (best == idle_.end() || it->memory.size() <= best->memory.size())) best = it;
  }
  if (best == idle_.end()) return {};
  const std::span<std::byte> memory = best->memory;
  idle_.erase(best);
  --counts_.idle;
  counts_.idle_bytes -= memory.size();
  return memory;
}

BufferPool::Freed BufferPool::take_oldest(size_t count) {
  Freed freed;
  for (size_t i = 0; i < count; ++i) {
    freed.push_back(idle_[i].memory);
    counts_.idle_bytes -= idle_[i].memory.size();
  }
  idle_.erase(idle_.begin(), idle_.begin() + static_cast<long>(count));
  counts_.idle -= count;
  return freed;
}

void BufferPool::free(const Freed& memory) const {
  for (std::span<std::byte> one : memory) source_.free(one.data());
}

Result<std::span<std::byte>> BufferPool::lend(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  std::span<std::byte> memory = take_fitting(bytes);
  Freed small;
  // What is idle is too small: one of them goes, and the number of buffers does not grow with the sizes.
  if (memory.empty() && !idle_.empty()) small = take_oldest(1);
  lock.unlock();
  free(small);
  if (memory.empty()) {
    HORO_ASSIGN(memory, allocate(size_class(bytes)));
  }
  lock.lock();
  ++counts_.lent;
  counts_.lent_bytes += memory.size();
  return memory;
}

Result<std::span<std::byte>> BufferPool::allocate(uint64_t bytes) {
  Result<std::span<std::byte>> memory = source_.allocate(bytes);
  if (memory.ok()) return memory;
  std::unique_lock lock(mutex_);
  const Freed rest = take_oldest(idle_.size());
  lock.unlock();
  if (rest.empty()) return memory;
  free(rest);
  return source_.allocate(bytes);
}

void BufferPool::take_back(std::span<std::byte> buffer, Time now) {
  const bool shared = source_.shared(buffer);  // The source has locks of its own.
  std::unique_lock lock(mutex_);
  --counts_.lent;
  counts_.lent_bytes -= buffer.size();
  if (!shared) {
    lock.unlock();
    return source_.free(buffer.data());
  }
  ++counts_.idle;
  counts_.idle_bytes += buffer.size();
  idle_.push_back({buffer, now});
  size_t surplus = 0;
  for (uint64_t kept = counts_.idle_bytes; kept > options_.most_idle; ++surplus) kept -= idle_[surplus].memory.size();
  const Freed freed = take_oldest(surplus);
  const bool begins = !timed_ && !idle_.empty();
  timed_ |= begins;
  lock.unlock();
  free(freed);
  if (begins) timer_begins_();
}

Deadline BufferPool::trim(Time now) {
  std::unique_lock lock(mutex_);
  const auto fresh =
      std::find_if(idle_.begin(), idle_.end(), [&](const Idle& one) { return now < one.since + options_.patience; });
  const Freed old = take_oldest(static_cast<size_t>(fresh - idle_.begin()));
  timed_ = !idle_.empty();
  const Deadline next = timed_ ? Deadline(idle_.front().since + options_.patience) : Deadline::never();
  lock.unlock();
  free(old);
  return next;
}

BufferPool::Counts BufferPool::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

Result<std::span<std::byte>> PooledScratch::get(int slot, uint64_t bytes) {
  std::span<std::byte>& memory = slots_[static_cast<size_t>(slot)];
  if (memory.size() >= bytes && !memory.empty()) return memory;
  if (!memory.empty()) pool_.take_back(std::exchange(memory, {}), Clock::now());
  HORO_ASSIGN(memory, pool_.lend(bytes));
  return memory;
}

void PooledScratch::give_back() {
  for (std::span<std::byte>& memory : slots_) {
    if (!memory.empty()) pool_.take_back(std::exchange(memory, {}), Clock::now());
  }
}

}  // namespace horo::engine
