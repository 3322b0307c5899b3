// Tells who is missing when some ranks have joined their job and others take long.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/thread.h"
#include "horo/net/wake.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::cli::launch {

/// What is to be said about a job of `size` of which `present` have joined; nothing when nobody or everybody has: a
/// command that is no program of horo never joins.
std::optional<std::string> who_is_missing(const std::set<int>& present, int size, Duration since);

/// The ranks of keys "JOB/card/0000003".
std::set<int> ranks_of_keys(const std::vector<std::string>& keys);

/// Looks into the store from a thread of its own, now and then, until all have joined.
class JoinWatch {
 public:
  /// Null when there is nothing to watch, or it cannot be.
  static std::unique_ptr<JoinWatch> create(const rendezvous::TcpStoreServer& store,
                                           const rendezvous::TcpStoreOptions& options, const std::string& at, int size);

  /// Readable when an answer has come.
  int fd() const { return wake_.fd(); }
  Deadline deadline() const { return next_; }
  /// Lines for the user.
  std::vector<std::string> step(Time now);

  static constexpr Duration kInterval = std::chrono::seconds(10);
  static constexpr int kMostLooks = 12;

 private:
  JoinWatch(net::Wake wake, net::Address at, rendezvous::TcpStoreOptions options, int size)
      : wake_(std::move(wake)), at_(at), options_(std::move(options)), size_(size) {}
  void look();

  net::Wake wake_;
  net::Address at_;
  rendezvous::TcpStoreOptions options_;
  int size_;
  int looks_ = 0;
  const Time started_ = Clock::now();
  Deadline next_{Clock::now() + kInterval};
  std::mutex mutex_;
  std::optional<std::set<int>> answer_;
  Thread thread_;
};

}  // namespace horo::cli::launch
