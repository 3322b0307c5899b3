#include "horo/engine/metrics.h"

#include <algorithm>

namespace horo::engine {

namespace {

size_t place_of(int number) { return static_cast<size_t>(std::clamp(number, 0, Metrics::kMostSets)); }

}  // namespace

Metrics::~Metrics() {
  for (std::atomic<SetMetrics*>& set : sets_) delete set.load(std::memory_order_relaxed);
}

SetMetrics& Metrics::set(int number) {
  std::atomic<SetMetrics*>& place = sets_[place_of(number)];
  if (SetMetrics* known = place.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<SetMetrics>();
  SetMetrics* first = nullptr;
  if (place.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *first;
}

const SetMetrics* Metrics::find(int number) const {
  return number < 0 ? nullptr : sets_[place_of(number)].load(std::memory_order_acquire);
}

std::map<int, const SetMetrics*> Metrics::all() const {
  std::map<int, const SetMetrics*> all;
  for (int number = 0; number <= kMostSets; ++number) {
    if (const SetMetrics* set = find(number)) all.emplace(number, set);
  }
  return all;
}

}  // namespace horo::engine
