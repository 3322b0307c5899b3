#include "horo/engine/observation.h"

#include <utility>

#include "horo/engine/runner.h"

namespace horo::engine {

namespace {

void add_tensors(TraceEvent& event, const Unit& unit) {
  for (const Tensor& tensor : unit.tensors) {
    event.tensors.push_back({tensor.name, tensor.kind, tensor.dtype, tensor.bytes()});
  }
}

}  // namespace

TraceEvent Observation::event_of(TraceStep step, Time at, uint64_t batch) const {
  TraceEvent event;
  event.step = step;
  event.set = set_;
  event.at = at;
  event.batch = batch;
  return event;
}

void Observation::handed_in(const Submission& submission) const {
  const Unit& unit = submission.unit();
  if (metrics_ != nullptr) metrics_->of(unit.kind()).handed_in.add(unit.tensors.size());
}

void Observation::announced(uint64_t by_number, uint64_t in_full) const {
  if (metrics_ == nullptr) return;
  if (by_number > 0) metrics_->announced_by_number.add(by_number);
  if (in_full > 0) metrics_->announced_in_full.add(in_full);
}

void Observation::agreed(const Work& work, Time now) const {
  if (metrics_ != nullptr) {
    for (const Handle& submission : work.submissions) {
      if (submission) metrics_->of(submission->unit().kind()).wait.add(now - submission->handed_in());
    }
  }
  if (traced()) trace_agreed(work);
}

void Observation::count_done(const Work& work, const std::vector<Status>& outcomes) const {
  KindMetrics& kind = metrics_->of(work.units.front()->kind());  // A batch has one.
  kind.batches.add();
  const Time now = Clock::now();
  uint64_t tensors = 0, bytes = 0;
  for (size_t i = 0; i < work.submissions.size(); ++i) {
    if (!work.submissions[i]) continue;
    const Submission& submission = *work.submissions[i];
    if (i < outcomes.size() && !outcomes[i].ok()) {
      kind.errors.add(submission.size());
      continue;
    }
    tensors += submission.size();
    bytes += submission.unit().bytes();
    kind.latency.add(now - submission.handed_in());
  }
  if (tensors > 0) kind.tensors.add(tensors);
  if (bytes > 0) kind.bytes.add(bytes);
}

void Observation::trace_handed_in(const Submission& submission) const {
  TraceEvent event = event_of(TraceStep::kHandedIn, submission.handed_in());
  add_tensors(event, submission.unit());
  timeline_->push(std::move(event));
}

void Observation::trace_ready(const std::string& key, std::vector<int> ranks, Time now) const {
  TraceEvent event = event_of(TraceStep::kReady, now);
  event.words = key;
  event.ranks = std::move(ranks);
  timeline_->push(std::move(event));
}

// Not at the time at which the loop's turn began: the tensors may have been handed in after that.
void Observation::trace_agreed(const Work& work) const {
  TraceEvent event = event_of(TraceStep::kAgreed, Clock::now(), work.number);
  for (const UnitPtr& unit : work.units) add_tensors(event, *unit);
  timeline_->push(std::move(event));
}

void Observation::trace_cycle() const { timeline_->push(event_of(TraceStep::kCycle, Clock::now())); }

void Observation::trace_batch(TraceStep step, const Work& work, std::string words) const {
  TraceEvent event = event_of(step, Clock::now(), work.number);
  event.words = std::move(words);
  timeline_->push(std::move(event));
}

void Observation::begin(const Doing& doing) const {
  TraceEvent event = event_of(TraceStep::kBegin, Clock::now(), doing.batch);
  event.carries = doing.carries;
  event.part = doing.part;
  event.words = doing.name;
  timeline_->push(std::move(event));
}

void Observation::end(const Doing& doing, std::string_view algorithm) const {
  TraceEvent event = event_of(TraceStep::kEnd, Clock::now(), doing.batch);
  event.carries = doing.carries;
  event.part = doing.part;
  if (doing.carries) event.words = doing.name;
  event.detail = algorithm;
  timeline_->push(std::move(event));
}

void Observation::done(const Work& work, const std::vector<Status>& outcomes) const {
  if (metrics_ != nullptr) count_done(work, outcomes);
  if (!traced()) return;
  for (const Status& outcome : outcomes) {
    if (!outcome.ok()) return trace_batch(TraceStep::kDone, work, outcome.to_string());
  }
  trace_batch(TraceStep::kDone, work, {});
}

void Observation::ended(const Status& why) const {
  if (!traced()) return;
  TraceEvent event = event_of(TraceStep::kEnded, Clock::now());
  event.words = why.to_string();
  timeline_->push(std::move(event));
}

void Observation::failed(const std::vector<Handle>& submissions, const Status& why) const {
  for (const Handle& submission : submissions) {
    if (metrics_ == nullptr || !submission || submission->size() == 0) continue;
    metrics_->of(submission->unit().kind()).errors.add(submission->size());
  }
  if (!traced()) return;
  TraceEvent event = event_of(TraceStep::kFailed, Clock::now());
  for (const Handle& submission : submissions) {
    if (submission) add_tensors(event, submission->unit());
  }
  event.words = why.to_string();
  timeline_->push(std::move(event));
}

}  // namespace horo::engine
