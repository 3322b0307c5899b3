#include "horo/rendezvous/lost_set.h"

#include <algorithm>
#include <array>

#include "horo/base/text.h"

namespace horo::rendezvous {

namespace {

template <class Losses>
auto lower_bound(Losses& losses, int rank) {
  return std::lower_bound(losses.begin(), losses.end(), rank,
                          [](const Loss& loss, int wanted) { return loss.rank < wanted; });
}

}  // namespace

std::string_view name(LossReason reason) {
  constexpr std::array<std::string_view, kLossReasonCount> kNames = {"killed", "left", "frozen", "link"};
  auto index = static_cast<size_t>(reason);
  return index < kNames.size() ? kNames[index] : "unknown";
}

bool LostSet::add(Loss loss) {
  auto place = lower_bound(losses_, loss.rank);
  if (place != losses_.end() && place->rank == loss.rank) {
    place->reason = std::min(place->reason, loss.reason);
    return false;
  }
  losses_.insert(place, loss);
  return true;
}

bool LostSet::merge(const LostSet& other) {
  bool grown = false;
  for (const Loss& loss : other.losses_) grown |= add(loss);
  return grown;
}

std::optional<LossReason> LostSet::reason(int rank) const {
  auto place = lower_bound(losses_, rank);
  if (place == losses_.end() || place->rank != rank) return std::nullopt;
  return place->reason;
}

bool LostSet::includes(const LostSet& other) const {
  return std::all_of(other.losses_.begin(), other.losses_.end(),
                     [this](const Loss& loss) { return contains(loss.rank); });
}

bool LostSet::intersects(const std::vector<int>& ranks) const {
  return std::any_of(ranks.begin(), ranks.end(), [this](int rank) { return contains(rank); });
}

std::vector<int> LostSet::ranks() const {
  std::vector<int> ranks;
  ranks.reserve(losses_.size());
  for (const Loss& loss : losses_) ranks.push_back(loss.rank);
  return ranks;
}

std::string LostSet::to_string() const {
  std::string joined;
  for (const Loss& loss : losses_) {
    joined += text(joined.empty() ? "" : ", ", "rank ", loss.rank, " (", name(loss.reason), ")");
  }
  return joined.empty() ? "no rank" : joined;
}

}  // namespace horo::rendezvous
