// Notes about messages, from a peer that holds the key and has lost its mind: the first byte says how long each is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "horo/base/check.h"
#include "horo/group/matching.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace horo::group;
  std::vector<std::byte> memory(100);
  const std::vector<std::byte> large(Matching::kMostWhole + 1);
  Matching matching;
  matching.receive(1, {.from = {0, 1}, .tag = 1, .memory = memory});
  matching.receive(2, {.from = {1}, .tag = 0, .memory = memory});
  matching.send(3, {.to = 1, .data = large});
  (void)matching.next(1);
  auto rest = std::as_bytes(std::span(data, size));
  while (!rest.empty()) {
    const size_t length = std::min(static_cast<size_t>(rest[0]), rest.size() - 1);
    const auto letter = rest.subspan(1, length);
    if (const auto note = decode_message_note(letter); note.ok()) {
      const auto again = encode(*note);
      HORO_CHECK(std::equal(again.begin(), again.end(), letter.begin(), letter.end()),
                 "what was decoded encodes alike");
    }
    if (!matching.arrived(1, letter).ok()) break;
    while (matching.next(1)) matching.left(1);
    rest = rest.subspan(1 + length);
  }
  (void)matching.take_ended();
  return 0;
}
