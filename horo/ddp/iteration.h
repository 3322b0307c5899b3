// One iteration as a state machine: which gradients are there, and which buckets may be handed in, in which order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/ddp/buckets.h"

namespace horo::ddp {

struct IterationRules {
  bool find_unused = false;
  bool static_graph = false;
  bool skip_unused = false;

  /// Parameters may get no gradient in some iterations and some in others. A static graph learns it once instead.
  bool looks_for_unused() const { return find_unused && !static_graph; }
};

/// Pure: no thread, clock or memory of gradients. The caller packs gradients, and does so before it asks for launches.
class Iteration {
 public:
  Iteration(IterationRules rules, size_t parameters);

  /// Buckets are numbered in launch order; those `by_caller` are reduced by the user of the reducer. Between
  /// iterations.
  void set_buckets(const std::vector<Indices>& buckets, std::vector<bool> by_caller);
  void set_by_caller(std::vector<bool> by_caller) { by_caller_ = std::move(by_caller); }
  /// Before the first iteration.
  void make_static() { rules_.static_graph = true; }
  const IterationRules& rules() const { return rules_; }

  enum class Phase : uint8_t {
    kIdle,          ///< Gradients are none of its business: before the first iteration, and after one that failed.
    kAccumulating,  ///< The next backward pass only adds up.
    kExpecting,     ///< Gradients come.
    kFinished,      ///< No more may come until the next forward pass.
  };
  Phase phase() const { return phase_; }
  /// Something was ready since prepare().
  bool under_way() const { return phase_ == Phase::kExpecting && arrived_; }

  void prepare(bool synchronize, std::span<const size_t> unused);

  /// `parameter` has a gradient (or is ready without one). The parameters that are complete now, in order: their
  /// gradients are to be packed. None while it is ignored, delayed, or one of several calls of a static graph.
  enum class Wrong : uint8_t { kTwice, kTooOften, kAfterTheEnd };
  struct Ready {
    Indices complete;
    std::optional<Wrong> wrong;
  };
  Ready ready(size_t parameter, bool has_gradient);
  /// All that are not complete yet.
  Indices ready_all();
  /// In the first iteration of a static graph nothing is complete before the end of the backward pass.
  bool delayed() const { return rules_.static_graph && !learned_; }
  /// What is complete because no more gradients come.
  Indices end_of_backward();

  /// The next bucket to hand in: it is complete, and all before it were handed in. A bucket of the caller's stops the
  /// others until launched().
  struct Launch {
    size_t bucket = 0;
    bool by_caller = false;
    bool skipped = false;  ///< Nobody uses a parameter of it: there is nothing to reduce.
  };
  std::optional<Launch> launch();
  void launched(size_t bucket);
  bool all_launched() const { return phase_ == Phase::kExpecting && next_ == buckets_.size() && !out_; }
  /// Of a bucket that was launched.
  bool skipped(size_t bucket) const { return skipped_[bucket]; }
  /// The bucket that is with the caller.
  std::optional<size_t> out() const { return out_; }

  /// Whether the ranks have to put together what each of them used.
  bool needs_map() const { return rules_.looks_for_unused() || delayed(); }
  /// One number for each parameter that got a gradient since the last finished iteration, one for each skipped bucket.
  std::vector<int32_t> map() const;
  /// Sums over all ranks. A bucket that some skipped and others did not is returned.
  std::optional<size_t> set_global(std::span<const int32_t> sums, int members);
  bool globally_unused(size_t parameter) const { return knows_global_ && !global_used_[parameter]; }

  Indices missing() const;
  /// In the order in which they became complete.
  const Indices& order() const { return order_; }

  /// Ends with success: the ranks agree that it did. Or not.
  void finish();
  void reset();

 private:
  Ready ready_in_static_graph(size_t parameter);
  void complete(size_t parameter, Indices& now);
  void complete_unused(Indices& now);
  bool is_unused(size_t bucket) const;

  IterationRules rules_;
  const size_t count_;
  std::vector<Indices> buckets_;
  std::vector<size_t> bucket_of_;
  std::vector<bool> by_caller_;

  Phase phase_ = Phase::kIdle;
  bool arrived_ = false;
  std::vector<bool> complete_;
  std::vector<size_t> pending_;  ///< Of each bucket.
  std::vector<bool> skipped_;    ///< Of each bucket.
  size_t next_ = 0;              ///< The bucket to be launched next.
  std::optional<size_t> out_;
  Indices order_;
  Indices unused_;            ///< As this rank sees it.
  bool unused_done_ = false;  ///< They count as ready.
  std::vector<bool> used_;    ///< Since the last finished iteration, also in passes that only added up.

  bool knows_global_ = false;
  std::vector<bool> global_used_;

  bool learned_ = false;          ///< Of a static graph: its first iteration is over.
  std::vector<uint32_t> times_;   ///< How often each parameter is ready in an iteration of a static graph.
  std::vector<uint32_t> so_far_;  ///< In this one.
};

}  // namespace horo::ddp
