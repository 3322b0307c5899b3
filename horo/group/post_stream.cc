#include "horo/group/post_stream.h"

#include <algorithm>
#include <cstring>

#include "horo/base/text.h"

namespace horo::group {

namespace {

// A letter's memory grows as its bytes come: a length alone makes nobody allocate.
constexpr size_t kGrowth = size_t{1} << 20;
constexpr size_t kChunk = size_t{64} << 10;

}  // namespace

std::array<std::byte, kLetterPrefix> letter_prefix(size_t bytes) {
  std::array<std::byte, kLetterPrefix> prefix;
  for (size_t i = 0; i < kLetterPrefix; ++i) prefix[i] = static_cast<std::byte>(bytes >> (8 * i));
  return prefix;
}

Result<size_t> Assembler::feed(std::span<const std::byte> bytes) {
  size_t used = 0;
  if (prefix_have_ < kLetterPrefix) {
    used = std::min(bytes.size(), kLetterPrefix - prefix_have_);
    std::copy_n(bytes.begin(), used, prefix_.begin() + static_cast<ptrdiff_t>(prefix_have_));
    prefix_have_ += used;
    if (prefix_have_ < kLetterPrefix) return used;
    length_ = 0;
    for (size_t i = 0; i < kLetterPrefix; ++i) length_ |= std::to_integer<size_t>(prefix_[i]) << (8 * i);
    if (length_ > kMostLetterBytes) {
      return Status(Code::kCorrupt,
                    text("a letter of ", length_, " bytes, where at most ", kMostLetterBytes, " can be"));
    }
    letter_.reserve(std::min(length_, kGrowth));
  }
  const size_t body = std::min(bytes.size() - used, length_ - letter_.size());
  letter_.insert(letter_.end(), bytes.data() + used, bytes.data() + used + body);
  return used + body;
}

std::vector<std::byte> Assembler::take() {
  prefix_have_ = 0;
  length_ = 0;
  return std::exchange(letter_, {});
}

void OutQueue::push(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  bytes_ += bytes.size();
  const bool joins = !chunks_.empty() && chunks_.back().size() + bytes.size() <= kChunk;
  if (!joins) chunks_.emplace_back();
  chunks_.back().insert(chunks_.back().end(), bytes.begin(), bytes.end());
}

void OutQueue::pop(size_t bytes) {
  bytes_ -= bytes;
  used_ += bytes;
  if (used_ < chunks_.front().size()) return;
  chunks_.pop_front();
  used_ = 0;
}

}  // namespace horo::group
