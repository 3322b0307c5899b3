// One library under measurement: its ranks, which wait asleep until they are told to measure.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/network.h"
#include "cli/bench/protocol.h"
#include "cli/process.h"

#include "horo/net/key.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::bench {

/// What all contenders of a run share.
struct Field {
  int ranks = 2;
  std::string transport = "auto";    ///< auto, shm, tcp
  const Network* network = nullptr;  ///< Null: this host.
  std::string folder;                ///< For pipes; each contender makes one of its own in it.
  bool oversubscribed = false;       ///< More ranks than cores: peers are asked to yield.
  bool verbose = false;              ///< What the ranks print is shown.
  int number = 0;                    ///< Of this job of horo among those of the run.
  std::string variant;               ///< Of horo: "HORO_CHECKSUM=0", or nothing.
};

/// What one command gave. Times are the longest of all ranks, operation by operation.
struct Sample {
  std::vector<double> microseconds;
  double cpu_seconds = 0;  ///< Of all ranks, for all operations of the sample.
  double total_cpu = 0;
  std::string transport;
  std::string algorithm;
};

class Contender {
 public:
  static Result<std::unique_ptr<Contender>> start_horo(const Field& field);
  /// A program horo_peer_NAME beside this one. kNotFound when there is none.
  static Result<std::unique_ptr<Contender>> start_peer(const std::string& name, const Field& field);
  ~Contender();

  const std::string& name() const { return name_; }
  const std::string& transport() const { return transport_; }
  /// kUnavailable: it cannot do that; anything else: it is broken and is not asked again.
  Result<Sample> measure(const Command& command, Deadline deadline);

 private:
  explicit Contender(std::string name) : name_(std::move(name)) {}
  Status make_pipes(const std::string& folder, int ranks);
  Status spawn(const cli::ProcessOptions& options);
  Status start_ranks(const Field& field);
  Status await_ready(Deadline deadline);
  Result<std::vector<Reply>> replies(Deadline deadline);
  std::string ended_children();

  struct Rank {
    net::UniqueFd commands;
    net::UniqueFd replies;
    std::string unread;
  };
  std::string name_;
  std::string transport_;
  std::string folder_;
  std::vector<Rank> ranks_;
  std::unique_ptr<rendezvous::TcpStoreServer> store_;
  std::vector<std::unique_ptr<cli::Process>> processes_;
};

}  // namespace horo::bench
