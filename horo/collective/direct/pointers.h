// One pointer per member.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace horo::collective::direct {

/// Pointers to one range of everybody's data, in rank order.
class Pointers {
 public:
  explicit Pointers(int size) : size_(static_cast<size_t>(size)) {
    if (size > kMaxInline) heap_.resize(size_);
  }
  const std::byte*& operator[](int member) { return data()[member]; }
  std::span<const std::byte* const> span() { return {data(), size_}; }

 private:
  static constexpr int kMaxInline = 64;  // Members whose pointers fit on the stack.

  const std::byte** data() { return heap_.empty() ? stack_.data() : heap_.data(); }
  size_t size_;
  std::array<const std::byte*, kMaxInline> stack_;
  std::vector<const std::byte*> heap_;
};

}  // namespace horo::collective::direct
