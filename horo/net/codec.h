// Messages as bytes: little-endian numbers, and byte strings and lists that carry their length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/status.h"

namespace horo::net {

/// Appends to a message that may not grow beyond a limit. What would is left out and remembered: status() tells.
class Writer {
 public:
  explicit Writer(size_t limit = 1 << 20) : limit_(limit) {}

  void u8(uint8_t value) { number(value, 1); }
  void u16(uint16_t value) { number(value, 2); }
  void u32(uint32_t value) { number(value, 4); }
  void u64(uint64_t value) { number(value, 8); }
  void boolean(bool value) { u8(value ? 1 : 0); }
  /// As they are, without a length.
  void raw(std::span<const std::byte> data);
  /// A length in 32 bits, then the bytes.
  void bytes(std::span<const std::byte> data);
  void string(std::string_view text) { bytes(std::as_bytes(std::span(text))); }
  /// The number of elements that the caller writes next.
  void count(size_t elements);

  bool ok() const { return !overflow_; }
  /// kInvalidArgument, with the limit, when something did not fit.
  Status status() const;
  std::span<const std::byte> data() const { return data_; }
  size_t size() const { return data_.size(); }
  std::vector<std::byte> take() { return std::move(data_); }

 private:
  void number(uint64_t value, size_t bytes);

  size_t limit_;
  bool overflow_ = false;
  std::vector<std::byte> data_;
};

/// Reads what Writer wrote, from anyone: never past the end, and nothing is allocated before its length is checked.
/// After the first error all values are zero and empty, so that a decoder needs one check at its end.
class Reader {
 public:
  /// Views `data`, which must outlive the reader. `what` begins error messages: "a Hello".
  Reader(std::span<const std::byte> data, std::string_view what) : data_(data), what_(what) {}

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  /// Anything but 0 and 1 is an error.
  bool boolean();
  std::span<const std::byte> raw(size_t bytes);
  /// Views into the data; an error when longer than `limit`.
  std::span<const std::byte> bytes(size_t limit);
  std::string string(size_t limit);
  /// A number of elements, at most `limit` and no more than the remaining bytes can hold at `element_bytes` each.
  size_t count(size_t limit, size_t element_bytes);

  /// An error of the caller's: a value that cannot be. The first error stays.
  void fail(std::string_view why);
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  size_t remaining() const { return data_.size() - at_; }
  /// status(), or kCorrupt when bytes are left.
  Status finish();

 private:
  uint64_t number(size_t bytes);

  std::span<const std::byte> data_;
  std::string_view what_;
  size_t at_ = 0;
  Status status_;
};

}  // namespace horo::net
