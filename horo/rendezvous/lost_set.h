// The ranks known to be gone, and why. It only grows; it names a view of the membership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horo::rendezvous {

/// The values travel on the wire. Where two ranks give different reasons for one loss, the smaller value stays.
enum class LossReason : uint8_t {
  kKilled = 0,  ///< Its process has ended without a goodbye.
  kLeft = 1,    ///< It said goodbye.
  kFrozen = 2,  ///< It was silent for longer than the freeze limit, and is evicted.
  kLink = 3,    ///< It cannot be reached any more, and is evicted.
};
inline constexpr int kLossReasonCount = 4;

/// "killed", "left", "frozen", "link".
std::string_view name(LossReason reason);
/// Whether the rank may still be running and has to be told.
constexpr bool is_eviction(LossReason reason) { return reason >= LossReason::kFrozen; }

struct Loss {
  int rank = 0;
  LossReason reason = LossReason::kKilled;
  friend bool operator==(const Loss&, const Loss&) = default;
};

/// Sorted by rank. Sets are compared by their ranks alone: the reasons may differ between observers.
class LostSet {
 public:
  LostSet() = default;

  /// True when the rank was not in the set before.
  bool add(Loss loss);
  /// True when the set has grown.
  bool merge(const LostSet& other);

  bool contains(int rank) const { return reason(rank).has_value(); }
  std::optional<LossReason> reason(int rank) const;
  bool includes(const LostSet& other) const;
  bool same_ranks(const LostSet& other) const { return size() == other.size() && includes(other); }
  bool intersects(const std::vector<int>& ranks) const;

  size_t size() const { return losses_.size(); }
  bool empty() const { return losses_.empty(); }
  const std::vector<Loss>& losses() const { return losses_; }
  std::vector<int> ranks() const;
  /// "rank 2 (killed), rank 5 (frozen)"
  std::string to_string() const;
  /// Reasons included.
  friend bool operator==(const LostSet&, const LostSet&) = default;

 private:
  std::vector<Loss> losses_;
};

}  // namespace horo::rendezvous
