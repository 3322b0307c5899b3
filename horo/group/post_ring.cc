#include "horo/group/post_ring.h"

#include <algorithm>
#include <cstring>

#include "horo/base/failpoint.h"
#include "horo/base/text.h"

namespace horo::group {

namespace {

Status impossible(const char* who, const char* what, uint64_t count, uint64_t low, uint64_t high) {
  return {Code::kCorrupt, text("shared memory is damaged: the ", who, " of a ring says that it has ", what, " ", count,
                               " bytes, which can only be ", low, " to ", high)};
}

}  // namespace

Result<size_t> RingWriter::room() {
  const uint64_t taken = tail_.taken.load(std::memory_order_seq_cst);
  if (taken < taken_ || taken > published_) return impossible("reader", "taken", taken, taken_, published_);
  taken_ = taken;
  return bytes_.size() - static_cast<size_t>(written_ - taken_);
}

// A writer that waits says so first and looks for room again afterwards; a reader makes room first and looks for
// waiting writers afterwards. Sequentially consistent on both sides, so that one of them sees the other.
Result<size_t> RingWriter::put(std::span<const std::byte> bytes) {
  size_t done = 0;
  while (true) {
    size_t space = bytes_.size() - static_cast<size_t>(written_ - taken_);
    if (space < bytes.size() - done) {
      HORO_ASSIGN(space, room());
    }
    const size_t now = std::min(space, bytes.size() - done);
    const auto at = static_cast<size_t>(written_ % bytes_.size());
    const size_t before_end = std::min(now, bytes_.size() - at);
    if (before_end > 0) std::memcpy(bytes_.data() + at, bytes.data() + done, before_end);
    if (now > before_end) std::memcpy(bytes_.data(), bytes.data() + done + before_end, now - before_end);
    written_ += now;
    done += now;
    if (done == bytes.size()) {
      if (waits_) head_.wants_room.store(0, std::memory_order_relaxed);
      waits_ = false;
      return done;
    }
    if (now == 0 && waits_) return done;
    publish();  // Nobody makes room by taking what does not show yet.
    waits_ = true;
    head_.wants_room.store(1, std::memory_order_seq_cst);
  }
}

void RingWriter::publish() {
  if (published_ == written_) return;
  published_ = written_;
  HORO_FAILPOINT("post.publish");
  head_.written.store(written_, std::memory_order_release);
  HORO_FAILPOINT("post.ring");
  bell_.ring();
}

Result<std::span<const std::byte>> RingReader::readable() const {
  const uint64_t written = head_.written.load(std::memory_order_acquire);
  if (written < taken_ || written - taken_ > bytes_.size()) {
    return impossible("writer", "written", written, taken_, taken_ + bytes_.size());
  }
  const auto at = static_cast<size_t>(taken_ % bytes_.size());
  return bytes_.subspan(at, std::min(static_cast<size_t>(written - taken_), bytes_.size() - at));
}

void RingReader::release() {
  if (released_ == taken_) return;
  released_ = taken_;
  tail_.taken.store(taken_, std::memory_order_seq_cst);
  if (head_.wants_room.load(std::memory_order_seq_cst) != 0) bell_.ring();
}

}  // namespace horo::group
