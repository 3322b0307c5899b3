// What the tests of this module share.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/text.h"

namespace horo::net::testing {

inline Deadline soon() { return Deadline::after_seconds(20); }

/// Open descriptors of this process.
inline size_t open_descriptors() {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  size_t count = 0;
  while (readdir(folder.get()) != nullptr) ++count;
  return count - 3;  // ".", ".." and the folder itself
}

/// Prints its seed; HORO_SEED repeats a run.
inline std::mt19937_64 seeded() {
  const char* given = std::getenv("HORO_SEED");
  uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("HORO_SEED=%llu\n", static_cast<unsigned long long>(seed));
  ::testing::Test::RecordProperty("seed", text(seed));
  return std::mt19937_64(seed);
}

inline std::vector<std::byte> random_bytes(std::mt19937_64& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace horo::net::testing
