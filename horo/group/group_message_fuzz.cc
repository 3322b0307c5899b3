// Control messages about groups, from a peer that holds the key and has lost its mind. The first byte says which.
#include <cstddef>
#include <cstdint>
#include <span>

#include "horo/base/check.h"
#include "horo/group/group_message.h"

namespace {

using namespace horo::group;

constexpr int kRanks = 9;

template <class Decode>
void read_twice(const Decode& decode, std::span<const std::byte> bytes) {
  const auto message = decode(bytes);
  if (!message.ok()) return;
  const auto again = decode(encode(*message));
  HORO_CHECK(again.ok() && *again == *message, "what was decoded encodes to the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 3) {
    case 0:
      read_twice([](auto input) { return decode_join_group(input, kRanks); }, bytes);
      break;
    case 1:
      read_twice([](auto input) { return decode_group_ready(input, kRanks); }, bytes);
      break;
    default:
      read_twice([](auto input) { return decode_abandon_group(input); }, bytes);
  }
  return 0;
}
