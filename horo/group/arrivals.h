// Data streams that peers have opened, until the groups they belong to take them.
//
// A peer may hear of a new group earlier than this rank and open its streams at once: such a stream waits until the
// terms of the group come and show whether it belongs there. What waits is bounded, in number and in time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/attach.h"

namespace horo::group {

/// No thread, no clock of its own, no lock.
class Arrivals {
 public:
  struct Options {
    int rank = 0;          ///< This one.
    bool encrypt = false;  ///< HORO_ENCRYPT
    Duration patience = std::chrono::seconds(30);
  };
  /// Streams of one peer for groups that are not known here yet.
  static constexpr size_t kMostEarly = 256;

  explicit Arrivals(const Options& options) : options_(options) {}

  /// The terms of a group of `ranks` have come. What waits for it and does not fit is closed; each is named in the
  /// statuses that are returned.
  std::vector<Status> expect(uint64_t group, uint64_t epoch, const std::vector<int>& ranks);
  /// Whether a genuine stream is welcome: kIncompatible for another epoch or protection, kInvalidArgument for a member
  /// or a group that it has no business with, kUnavailable when too many wait.
  Status admit(const net::AttachRequest& about) const;
  /// An admitted stream.
  void add(net::AttachedStream stream, Time now);
  std::optional<net::AttachedStream> take(uint64_t group, int from, uint32_t stream);
  /// The group has its streams, or will never be: no more of them are welcome.
  void close(uint64_t group);

  /// Closes what has waited too long for its group.
  void expire(Time now);
  Deadline deadline() const;
  size_t waiting() const { return streams_.size(); }

 private:
  using Name = std::tuple<uint64_t, int, uint32_t>;  ///< Group, opener, number.
  struct Expected {
    uint64_t epoch = 0;
    std::set<int> openers;
    std::set<std::pair<int, uint32_t>> come;
  };
  struct Waiting {
    net::AttachedStream stream;
    Time until{};  ///< Where its group is not known.
  };
  static constexpr size_t kClosedKept = 256;

  static Name name_of(const net::AttachRequest& about);
  Status fits(const net::AttachRequest& about, const Expected& expected) const;
  Status protection_fits(const net::AttachRequest& about) const;

  const Options options_;
  std::map<uint64_t, Expected> expected_;
  std::map<Name, Waiting> streams_;
  std::map<int, size_t> early_;  ///< How many of whom wait for unknown groups.
  std::deque<uint64_t> closed_;  ///< The last ones, so that late streams are refused at once.
};

}  // namespace horo::group
