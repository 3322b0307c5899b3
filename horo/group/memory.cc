#include "horo/group/memory.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::group {

namespace {

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (std::max<uint64_t>(bytes, 1) + unit - 1) / unit * unit; }

// Enough for everything the machine could hold, several times over: address space is free.
uint64_t segment_bytes() {
  auto memory = System().memory();
  const uint64_t limit = memory.ok() ? memory->limit : uint64_t{16} << 30;
  return std::clamp<uint64_t>(round_up(limit, page_size()) * 4, uint64_t{32} << 30, uint64_t{1} << 40);
}

}  // namespace

Result<uint64_t> Ranges::take(uint64_t bytes) {
  bytes = round_up(std::min(bytes, end_ - begin_ + 1), unit_);  // Too much must not wrap around to little.
  uint64_t at = begin_;
  for (const auto& [begin, size] : taken_) {
    if (begin - at >= bytes) break;
    at = begin + size;
  }
  if (end_ - at < bytes) {
    return Status(Code::kUnavailable,
                  text("no room for ", bytes_text(bytes), " in shared memory; free buffers or groups"));
  }
  taken_[at] = bytes;
  return at;
}

uint64_t Ranges::bytes_at(uint64_t begin) const {
  auto found = taken_.find(begin);
  return found == taken_.end() ? 0 : found->second;
}

Memory::Memory(transport::shm::Segment segment, transport::shm::Segment region)
    : segment_(std::move(segment)),
      region_(std::move(region)),
      areas_(0, segment_.memory().size(), page_size()),
      pages_(kFirstPage, kRegionBytes, kFirstPage) {}

Result<std::unique_ptr<Memory>> Memory::create(int rank) {
  HORO_ASSIGN(auto segment, transport::shm::Segment::create_private(text("horo-rank-", rank), segment_bytes()));
  HORO_ASSIGN(auto region, transport::shm::Segment::create_shared(text("horo-control-", rank), kRegionBytes));
  std::unique_ptr<Memory> memory(new Memory(std::move(segment), std::move(region)));
  auto* header = new (memory->region_.memory().data()) RegionHeader;
  if (getrandom(header->nonce, sizeof header->nonce, 0) != static_cast<ssize_t>(sizeof header->nonce)) {
    return Status(Code::kUnavailable, "the system has no random numbers");
  }
  return memory;
}

Result<std::span<std::byte>> Memory::take_area(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  HORO_ASSIGN(uint64_t at, areas_.take(bytes));
  return segment_.memory().subspan(at, bytes);
}

Result<std::span<std::byte>> Memory::allocate(uint64_t bytes) {
  HORO_ASSIGN(auto area, take_area(bytes));
  Status real = segment_.populate(offset(area.data()), area.size());
  if (real.ok()) {
    // The caller's data: a forked worker may look at it.
    segment_.set_inherited(offset(area.data()), area.size(), true);
    return area;
  }
  free(area.data());
  return real;
}

void Memory::free(std::byte* memory) {
  const uint64_t at = offset(memory);
  std::unique_lock lock(mutex_);
  const uint64_t bytes = areas_.bytes_at(at);
  lock.unlock();  // Large ranges take a while, and nobody else gets this one before it is given back.
  segment_.set_inherited(at, bytes, false);
  segment_.release(at, bytes);
  lock.lock();
  areas_.give_back(at);
}

Status Memory::commit(std::span<std::byte> area, uint64_t bytes, uint64_t already) const {
  if (bytes <= already) return {};
  return segment_.populate(offset(area.data()) + already, std::min<uint64_t>(bytes, area.size()) - already);
}

Result<uint64_t> Memory::take_page(int members) {
  std::lock_guard lock(mutex_);
  const size_t bytes = transport::ControlPage::bytes(members);
  HORO_ASSIGN(uint64_t at, pages_.take(bytes));
  std::memset(region_.memory().data() + at, 0, bytes);
  return at;
}

void Memory::free_page(uint64_t offset) {
  std::lock_guard lock(mutex_);
  pages_.give_back(offset);
}

}  // namespace horo::group
