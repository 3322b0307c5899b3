// Which parts of something are taken.
#pragma once

#include <cstdint>
#include <map>

#include "horo/base/status.h"

namespace horo {

/// First-fit ranges of [begin, end), in multiples of `unit`. Not thread-safe.
class Ranges {
 public:
  Ranges(uint64_t begin, uint64_t end, uint64_t unit) : begin_(begin), end_(end), unit_(unit) {}
  /// kUnavailable when no gap is large enough.
  Result<uint64_t> take(uint64_t bytes);
  /// Of a range that was taken.
  void give_back(uint64_t begin) { taken_.erase(begin); }
  uint64_t bytes_at(uint64_t begin) const;
  /// Where the range that holds `at` begins: one that is taken.
  uint64_t begin_of(uint64_t at) const;

 private:
  uint64_t begin_, end_, unit_;
  std::map<uint64_t, uint64_t> taken_;
};

}  // namespace horo
