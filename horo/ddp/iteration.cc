#include "horo/ddp/iteration.h"

#include <algorithm>

#include "horo/base/check.h"

namespace horo::ddp {

Iteration::Iteration(IterationRules rules, size_t parameters)
    : rules_(rules),
      count_(parameters),
      bucket_of_(parameters),
      complete_(parameters, false),
      used_(parameters, false),
      global_used_(parameters, false),
      times_(parameters, 0),
      so_far_(parameters, 0) {}

void Iteration::set_buckets(const std::vector<Indices>& buckets, std::vector<bool> by_caller) {
  buckets_ = buckets;
  by_caller_ = std::move(by_caller);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (size_t parameter : buckets_[bucket]) bucket_of_[parameter] = bucket;
  }
  reset();
}

void Iteration::prepare(bool synchronize, std::span<const size_t> unused) {
  reset();
  phase_ = synchronize ? Phase::kExpecting : Phase::kAccumulating;
  if (!synchronize) return;
  if (rules_.looks_for_unused()) {
    unused_.assign(unused.begin(), unused.end());
  } else if (rules_.static_graph && learned_) {
    for (size_t parameter = 0; parameter < count_; ++parameter) {
      if (times_[parameter] == 0) unused_.push_back(parameter);
    }
  }
}

Iteration::Ready Iteration::ready(size_t parameter, bool has_gradient) {
  // Also in passes that only add up: what one of them used is reduced with the next iteration.
  if (has_gradient && phase_ != Phase::kFinished) used_[parameter] = true;
  if (phase_ == Phase::kFinished) return {{}, Wrong::kAfterTheEnd};
  if (phase_ != Phase::kExpecting) return {};
  arrived_ = true;
  if (rules_.static_graph) return ready_in_static_graph(parameter);
  Ready result;
  complete_unused(result.complete);
  if (complete_[parameter]) {
    result.wrong = Wrong::kTwice;
  } else {
    complete(parameter, result.complete);
  }
  return result;
}

Iteration::Ready Iteration::ready_in_static_graph(size_t parameter) {
  ++so_far_[parameter];
  if (delayed()) return {};
  Ready result;
  complete_unused(result.complete);
  if (so_far_[parameter] > times_[parameter]) {
    result.wrong = Wrong::kTooOften;
  } else if (so_far_[parameter] == times_[parameter]) {
    complete(parameter, result.complete);
  }
  return result;
}

Indices Iteration::ready_all() {
  Indices now;
  if (phase_ != Phase::kExpecting) return now;
  arrived_ = true;
  if (delayed()) return now;
  complete_unused(now);
  for (size_t parameter = 0; parameter < count_; ++parameter) {
    if (!complete_[parameter]) complete(parameter, now);
  }
  return now;
}

Indices Iteration::end_of_backward() {
  Indices now;
  if (phase_ != Phase::kExpecting) return now;
  arrived_ = true;
  if (!delayed()) {
    complete_unused(now);  // Where nothing else was ready: this rank has used no parameter at all.
    return now;
  }
  for (size_t parameter = 0; parameter < count_; ++parameter) {
    if (!complete_[parameter]) complete(parameter, now);
  }
  return now;
}

void Iteration::complete(size_t parameter, Indices& now) {
  complete_[parameter] = true;
  --pending_[bucket_of_[parameter]];
  order_.push_back(parameter);
  now.push_back(parameter);
}

void Iteration::complete_unused(Indices& now) {
  if (unused_done_) return;
  unused_done_ = true;
  for (size_t parameter : unused_) {
    if (!complete_[parameter]) complete(parameter, now);
  }
}

// What one rank finds unused may be used on another. A static graph knows what all of them use; otherwise the caller
// has promised that all ranks find the same, and set_global() looks.
bool Iteration::is_unused(size_t bucket) const {
  const auto unused = [this](size_t parameter) {
    if (rules_.static_graph) return globally_unused(parameter);
    return std::find(unused_.begin(), unused_.end(), parameter) != unused_.end() && !used_[parameter];
  };
  return std::all_of(buckets_[bucket].begin(), buckets_[bucket].end(), unused);
}

std::optional<Iteration::Launch> Iteration::launch() {
  if (phase_ != Phase::kExpecting || out_ || next_ == buckets_.size() || pending_[next_] > 0) return std::nullopt;
  Launch launch{next_, by_caller_[next_], rules_.skip_unused && is_unused(next_)};
  ++next_;
  skipped_[launch.bucket] = launch.skipped;
  if (launch.skipped) {
    launch.by_caller = false;
  } else if (launch.by_caller) {
    out_ = launch.bucket;
  }
  return launch;
}

void Iteration::launched(size_t bucket) {
  HORO_CHECK(out_ == bucket, "a bucket that is not with the caller");
  out_.reset();
}

std::vector<int32_t> Iteration::map() const {
  std::vector<int32_t> map;
  map.reserve(count_ + buckets_.size());
  for (size_t parameter = 0; parameter < count_; ++parameter) map.push_back(used_[parameter] ? 1 : 0);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) map.push_back(skipped_[bucket] ? 1 : 0);
  return map;
}

std::optional<size_t> Iteration::set_global(std::span<const int32_t> sums, int members) {
  for (size_t parameter = 0; parameter < count_; ++parameter) global_used_[parameter] = sums[parameter] > 0;
  knows_global_ = true;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const int32_t skipping = sums[count_ + bucket];
    if (skipping != 0 && skipping != members) return bucket;
  }
  return std::nullopt;
}

Indices Iteration::missing() const {
  Indices missing;
  for (size_t parameter = 0; parameter < count_; ++parameter) {
    if (!complete_[parameter]) missing.push_back(parameter);
  }
  return missing;
}

void Iteration::finish() {
  if (delayed()) {
    times_ = so_far_;
    learned_ = true;
  }
  phase_ = Phase::kFinished;
  std::fill(used_.begin(), used_.end(), false);
}

void Iteration::reset() {
  phase_ = Phase::kIdle;
  arrived_ = false;
  next_ = 0;
  out_.reset();
  order_.clear();
  unused_.clear();
  unused_done_ = false;
  std::fill(complete_.begin(), complete_.end(), false);
  std::fill(so_far_.begin(), so_far_.end(), 0);
  skipped_.assign(buckets_.size(), false);
  pending_.clear();
  for (const Indices& bucket : buckets_) pending_.push_back(bucket.size());
  if (!rules_.static_graph) knows_global_ = false;
}

}  // namespace horo::ddp
