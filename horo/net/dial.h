// Connecting and proving the key, as often as it takes.
#pragma once

#include <functional>

#include "horo/net/channel.h"

namespace horo::net {

struct Dialling {
  std::shared_ptr<const Tls> tls;
  const Key& key;
  Identity identity;
  ChannelOptions options;
};

/// An acceptor gives a stranger little time (ChannelOptions::handshake_limit), and on a crowded machine a member of the
/// job may not have proved itself by then: it is turned away and comes again, up to kMostTries times, until the
/// deadline. Anything else that goes wrong is final.
inline constexpr int kMostTries = 5;
Result<Channel> dial(const std::function<Result<Socket>()>& connect, const Dialling& dialling, Deadline deadline);

}  // namespace horo::net
