// Passes connections on to another address and remembers what the connecting side said: for replays.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/base/thread.h"
#include "horo/net/socket.h"

namespace horo::test {

class Relay {
 public:
  /// May change what the connecting side says, on the way.
  using Filter = std::function<void(std::span<std::byte> bytes)>;
  static Result<std::unique_ptr<Relay>> start(const net::Address& to, Filter filter = {});

  const net::Address& address() const { return listening_.address(); }
  /// What each connection has said so far.
  std::vector<std::vector<std::byte>> said() const;

 private:
  struct Pair {
    net::Socket near, far;
    std::vector<std::byte> said;
    bool over = false;
  };
  Relay(net::ListenSocket listening, const net::Address& to, Filter filter)
      : listening_(std::move(listening)), to_(to), filter_(std::move(filter)) {}
  void loop(const std::stop_token& stop);
  bool pass(const net::Socket& from, const net::Socket& to, std::vector<std::byte>* said) const;

  net::ListenSocket listening_;
  const net::Address to_;
  const Filter filter_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  Thread thread_;
};

}  // namespace horo::test
