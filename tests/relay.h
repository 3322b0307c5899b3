// Passes connections on to another address and remembers what the connecting side said: for replays.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/base/thread.h"
#include "horo/net/socket.h"

namespace horo::test {

class Relay {
 public:
  static Result<std::unique_ptr<Relay>> start(const net::Address& to);

  const net::Address& address() const { return listening_.address(); }
  /// What each connection has said so far.
  std::vector<std::vector<std::byte>> said() const;

 private:
  struct Pair {
    net::Socket near, far;
    std::vector<std::byte> said;
    bool over = false;
  };
  Relay(net::ListenSocket listening, const net::Address& to) : listening_(std::move(listening)), to_(to) {}
  void loop(const std::stop_token& stop);
  static bool pass(const net::Socket& from, const net::Socket& to, std::vector<std::byte>* said);

  net::ListenSocket listening_;
  const net::Address to_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  Thread thread_;
};

}  // namespace horo::test
