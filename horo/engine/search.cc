#include "horo/engine/search.h"

#include <algorithm>
#include <cmath>

namespace horo::engine {

namespace {

constexpr size_t kTrialPairs = 3, kProofPairs = 5;
constexpr double kHopeless = 0.6;      ///< A setting that is so much slower is not looked at twice.
constexpr double kOtherTraffic = 0.3;  ///< Relative change of what a step moves.
constexpr int kRestartsPerTrial = 1;   ///< On average.

double median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<long>(middle), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + static_cast<long>(middle))) / 2;
}

Point start_of(const std::vector<Dimension>& dimensions) {
  Point point;
  for (const Dimension& dimension : dimensions) point.push_back(dimension.start);
  return point;
}

/// The middle, then the middles of the halves, and so on, so that few trials see the whole range.
std::vector<size_t> scattered(size_t values) {
  std::vector<size_t> order;
  for (size_t parts = 2; order.size() < values; parts *= 2) {
    for (size_t odd = 1; odd < parts; odd += 2) {
      const size_t value = odd * values / parts;
      if (std::find(order.begin(), order.end(), value) == order.end()) order.push_back(value);
    }
  }
  return order;
}

}  // namespace

Search::Search(SearchOptions options)
    : options_(std::move(options)), start_(start_of(options_.dimensions)), best_(start_), tried_(start_) {
  for (const Dimension& dimension : options_.dimensions) orders_.push_back(scattered(dimension.values));
  if (!start_.empty()) begun_with_ = start_[0];
  next_trial();
}

uint64_t Search::most_samples(int trials) {
  const auto times = static_cast<uint64_t>(trials);
  const uint64_t once = times * 2 * kTrialPairs + 2 * kProofPairs;
  return once + ((times + 1) * kRestartsPerTrial + 1) * 2 * kProofPairs;
}

// A B, B A, A B, ...: a drift helps both alike.
bool Search::takes_new() const {
  const size_t pair = (old_.size() + new_.size()) / 2;
  const bool first = old_.size() == new_.size();
  return (pair % 2 == 0) != first;
}

const Point& Search::point() const {
  switch (phase_) {
    case Phase::kSearch:
      return takes_new() ? tried_ : best_;
    case Phase::kProof:
      return takes_new() ? best_ : start_;
    case Phase::kDone:
      break;
  }
  return best_;
}

void Search::add(double score, double traffic) {
  if (done()) return;
  if (old_.empty() && new_.empty()) traffic_ = traffic;
  if (std::abs(traffic - traffic_) > kOtherTraffic * traffic_) {
    begin_again();
    return;
  }
  (takes_new() ? new_ : old_).push_back(score);
  const Verdict verdict = judge();
  if (verdict == Verdict::kOpen) return;
  if (phase_ == Phase::kProof) {
    return verdict == Verdict::kBetter ? finish(best_, median(new_) / median(old_)) : finish(start_, 1);
  }
  if (verdict == Verdict::kBetter) best_ = tried_;
  next_trial();
}

// The sample belongs to neither: what was measured before it says nothing about what comes.
void Search::begin_again() {
  old_.clear();
  new_.clear();
  if (++restarts_ <= (options_.trials + 1) * kRestartsPerTrial) return;
  finish(start_, 1);  // Nothing can be measured here.
}

Search::Verdict Search::judge() const {
  if (old_.size() != new_.size()) return Verdict::kOpen;
  const size_t pairs = old_.size();
  const size_t wanted = phase_ == Phase::kProof ? kProofPairs : kTrialPairs;
  size_t wins = 0;
  for (size_t i = 0; i < pairs; ++i) wins += new_[i] > old_[i] ? 1 : 0;
  // One pair may be lost. What cannot win any more, or is far behind, is not measured to the end.
  if (pairs - wins > 1 || median(new_) < kHopeless * median(old_)) return Verdict::kNotBetter;
  if (pairs < wanted) return Verdict::kOpen;
  return median(new_) > median(old_) * (1 + options_.margin) ? Verdict::kBetter : Verdict::kNotBetter;
}

/// The next value of this dimension that is worth a look. False: there is none.
bool Search::next_value() {
  const Dimension& dimension = options_.dimensions[dimension_];
  while (looked_at_ < dimension.values) {
    const size_t value = orders_[dimension_][looked_at_++];
    if (value == best_[dimension_] || value == begun_with_) continue;
    tried_ = best_;
    tried_[dimension_] = value;
    return true;
  }
  return false;
}

void Search::next_trial() {
  old_.clear();
  new_.clear();
  const size_t dimensions = options_.dimensions.size();
  while (barren_ < dimensions && trials_ < options_.trials) {
    if (next_value()) {
      ++trials_;
      return;
    }
    barren_ = best_[dimension_] == begun_with_ ? barren_ + 1 : 1;
    dimension_ = (dimension_ + 1) % dimensions;
    looked_at_ = 0;
    begun_with_ = best_[dimension_];
  }
  prove();
}

void Search::prove() {
  if (best_ == start_) return finish(start_, 1);
  phase_ = Phase::kProof;
}

void Search::finish(Point found, double gain) {
  best_ = std::move(found);
  gain_ = gain;
  phase_ = Phase::kDone;
}

}  // namespace horo::engine
