// Buffers at chosen alignments and random elements of every kind, for this folder's tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "horo/base/dtype.h"

namespace horo::kernel {

using Random = std::mt19937_64;

/// TEST_SEED, or a new one for each process; printed once, so that a failure can be repeated.
inline uint64_t seed() {
  static const uint64_t value = [] {
    const char* given = std::getenv("TEST_SEED");
    const uint64_t chosen = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return value;
}

/// `size` bytes that begin `shift` bytes after a cache line, between fences that nothing may write to.
class Buffer {
 public:
  Buffer(size_t size, size_t shift) : size_(size), shift_(shift), memory_(size + shift + 3 * kFence, kMark) {}
  Buffer(const Buffer& other) : Buffer(other.size_, other.shift_) { *this = other; }
  /// Of equal size; each keeps its own alignment, which depends on where its memory lies.
  Buffer& operator=(const Buffer& other) {
    if (size_ > 0) std::memcpy(data(), other.memory_.data() + other.first(), size_);
    return *this;
  }
  std::byte* data() { return memory_.data() + first(); }
  std::vector<std::byte> bytes() { return {data(), data() + size_}; }
  bool fences_intact() {
    for (std::byte* at = memory_.data(); at < data(); ++at) {
      if (*at != kMark) return false;
    }
    for (std::byte* at = data() + size_; at < memory_.data() + memory_.size(); ++at) {
      if (*at != kMark) return false;
    }
    return true;
  }
  /// Random bits; for floats and halves one in four is zero, infinite, NaN, denormal, huge or a small integer instead.
  void fill(DType dtype, Random& random) {
    const size_t size = is_complex(dtype) ? size_of(dtype) / 2 : size_of(dtype);
    for (size_t at = 0; at + size <= size_; at += size) {
      uint64_t bits = random();
      if (random() % 4 == 0) bits = special(dtype, random);
      std::memcpy(data() + at, &bits, size);
    }
  }

 private:
  static constexpr size_t kFence = 64;
  static constexpr std::byte kMark{0xA5};

  size_t first() const {
    const size_t to_line = -reinterpret_cast<uintptr_t>(memory_.data()) % kFence;
    return to_line + shift_ + (to_line + shift_ == 0 ? kFence : 0);
  }

  static uint64_t special(DType dtype, Random& random) {
    const uint64_t sign = random() % 2;
    const uint64_t fraction = random() % 3;
    switch (dtype) {
      case DType::kF16:
        return sign << 15 | pick({0, 0x7C00, 0x7C01, 0x7E05, 0x0001, 0x03FF, 0x7BFF, 0x3C00}, random) | fraction;
      case DType::kBF16:
        return sign << 15 | pick({0, 0x7F80, 0x7F81, 0x7FC5, 0x0001, 0x007F, 0x7F7F, 0x3F80}, random) | fraction;
      case DType::kF32:
      case DType::kC64:
        return sign << 31 | pick({0, 0x7F800000, 0x7F800001, 0x7FC00005, 1, 0x7FFFFF, 0x7F7FFFFF, 0x3F800000}, random) |
               fraction;
      case DType::kF64:
      case DType::kC128:
        return sign << 63 | pick({0, 0x7FFULL << 52, (0x7FFULL << 52) + 1, 0x7FF8ULL << 48, 1, (1ULL << 52) - 1,
                                  (0x7FFULL << 52) - 1, 0x3FFULL << 52},
                                 random);
      default:
        return pick({0, 1, ~0ULL, 1ULL << 63, 1ULL << 31, 1ULL << 15, 1ULL << 7, 0x7F}, random);
    }
  }
  static uint64_t pick(std::initializer_list<uint64_t> values, Random& random) {
    return values.begin()[random() % values.size()];
  }

  size_t size_;
  size_t shift_;
  std::vector<std::byte> memory_;
};

}  // namespace horo::kernel
