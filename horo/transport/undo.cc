#include "horo/transport/undo.h"

#include "horo/base/check.h"
#include "horo/kernel/reduce.h"

namespace horo::transport {

void Undo::begin(std::span<std::byte> memory, std::byte* kept) {
  memory_ = memory;
  kept_ = kept;
  runs_.clear();
}

void Undo::keep(const std::byte* at, size_t bytes) {
  if (bytes == 0) return;
  HORO_CHECK(at >= memory_.data() && at + bytes <= memory_.data() + memory_.size(), "what is kept lies elsewhere");
  const auto offset = static_cast<size_t>(at - memory_.data());
  kernel::copy_piece(kept_ + offset, at, bytes, memory_.size());
  const bool longer = !runs_.empty() && runs_.back().offset + runs_.back().bytes == offset;
  if (longer) {
    runs_.back().bytes += bytes;
  } else {
    runs_.push_back({offset, bytes});
  }
}

void Undo::put_back() const {
  for (const Run& run : runs_) kernel::copy(memory_.data() + run.offset, kept_ + run.offset, run.bytes);
}

}  // namespace horo::transport
