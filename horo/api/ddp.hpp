// ddp.h for C++: thin and header-only. Failures are exceptions (horo::Error).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horo/api/ddp.h"
#include "horo/api/horo.hpp"

namespace horo {

/// Of one model. See ddp.h for the order of the calls.
class Reducer {
 public:
  /// Called by all members of the group, which must outlive it.
  Reducer(const Group& group, const horo_reducer_options& options)
      : reducer_(create(group, options), horo_reducer_destroy), parameters_(options.parameter_count) {}

  size_t parameters() const { return parameters_; }
  size_t buckets() const { return static_cast<size_t>(horo_reducer_bucket_count(get())); }
  horo_bucket bucket(size_t index) const {
    horo_bucket bucket = HORO_BUCKET_INIT;
    check(horo_reducer_bucket(get(), index, &bucket));
    return bucket;
  }
  struct Slot {
    size_t bucket = 0;
    uint64_t offset = 0;  ///< Bytes.
  };
  Slot slot(size_t parameter) const {
    Slot slot;
    check(horo_reducer_slot(get(), parameter, &slot.bucket, &slot.offset));
    return slot;
  }
  /// Outlives rebuilds and the reducer.
  std::shared_ptr<void> memory(size_t bucket) const {
    horo_memory* memory = nullptr;
    check(horo_reducer_memory(get(), bucket, &memory));
    return {horo_memory_address(memory), [memory](void*) { horo_memory_destroy(memory); }};
  }

  /// True when the buckets were rebuilt.
  bool prepare_forward() {
    int rebuilt = 0;
    check(horo_reducer_prepare_forward(get(), &rebuilt));
    return rebuilt == 1;
  }
  void prepare_backward(bool synchronize = true) {
    check(horo_reducer_prepare_backward(get(), synchronize ? 1 : 0, nullptr, nullptr, 0));
  }
  /// `gradients`: what the unused ones hold; empty: none holds any.
  void prepare_backward(const std::vector<size_t>& unused, const std::vector<const void*>& gradients = {}) {
    check(horo_reducer_prepare_backward(get(), 1, unused.data(), gradients.empty() ? nullptr : gradients.data(),
                                        unused.size()));
  }
  /// Bits of horo_ready_event.
  unsigned ready(size_t parameter, const void* gradient) {
    unsigned events = 0;
    check(horo_reducer_ready(get(), parameter, gradient, &events));
    return events;
  }
  unsigned ready_all() {
    unsigned events = 0;
    check(horo_reducer_ready_all(get(), &events));
    return events;
  }
  unsigned end_backward() {
    unsigned events = 0;
    check(horo_reducer_end_backward(get(), &events));
    return events;
  }
  std::optional<size_t> take() {
    int64_t bucket = -1;
    check(horo_reducer_take(get(), &bucket));
    return bucket < 0 ? std::nullopt : std::optional<size_t>(static_cast<size_t>(bucket));
  }
  unsigned launched(size_t bucket) {
    unsigned events = 0;
    check(horo_reducer_launched(get(), bucket, &events));
    return events;
  }
  void deliver(size_t bucket, const void* result) { check(horo_reducer_deliver(get(), bucket, result)); }
  bool all_launched() const { return horo_reducer_all_launched(get()) == 1; }
  bool under_way() const { return horo_reducer_under_way(get()) == 1; }
  void fail(const std::string& why, horo_code code = HORO_INVALID_ARGUMENT) {
    check(horo_reducer_fail(get(), code, why.c_str()));
  }
  /// Outputs where the gradients were. One outcome for each parameter.
  std::vector<horo_outcome> finish(double timeout = -1) { return finish_at(nullptr, timeout); }
  std::vector<horo_outcome> finish_at(void* const* outputs, double timeout = -1) {
    std::vector<horo_outcome> outcomes(parameters_, HORO_REDUCED);
    check(horo_reducer_finish(get(), timeout, outputs, outcomes.data()));
    return outcomes;
  }

  void set_hook(const horo_hook_options& options) { check(horo_reducer_set_hook(get(), &options)); }
  void set_divisor(double divisor) { check(horo_reducer_set_divisor(get(), divisor)); }
  void set_sample_rate(uint64_t iterations) { check(horo_reducer_set_sample_rate(get(), iterations)); }
  void set_static_graph() { check(horo_reducer_set_static_graph(get())); }

  horo_reduction_statistics statistics() const {
    horo_reduction_statistics statistics = HORO_REDUCTION_STATISTICS_INIT;
    check(horo_reducer_statistics(get(), &statistics));
    return statistics;
  }
  std::vector<size_t> ready_order() const {
    std::vector<size_t> order(parameters_);
    order.resize(horo_reducer_ready_order(get(), order.data(), order.size()));
    return order;
  }
  horo_reducer* get() const { return reducer_.get(); }

 private:
  static horo_reducer* create(const Group& group, const horo_reducer_options& options) {
    horo_reducer* reducer = nullptr;
    check(horo_reducer_create(group.get(), &options, &reducer));
    return reducer;
  }
  std::unique_ptr<horo_reducer, void (*)(horo_reducer*)> reducer_;
  size_t parameters_;
};

}  // namespace horo
