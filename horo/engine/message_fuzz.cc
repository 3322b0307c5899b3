// What members of a process set tell each other, from anyone.
#include <cstddef>
#include <cstdint>
#include <span>

#include "horo/engine/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  constexpr int kMembers = 16;
  if (auto up = horo::engine::decode_up(bytes, kMembers); up.ok()) {
    if (!horo::engine::decode_up(horo::engine::encode(*up), kMembers).ok()) __builtin_trap();
  }
  if (auto down = horo::engine::decode_down(bytes, kMembers); down.ok()) {
    if (!horo::engine::decode_down(horo::engine::encode(*down), kMembers).ok()) __builtin_trap();
  }
  return 0;
}
