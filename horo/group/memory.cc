#include "horo/group/memory.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::group {

namespace {

// Of the segment and of the buffers, each enough for everything the machine could hold: address space is free. Not so
// where ThreadSanitizer needs it.
uint64_t segment_bytes() {
#ifdef __SANITIZE_THREAD__
  return uint64_t{4} << 30;
#endif
  auto memory = System().memory();
  const uint64_t limit = memory.ok() ? memory->limit : uint64_t{16} << 30;
  return std::clamp<uint64_t>((limit + page_size() - 1) / page_size() * page_size() * 2, uint64_t{16} << 30,
                              uint64_t{1} << 39);
}

Result<uint64_t> taken(Ranges& ranges, uint64_t bytes) {
  Result<uint64_t> at = ranges.take(bytes);
  if (at.ok()) return at;
  return Status(Code::kUnavailable, text(at.status().message(), " in shared memory; free buffers or groups"));
}

}  // namespace

Memory::Memory(transport::shm::Segment segment, transport::shm::Segment buffers, transport::shm::Segment region)
    : segment_(std::move(segment)),
      buffers_(std::move(buffers)),
      region_(std::move(region)),
      areas_(0, segment_.memory().size(), page_size()),
      lent_(0, buffers_.memory().size(), page_size()),
      pages_(kFirstPage, kRegionBytes, kFirstPage) {}

Result<std::unique_ptr<Memory>> Memory::create(int rank) {
  HORO_ASSIGN(auto segment, transport::shm::Segment::create_private(text("horo-rank-", rank), segment_bytes()));
  HORO_ASSIGN(auto buffers, transport::shm::Segment::create_shared(text("horo-buffers-", rank), segment_bytes()));
  HORO_ASSIGN(auto region, transport::shm::Segment::create_shared(text("horo-control-", rank), kRegionBytes));
  std::unique_ptr<Memory> memory(new Memory(std::move(segment), std::move(buffers), std::move(region)));
  auto* header = new (memory->region_.memory().data()) RegionHeader;
  if (getrandom(header->nonce.data(), header->nonce.size(), 0) != static_cast<ssize_t>(header->nonce.size())) {
    return Status(Code::kUnavailable, "the system has no random numbers");
  }
  return memory;
}

Result<std::span<std::byte>> Memory::take_area(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  HORO_ASSIGN(uint64_t at, taken(areas_, bytes));
  return segment_.memory().subspan(at, bytes);
}

void Memory::free_area(std::byte* memory) {
  const uint64_t at = offset(memory);
  std::unique_lock lock(mutex_);
  const uint64_t bytes = areas_.bytes_at(at);
  lock.unlock();  // Large ranges take a while, and nobody else gets this one before it is given back.
  segment_.release(at, bytes);
  lock.lock();
  areas_.give_back(at);
}

Result<std::span<std::byte>> Memory::allocate(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  HORO_ASSIGN(const uint64_t at, taken(lent_, bytes));
  lock.unlock();
  Status real = buffers_.populate(at, bytes);
  if (real.ok()) {
    // The caller's data: a forked worker may look at it.
    buffers_.set_inherited(at, bytes, true);
    return buffers_.memory().subspan(at, bytes);
  }
  free(buffers_.memory().data() + at);
  return real;
}

void Memory::free(std::byte* memory) {
  const uint64_t at = offset_in_buffers(memory);
  std::unique_lock lock(mutex_);
  const uint64_t bytes = lent_.bytes_at(at);
  const bool reusable = withdrawn_.count(at) == 0;
  lock.unlock();
  if (!reusable) return buffers_.withdraw(at, bytes);  // Which gives back what the caller has put there since.
  buffers_.set_inherited(at, bytes, false);
  buffers_.release(at, bytes);
  lock.lock();
  lent_.give_back(at);
}

bool Memory::shows(const std::byte* memory, size_t bytes) const {
  if (!transport::holds(buffers_.memory(), memory, bytes)) return false;
  if (!any_withdrawn_.load(std::memory_order_relaxed)) return true;
  std::lock_guard lock(mutex_);
  return withdrawn_.count(lent_.begin_of(offset_in_buffers(memory))) == 0;
}

void Memory::withdraw(std::span<std::byte> pages) {
  std::lock_guard lock(mutex_);
  const uint64_t at = offset_in_buffers(pages.data());
  withdrawn_.insert(lent_.begin_of(at));
  any_withdrawn_ = true;
  buffers_.withdraw(at, pages.size());
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
