#include "horo/base/ranges.h"

#include <algorithm>
#include <iterator>

#include "horo/base/text.h"

namespace horo {

Result<uint64_t> Ranges::take(uint64_t bytes) {
  // Too much must not wrap around to little.
  const uint64_t units = (std::clamp<uint64_t>(bytes, 1, end_ - begin_ + 1) + unit_ - 1) / unit_;
  bytes = units * unit_;
  uint64_t at = begin_;
  for (const auto& [begin, size] : taken_) {
    if (begin - at >= bytes) break;
    at = begin + size;
  }
  if (end_ - at < bytes) return Status(Code::kUnavailable, text("no room for ", bytes_text(bytes)));
  taken_[at] = bytes;
  return at;
}

uint64_t Ranges::bytes_at(uint64_t begin) const {
  auto found = taken_.find(begin);
  return found == taken_.end() ? 0 : found->second;
}

uint64_t Ranges::begin_of(uint64_t at) const {
  auto after = taken_.upper_bound(at);
  return after == taken_.begin() ? begin_ : std::prev(after)->first;
}

}  // namespace horo
