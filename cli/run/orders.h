// What the agents of hosts are told to start: made of the user's wishes, and of where the ranks meet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/run/host_link.h"
#include "cli/run/meeting_point.h"
#include "cli/run/options.h"

#include "horo/net/key.h"

namespace horo::cli::launch {

class Orders {
 public:
  Orders(const RunOptions& options, std::string job, std::shared_ptr<const net::Key> key)
      : options_(options), job_(std::move(job)), key_(std::move(key)) {}

  /// Where the ranks of a host meet the others.
  struct Meeting {
    std::string store;               ///< host:port, as this host reaches it.
    std::vector<std::string> peers;  ///< Addresses of other hosts, for routing.
  };
  /// Without ranks.
  StartOrder base(const HostLink& host, const Meeting& meeting) const;
  /// A rank that the job begins with. `output`: the folder with its files, or nothing.
  RankOrder first(const RankPlace& place, const std::string& output) const;
  /// One that comes later, and is told its place by the others.
  RankOrder newcomer(int seat, int slot, const std::string& host, const std::string& output) const;

 private:
  const RunOptions& options_;
  std::string job_;
  std::shared_ptr<const net::Key> key_;
};

}  // namespace horo::cli::launch
