// Random numbers that are the same on every machine and standard library, so that a seed replays anywhere.
#pragma once

#include <cstdint>

namespace horo::sim {

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t mix(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix(seed)) {}

  uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15); }
  /// 0 <= result < bound. The slight bias does not matter here.
  uint64_t below(uint64_t bound) { return next() % bound; }
  /// low <= result <= high.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  bool chance(int percent) { return below(100) < static_cast<uint64_t>(percent); }

 private:
  uint64_t state_;
};

}  // namespace horo::sim
