#include "horo/net/dial.h"

#include <algorithm>

namespace horo::net {

namespace {

Result<Channel> dial_once(const std::function<Result<Socket>()>& connect, const Dialling& dialling, Deadline deadline) {
  HORO_ASSIGN(Socket socket, connect());
  HORO_ASSIGN(Channel channel,
              Channel::connect(dialling.tls, std::move(socket), dialling.key, dialling.identity, dialling.options));
  HORO_TRY(channel.handshake(deadline));
  return channel;
}

}  // namespace

Result<Channel> dial(const std::function<Result<Socket>()>& connect, const Dialling& dialling, Deadline deadline) {
  for (int tries = 1;; ++tries) {
    Result<Channel> channel = dial_once(connect, dialling, deadline);
    const Code code = channel.status().code();
    const bool turned_away = code == Code::kPeerLost || code == Code::kTimeout;
    if (channel.ok() || !turned_away || tries == kMostTries || deadline.expired()) return channel;
  }
}

}  // namespace horo::net
