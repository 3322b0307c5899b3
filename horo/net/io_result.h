// What became of one attempt to move bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "horo/base/status.h"

namespace horo::net {

class [[nodiscard]] IoResult {
 public:
  enum class Kind : uint8_t {
    kMoved,       ///< bytes() were moved; at least one.
    kWouldBlock,  ///< Nothing can be moved now: wait for readiness.
    kEnd,         ///< The peer has ended its stream.
    kFailed,      ///< status() says why.
  };

  static IoResult moved(size_t bytes) { return IoResult(Kind::kMoved, bytes, {}); }
  static IoResult would_block() { return IoResult(Kind::kWouldBlock, 0, {}); }
  static IoResult end() { return IoResult(Kind::kEnd, 0, {}); }
  static IoResult failed(Status why) { return IoResult(Kind::kFailed, 0, std::move(why)); }

  Kind kind() const { return kind_; }
  bool is_moved() const { return kind_ == Kind::kMoved; }
  bool is_would_block() const { return kind_ == Kind::kWouldBlock; }
  bool is_end() const { return kind_ == Kind::kEnd; }
  bool is_failed() const { return kind_ == Kind::kFailed; }
  /// Zero unless is_moved().
  size_t bytes() const { return bytes_; }
  /// OK unless is_failed().
  const Status& status() const { return status_; }

 private:
  IoResult(Kind kind, size_t bytes, Status status) : kind_(kind), bytes_(bytes), status_(std::move(status)) {}
  Kind kind_;
  size_t bytes_;
  Status status_;
};

}  // namespace horo::net
