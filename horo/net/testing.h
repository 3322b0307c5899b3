// What the tests of this module share.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

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
#include "horo/net/fd.h"

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

/// A port of loopback that is taken, and where nobody listens.
class HeldPort {
 public:
  HeldPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    place_.sin_family = AF_INET;
    place_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place_;
    auto* place = reinterpret_cast<sockaddr*>(&place_);
    EXPECT_EQ(bind(fd_.get(), place, size), 0);
    EXPECT_EQ(getsockname(fd_.get(), place, &size), 0);
  }
  std::string address() const { return text("127.0.0.1:", ntohs(place_.sin_port)); }
  void release() { fd_.reset(); }

 private:
  UniqueFd fd_;
  sockaddr_in place_{};
};

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace horo::net::testing
