// What happens to the tensors of one process set, told to the timeline and the metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/engine/metrics.h"
#include "horo/engine/submission.h"
#include "horo/engine/timeline.h"

namespace horo::engine {

struct Work;

/// Cheap to copy; thread-safe. While no timeline is written its part costs one relaxed load per call. The numbers are
/// always counted: a few relaxed additions and one look at the clock per operation.
class Observation {
 public:
  /// Nobody listens.
  Observation() = default;
  Observation(int set, Timeline* timeline, SetMetrics* metrics) : set_(set), timeline_(timeline), metrics_(metrics) {}

  bool traced() const { return timeline_ != nullptr && timeline_->on(); }

  void handed_in(const Submission& submission) const;
  /// The loop has taken it up. Told apart from the hand-in, which any thread makes, so that the timeline hears of a
  /// tensor's steps in their order.
  void taken_up(const Submission& submission) const {
    if (traced()) trace_handed_in(submission);
  }
  /// Units that this rank has announced since the last time.
  void announced(uint64_t by_number, uint64_t in_full) const;
  void message_sent() const {
    if (metrics_ != nullptr) metrics_->messages_sent.add();
  }
  void message_received() const {
    if (metrics_ != nullptr) metrics_->messages_received.add();
  }
  void stalled() const {
    if (metrics_ != nullptr) metrics_->stalls.add();
  }
  /// `ranks` have handed the unit in, as far as is known here.
  void ready(const std::string& key, std::vector<int> ranks, Time now) const {
    if (traced()) trace_ready(key, std::move(ranks), now);
  }
  /// All ranks have; the batch is to be run.
  void agreed(const Work& work, Time now) const;
  /// The coordinator has closed its window.
  void cycle() const {
    if (traced() && timeline_->marks_cycles()) trace_cycle();
  }
  /// The batch is no longer queued.
  void begun(const Work& work) const {
    if (traced()) trace_batch(TraceStep::kBegun, work, {});
  }
  /// What is being done to a batch, or, if it is not empty, to the places `part` of it. Only while traced().
  struct Doing {
    uint64_t batch = 0;
    const std::vector<uint32_t>& part;
    std::string_view name;
    bool carries = false;  ///< The bytes move between ranks.
  };
  void begin(const Doing& doing) const;
  void end(const Doing& doing, std::string_view algorithm = {}) const;
  /// To be called before anybody learns of it.
  void done(const Work& work, const std::vector<Status>& outcomes) const;
  /// The submissions end without having been run.
  void failed(const std::vector<Handle>& submissions, const Status& why) const;
  /// The set itself has ended.
  void ended(const Status& why) const;

 private:
  void count_done(const Work& work, const std::vector<Status>& outcomes) const;
  void trace_handed_in(const Submission& submission) const;
  void trace_ready(const std::string& key, std::vector<int> ranks, Time now) const;
  void trace_agreed(const Work& work) const;
  void trace_cycle() const;
  void trace_batch(TraceStep step, const Work& work, std::string words) const;
  TraceEvent event_of(TraceStep step, Time at, uint64_t batch = 0) const;

  int set_ = 0;
  Timeline* timeline_ = nullptr;
  SetMetrics* metrics_ = nullptr;
};

/// What is done to a batch, as long as it lives.
class Activity {
 public:
  Activity(const Observation& observation, const Observation::Doing& doing)
      : observation_(observation), doing_(doing), traced_(observation.traced()) {
    if (traced_) observation_.begin(doing_);
  }
  ~Activity() {
    if (traced_) observation_.end(doing_);
  }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  const Observation& observation_;
  const Observation::Doing doing_;
  const bool traced_;
};

}  // namespace horo::engine
