// What travels between simulated ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "horo/rendezvous/message.h"

namespace horo::sim {

/// A contribution to a symmetric operation, or the value of a rooted one.
struct Data {
  uint64_t group = 0;
  uint64_t number = 0;
  uint64_t value = 0;
};
/// "I hold my part of this operation": for operations whose results differ between ranks.
struct Confirm {
  uint64_t group = 0;
  uint64_t number = 0;
};
/// "I have completed this rooted operation": moves the window.
struct Ack {
  uint64_t group = 0;
  uint64_t number = 0;
};
/// A result that the receiver lacks after a loss.
struct Serve {
  uint64_t group = 0;
  uint64_t number = 0;
  uint64_t value = 0;
};
struct Probe {};
struct Answer {};
/// "May I evict these?", and the answer.
struct Ask {
  std::vector<int> silent;
};
struct Consent {
  bool agrees = false;
};
/// "I am here for the group of this view", to its first member.
struct Join {
  uint64_t view = 0;
};
/// "All are here": the terms of the group, from its first member.
struct Ready {
  uint64_t view = 0;
};

/// Shared by all receivers of one broadcast.
using Control = std::shared_ptr<const rendezvous::Message>;

using Packet = std::variant<Control, Probe, Answer, Ask, Consent, Join, Ready, Data, Confirm, Ack, Serve>;

/// Control messages are read before data after a pause.
inline bool is_control(const Packet& packet) { return packet.index() <= 6; }

}  // namespace horo::sim
