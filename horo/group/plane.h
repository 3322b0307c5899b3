// The data plane of a group: how its operations move bytes. One kind per way its members reach each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/collective/operation.h"

namespace horo::group {

/// One operation on one member.
struct Job {
  uint64_t number = 0;
  const collective::Operation& operation;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  Deadline deadline;
  bool may_spin = true;  ///< False on the library's own threads, which would steal from the application.
};

/// How far the queues of all members have come on their devices, in memory that they share.
class DeviceBoard {
 public:
  virtual ~DeviceBoard() = default;
  /// This member's, by one thread. False, and nothing changed, if the group is over.
  virtual bool advance(uint64_t count) = 0;
  /// Whether all members have come so far. After freeze() that is final, and the same for all.
  virtual bool all_at(uint64_t count) const = 0;
  virtual void freeze() = 0;
};

/// Used by the holder of the group's execution token, except for revoke().
///
/// run() ends in success, in kMismatch or kUnavailable (on all members alike; the group stays usable), or in kStopped,
/// kPeerLost, kTimeout or kCorrupt, after which the group is over.
class Plane {
 public:
  virtual ~Plane() = default;
  Plane() = default;
  Plane(const Plane&) = delete;
  Plane& operator=(const Plane&) = delete;

  /// "shm", "tcp", "inproc", "shm+tcp".
  virtual std::string_view transport_name() const = 0;
  /// What ran last: "direct", "pairwise", ...
  virtual std::string_view algorithm_name() const = 0;

  /// How many ways (Operation::way) an operation can take here.
  enum class Ways : uint8_t { kOne, kAlgorithms, kLevelsAndAlgorithms };
  virtual Ways ways() const { return Ways::kOne; }

  virtual Status run(const Job& job) = 0;

  /// From any thread, any number of times: every operation that is not decided yet ends, now and later. `gone` are
  /// members (not ranks) that are lost.
  virtual void revoke(const std::vector<int>& gone) = 0;

  /// Null where not all members share memory.
  virtual DeviceBoard* device_board() { return nullptr; }

  /// Members that this plane itself has found to be gone.
  virtual std::vector<int> gone() const = 0;

  /// Whether outcomes are equal on all survivors without asking them. If not, the group settles a failed operation with
  /// the others: held() and serve() say what can be given, accept() takes what is given.
  virtual bool decides_alone() const = 0;
  /// The last operation whose whole result lies here, delivered or not.
  virtual uint64_t held() const = 0;
  /// The retained result of `operation`, to be served to a member that lacks it; empty if it is not retained.
  virtual std::span<const std::byte> retained(uint64_t operation) const = 0;
  /// Ends `job` with a result that another member served (empty: the one held here).
  virtual Status accept(const Job& job, std::span<const std::byte> served) = 0;
};

}  // namespace horo::group
