// A store over authenticated channels: a server with one thread, and blocking clients.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "horo/base/log.h"
#include "horo/net/address.h"
#include "horo/net/channel.h"
#include "horo/net/key.h"
#include "horo/rendezvous/request_store.h"

namespace horo::rendezvous {

struct TcpStoreOptions {
  std::string job;
  std::shared_ptr<const net::Key> key;
  /// Refused connections are told there. May be null; must outlive the store.
  Log* log = nullptr;
};

/// Serves until it is destroyed; replies under way are sent before that.
class TcpStoreServer {
 public:
  /// kInvalidArgument for an address beyond this machine without a key; kUnavailable when the address is taken.
  static Result<std::unique_ptr<TcpStoreServer>> start(const net::Address& at, const TcpStoreOptions& options);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  /// With the port that the system chose.
  const net::Address& address() const;

 private:
  class Loop;
  explicit TcpStoreServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

/// Calls of several threads take turns: one that waits for a key keeps the others waiting.
class TcpStore final : public RequestStore {
 public:
  /// Tries again until the deadline while nobody listens there, and calls `nobody_there` each time. Of several
  /// addresses the one that answers first is taken; an error names all.
  static Result<std::unique_ptr<TcpStore>> connect(std::span<const net::Address> to, const TcpStoreOptions& options,
                                                   Deadline deadline, const std::function<Status()>& nobody_there = {});
  static Result<std::unique_ptr<TcpStore>> connect(const net::Address& to, const TcpStoreOptions& options,
                                                   Deadline deadline) {
    return connect(std::span(&to, 1), options, deadline);
  }

  /// Ends the call under way on another thread, and all later ones, with kPeerLost.
  void interrupt() { channel_.socket().shutdown_both(); }

 private:
  explicit TcpStore(net::Channel channel) : channel_(std::move(channel)) {}
  Result<StoreReply> exchange(const StoreRequest& request, Deadline deadline) override;
  bool begin_turn(Deadline deadline);
  void end_turn();
  Result<StoreReply> ask(const StoreRequest& request, Deadline deadline);
  Result<StoreReply> await_reply(uint64_t sequence, const StoreRequest& request, Deadline deadline);

  /// One caller at a time: its turn is a flag under a mutex, as the thread sanitizer does not know timed mutexes.
  std::mutex mutex_;
  std::condition_variable turn_ended_;
  bool busy_ = false;
  net::Channel channel_;
  uint64_t sequence_ = 0;
};

}  // namespace horo::rendezvous
