// Messages of a peer that holds the key and has lost its mind: decoded, and fed to a rank that is in a job with it.
#include <cstddef>
#include <cstdint>
#include <span>

#include "horo/base/check.h"
#include "horo/rendezvous/membership.h"

namespace {

using namespace horo::rendezvous;

constexpr int kRanks = 5;
constexpr uint64_t kGroup = 1;

/// Answers what the machine asks of its groups, so that a message gets as far as it can.
void answer(Membership& membership, const std::vector<Output>& outputs) {
  for (const Output& output : outputs) {
    if (auto* revoke = std::get_if<output::Revoke>(&output)) {
      for (uint64_t group : revoke->groups) {
        answer(membership, membership.step(input::Reported{revoke->epoch, {group, 3, 4}}, {}));
      }
    } else if (auto* decide = std::get_if<output::Decide>(&output)) {
      answer(membership, membership.step(input::Settled{decide->epoch, decide->group}, {}));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Membership membership({0, kRanks, 0, std::chrono::seconds(30)});
  membership.step(input::Opened{kGroup, {0, 1, 2, 3, 4}}, {});
  auto bytes = std::as_bytes(std::span(data, size));
  // Each message is preceded by its sender and its length.
  while (bytes.size() >= 2) {
    int from = static_cast<int>(bytes[0]) % kRanks;
    size_t length = std::min<size_t>(static_cast<size_t>(bytes[1]), bytes.size() - 2);
    auto message = decode_message(bytes.subspan(2, length), kRanks);
    bytes = bytes.subspan(2 + length);
    if (!message.ok()) continue;
    auto again = decode_message(encode(*message), kRanks);
    HORO_CHECK(again.ok() && *again == *message, "what was decoded encodes to the same");
    answer(membership, membership.step(input::Received{from, std::move(*message)}, {}));
  }
  return 0;
}
