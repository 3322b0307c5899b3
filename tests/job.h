// Real jobs for tests: every rank is a process of its own, started by fork from a process without threads.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/group/engine.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::test {

struct JobOptions {
  int ranks = 2;
  /// HORO_* for all ranks.
  std::map<std::string, std::string, std::less<>> environment;
  /// Per rank, on top: HORO_HOST_ID, say.
  std::function<std::map<std::string, std::string, std::less<>>(int rank)> per_rank;
  bool with_key = true;
  /// Called first in every rank: moves it to a namespace, say. False ends the rank with code 89.
  std::function<bool(int rank)> enter;
  /// Where the store listens; loopback if empty. Otherwise in the network namespace that enter(0) leads to.
  std::string store_at;
  /// Given the store's address: where the ranks are to look for it (a relay, say).
  std::function<std::string(const net::Address& store)> store_through;
};

/// What a rank does. The value is its exit code.
using Body = std::function<int(group::Engine& engine)>;
/// The same, of a rank that starts what it needs itself.
using Part = std::function<int(group::EngineOptions options)>;

/// Ranks are killed at the end of its life, if they still run.
class Job {
 public:
  static Result<std::unique_ptr<Job>> start(const JobOptions& options, const Body& body);
  static Result<std::unique_ptr<Job>> start_part(const JobOptions& options, const Part& part);
  ~Job();

  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  void signal(int rank, int number) const;
  /// Exit codes of all ranks (negative: the signal that ended it), or kTimeout naming those still running.
  Result<std::vector<int>> wait(Deadline deadline);
  /// What rank `rank` wrote with tell(), without the lines that next_line() gave. Waits until its pipe has ended.
  std::string told(int rank);
  /// The next line that `rank` writes with tell(), without its end; kTimeout, or kStopped when there will be none.
  Result<std::string> next_line(int rank, Deadline deadline);
  const net::Address& store_address() const { return store_->address(); }

 private:
  Job() = default;
  std::vector<pid_t> pids_;
  std::vector<std::optional<int>> codes_;
  std::vector<int> told_;
  std::vector<std::string> unread_;  ///< Of each rank: told, but not yet asked for.
  std::unique_ptr<rendezvous::TcpStoreServer> store_;
};

/// In a rank: a few words for the test that started it.
void tell(const std::string& words);

/// In a rank: what it writes to standard error from now on, its log too, is told as well.
void tell_log();

/// A pipe that nobody writes to: ranks wait for its end, which comes when the test lets go.
class Hold {
 public:
  Hold();
  ~Hold();
  /// By the test.
  void let_go();
  /// By a rank. False when the deadline came first. A rank that waits without a limit has given up its own end.
  bool wait(Deadline deadline = Deadline::never());
  /// By a rank, before anything else.
  void take_part();

 private:
  int read_ = -1, write_ = -1;
};

/// In a rank: starts an engine as the job of the test says.
Result<group::EngineOptions> options_of_rank(int rank, int size, const Environment& environment,
                                             const std::string& store, std::shared_ptr<const net::Key> key);

}  // namespace horo::test
