#include "horo/engine/fusion.h"

#include <bit>

namespace horo::engine {

namespace {

/// From here on a copy in and a copy out cost more than an operation of its own; and what lies in memory that peers can
/// read needs none.
constexpr uint64_t kLarge = 1 << 20;
/// On a device copies are fast, and an operation begins and ends slowly.
constexpr uint64_t kLargeOnDevice = 32 << 20;

bool is_large(const Tensor& tensor) {
  return tensor.bytes() >= (tensor.place == Place::kDevice ? kLargeOnDevice : kLarge);
}

}  // namespace

bool fusible(const Tensor& a, const Tensor& b) {
  if (a.kind != b.kind || a.place != b.place) return false;
  switch (a.kind) {
    case Kind::kAllreduce:
      if (a.reduction != Reduction::kAdasum && (is_large(a) || is_large(b))) return false;
      [[fallthrough]];
    case Kind::kReduceScatter:
      return a.dtype == b.dtype && a.reduction == b.reduction &&
             std::bit_cast<uint64_t>(a.prescale) == std::bit_cast<uint64_t>(b.prescale) &&
             std::bit_cast<uint64_t>(a.postscale) == std::bit_cast<uint64_t>(b.postscale);
    case Kind::kBroadcast:
      return a.root == b.root;  // Bytes are bytes.
    case Kind::kAllgather:
    case Kind::kBarrier:
      return true;
    case Kind::kAlltoall:
    case Kind::kAddSet:
    case Kind::kRemoveSet:
      return false;
  }
  return false;
}

bool fusible(const Unit& a, const Unit& b) {
  for (const Tensor& left : a.tensors) {
    if (!fusible(a.tensors.front(), left)) return false;  // A group of mixed types is run tensor by tensor.
  }
  for (const Tensor& right : b.tensors) {
    if (!fusible(a.tensors.front(), right)) return false;
  }
  return true;
}

std::vector<std::vector<size_t>> plan_fusion(const std::vector<const Unit*>& units, const FusionRules& rules) {
  std::vector<std::vector<size_t>> batches;
  std::vector<bool> taken(units.size(), false);
  const auto alone = [&](const Unit& unit) {
    return rules.threshold == 0 || (!rules.across_groups && unit.tensors.size() > 1);
  };
  for (size_t first = 0; first < units.size(); ++first) {
    if (taken[first]) continue;
    std::vector<size_t>& batch = batches.emplace_back();
    batch.push_back(first);
    uint64_t bytes = units[first]->bytes();
    if (alone(*units[first])) continue;
    for (size_t next = first + 1; next < units.size() && bytes < rules.threshold; ++next) {
      const Unit& unit = *units[next];
      if (taken[next] || alone(unit) || bytes + unit.bytes() > rules.threshold) continue;
      if (!fusible(*units[first], unit)) continue;
      taken[next] = true;
      batch.push_back(next);
      bytes += unit.bytes();
    }
  }
  return batches;
}

}  // namespace horo::engine
