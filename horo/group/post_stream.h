// Letters as a stream of bytes: each is its length in four bytes, then itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "horo/base/status.h"

namespace horo::group {

inline constexpr size_t kMostLetterBytes = size_t{64} << 20;
inline constexpr size_t kLetterPrefix = 4;

/// What stands in front of a letter of `bytes`.
std::array<std::byte, kLetterPrefix> letter_prefix(size_t bytes);

/// Puts letters together from pieces as they come. What it is fed may change under its hands (it is another process's
/// memory): every byte is read once.
class Assembler {
 public:
  /// Takes bytes up to the end of one letter and returns how many. kCorrupt for an impossible length.
  Result<size_t> feed(std::span<const std::byte> bytes);
  bool complete() const { return prefix_have_ == kLetterPrefix && letter_.size() == length_; }
  /// The letter, once it is complete.
  std::vector<std::byte> take();

 private:
  std::array<std::byte, kLetterPrefix> prefix_{};
  size_t prefix_have_ = 0;
  size_t length_ = 0;
  std::vector<std::byte> letter_;
};

/// Bytes that wait for room, in order.
class OutQueue {
 public:
  void push(std::span<const std::byte> bytes);
  bool empty() const { return chunks_.empty(); }
  size_t bytes() const { return bytes_; }
  /// The next of them that lie together.
  std::span<const std::byte> front() const { return std::span(chunks_.front()).subspan(used_); }
  void pop(size_t bytes);

 private:
  std::deque<std::vector<std::byte>> chunks_;
  size_t used_ = 0;  ///< Of the first chunk.
  size_t bytes_ = 0;
};

/// The way to one member: a ring in shared memory, or a control connection.
class Outlet {
 public:
  virtual ~Outlet() = default;
  /// Takes as many of the bytes as there is room for now, and returns how many; they travel at publish(). When that is
  /// not all, the bell rings once there is room. kCorrupt when the other side claims what cannot be.
  virtual Result<size_t> put(std::span<const std::byte> bytes) = 0;
  virtual void publish() = 0;
};

}  // namespace horo::group
