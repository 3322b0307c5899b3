#include "horo/group/memory.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::group {

namespace {

// Enough for everything the machine could hold, several times over: address space is free. Not so where
// ThreadSanitizer needs it.
uint64_t segment_bytes() {
#ifdef __SANITIZE_THREAD__
  return uint64_t{1} << 30;
#endif
  auto memory = System().memory();
  const uint64_t limit = memory.ok() ? memory->limit : uint64_t{16} << 30;
  return std::clamp<uint64_t>((limit + page_size() - 1) / page_size() * page_size() * 4, uint64_t{32} << 30,
                              uint64_t{1} << 40);
}

Result<uint64_t> taken(Ranges& ranges, uint64_t bytes) {
  Result<uint64_t> at = ranges.take(bytes);
  if (at.ok()) return at;
  return Status(Code::kUnavailable, text(at.status().message(), " in shared memory; free buffers or groups"));
}

}  // namespace

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
  HORO_ASSIGN(uint64_t at, taken(areas_, bytes));
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
  HORO_ASSIGN(uint64_t at, taken(pages_, bytes));
  std::memset(region_.memory().data() + at, 0, bytes);
  return at;
}

void Memory::free_page(uint64_t offset) {
  std::lock_guard lock(mutex_);
  pages_.give_back(offset);
}

}  // namespace horo::group
