// A small job for the self-test: ranks that reduce until something happens to them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/check/rank.h"
#include "cli/process.h"

#include "horo/base/deadline.h"
#include "horo/net/address.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::cli {

struct CheckJobOptions {
  int ranks = 4;
  std::string transport = "auto";
  bool mismatch = false;
  bool idle = false;  ///< CheckRankOptions::idle
};

class CheckJob {
 public:
  /// Ranks that do not meet within 20 s are an error.
  static Result<std::unique_ptr<CheckJob>> start(const CheckJobOptions& options);
  ~CheckJob();

  int size() const { return static_cast<int>(ranks_.size()); }
  void signal(int rank, int number) const { ranks_[static_cast<size_t>(rank)].process->signal(number); }
  /// All ranks end after the same operation.
  void stop() { stop_.reset(); }
  /// The next thing that rank says; kTimeout, or kPeerLost when it is gone without a word.
  Result<RankWord> next_word(int rank, Deadline deadline);
  /// Where strangers can knock: the store's socket and those of all ranks.
  std::vector<net::Address> listening() const;
  std::vector<net::Address> listening(int rank) const;
  /// Seconds of processor time that the rank has used, all threads together.
  double cpu_seconds(int rank) const;

 private:
  CheckJob() = default;
  struct Rank {
    std::unique_ptr<Process> process;
    net::UniqueFd words;
    std::string unread;
  };
  Status start_rank(int rank, const CheckJobOptions& options, const net::Key& key, const std::string& store, int stop);

  std::unique_ptr<rendezvous::TcpStoreServer> store_;
  net::UniqueFd stop_;
  std::vector<Rank> ranks_;
};

/// The sockets that process `pid` listens at: its descriptors, looked up in /proc/net.
std::vector<net::Address> listening_sockets(pid_t pid);

}  // namespace horo::cli
