// The ways to all hosts of a job: watched by the launcher's poller, read, written, and judged when they end.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/host_link.h"

#include "horo/net/poller.h"

namespace horo::cli::launch {

/// Whom the hosts speak to. A host is known by its number, in the order of Links::add().
class HostEvents {
 public:
  virtual void host_is_ready(size_t host) = 0;
  virtual void host_said(size_t host, const Message& message) = 0;
  virtual void host_is_lost(size_t host, const std::string& why) = 0;
  /// Words of the launcher's own.
  virtual void say(const std::string& words) = 0;
  /// What ssh or an agent wrote to standard error.
  virtual void host_complained(size_t host, const std::string& line) = 0;

 protected:
  ~HostEvents() = default;
};

struct LinkOptions {
  SshOptions ssh;
  bool verbose = false;
  bool elastic = false;
  std::string input;  ///< What every rank reads.
};

class Links {
 public:
  /// Both must outlive it.
  Links(net::Poller& poller, HostEvents& events, LinkOptions options)
      : poller_(poller), events_(events), options_(std::move(options)) {}

  Status add(const std::string& name);
  size_t size() const { return hosts_.size(); }
  const HostLink& operator[](size_t host) const { return hosts_[host]; }

  /// Tokens from kFirstToken on are its own.
  void take_event(const net::Event& event);
  void send(size_t host, MessageType type, std::span<const std::byte> payload);
  /// The input goes first, no faster than the host takes it, and then the order to start.
  void order_start(size_t host, const StartOrder& order);
  /// What has not begun does not begin any more.
  void drop_orders(size_t host) { hosts_[host].start_orders.clear(); }
  /// Nobody is to be heard of it any more.
  void let_go(size_t host);
  /// While what shows the output is behind, hosts are not listened to.
  void pause(bool paused);
  void note_exit(pid_t pid, int status);
  /// A host whose channel ended without a goodbye is lost; its process is given a moment to tell why.
  void judge_closed();
  void said_ended(size_t host) { hosts_[host].said_ended = true; }
  Deadline deadline() const;

  static constexpr uint64_t kFirstToken = 16;
  /// What waits to be sent, or shown, beyond this much makes others wait.
  static constexpr size_t kMostQueued = 1 << 20;

 private:
  static constexpr uint64_t kTokensPerHost = 3;  // Reading, writing, complaints.
  uint64_t token(size_t host, uint64_t which) const { return kFirstToken + host * kTokensPerHost + which; }
  void read(size_t host);
  void take_message(size_t host, const Message& message);
  void take_hello(size_t host, const Message& message);
  void close(size_t host);
  void lose(size_t host, const std::string& why);
  void read_complaints(size_t host);
  void flush(size_t host);
  void feed(size_t host);

  net::Poller& poller_;
  HostEvents& events_;
  const LinkOptions options_;
  std::deque<HostLink> hosts_;
  bool paused_ = false;
};

}  // namespace horo::cli::launch
