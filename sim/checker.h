// What must hold in every run, whatever is killed or frozen.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/rendezvous/lost_set.h"

namespace horo::sim {

/// Fed by the nodes while they run; keeps the first violation.
class Checker {
 public:
  explicit Checker(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  void violated(std::string what);
  const std::optional<std::string>& violation() const { return violation_; }

  void succeeded(int rank, uint64_t group, uint64_t number);
  void failed(int rank, uint64_t group, uint64_t from_number);
  void installed(int rank, uint64_t epoch, const rendezvous::LostSet& lost);
  void learned(int rank, const rendezvous::LostSet& lost, Time now);
  void evicted(int victim, Time now);
  void fenced(int rank) { ranks_[static_cast<size_t>(rank)].fenced = true; }

  void froze(int rank, Time now);
  void thawed(int rank, Time now);

  /// At the end of a run: `survivors` are the ranks that are neither dead nor fenced, `fenced` those that were evicted.
  void finish(const std::vector<int>& survivors, const std::vector<int>& fenced);
  /// The same where the network was cut: it excuses who learns late, and what the other side makes of an operation.
  void finish_cut(const std::vector<int>& survivors) { check_uniform(survivors); }

 private:
  struct Progress {
    uint64_t completed = 0;
    std::optional<uint64_t> failed_from;
    /// The last success after a thaw that came when the eviction was long decided.
    uint64_t completed_when_evicted = 0;
  };
  struct Rank {
    std::map<uint64_t, Progress> groups;
    std::map<int, Time> learned;
    std::optional<Time> frozen;
    std::optional<Time> thawed;
    Duration was_frozen{};  ///< Before it thawed.
    std::optional<Time> evicted;
    bool late_thaw = false;
    bool fenced = false;
  };

  void check_uniform(const std::vector<int>& survivors);
  void check_told(const std::vector<int>& survivors);
  void check_fence(const std::vector<int>& survivors, const std::vector<int>& fenced);

  std::vector<Rank> ranks_;
  std::map<uint64_t, std::vector<int>> views_;  ///< Lost ranks by epoch.
  std::optional<std::string> violation_;
};

}  // namespace horo::sim
