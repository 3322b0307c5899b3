// The end of an iteration: results on all ranks, or the same error on all of them.
#include <algorithm>

#include "horo/base/text.h"
#include "horo/ddp/reducer.h"
#include "horo/kernel/reduce.h"

namespace horo::ddp {

namespace {

constexpr size_t kNamesInAMessage = 8;

}  // namespace

/// Whether ranks that see nothing wrong must still ask the others: a bucket of the caller's can fail on one rank
/// without any operation that would tell the others.
bool Reducer::needs_agreement() const {
  return std::any_of(built_->exchanges.begin(), built_->exchanges.end(),
                     [](const auto& exchange) { return exchange == nullptr; });
}

/// Why this iteration cannot be finished, as far as this rank sees.
std::optional<Status> Reducer::find_fault() const {
  const Indices missing = iteration_.missing();
  if (!missing.empty()) {
    std::string names;
    for (size_t i = 0; i < std::min(missing.size(), kNamesInAMessage); ++i) {
      names += text(i == 0 ? "" : ", ", named(missing[i]));
    }
    if (missing.size() > kNamesInAMessage) names += text(" and ", missing.size() - kNamesInAMessage, " more");
    return Status(Code::kInvalidArgument,
                  text(missing.size() == 1 ? "parameter " : "parameters ", names,
                       " got no gradient in this iteration: use every output of the model in the loss, or say "
                       "find_unused_parameters=True"));
  }
  if (iteration_.out()) {
    return Status(Code::kInvalidArgument, text(named_bucket(*iteration_.out()), " was not taken to the end"));
  }
  for (size_t bucket = 0; bucket < built_->exchanges.size(); ++bucket) {
    const bool dense = built_->memory[bucket] != nullptr;
    if (built_->exchanges[bucket] == nullptr && dense && !delivered_[bucket] && !iteration_.skipped(bucket)) {
      return Status(Code::kInvalidArgument, text(named_bucket(bucket), ": the hook has delivered no result"));
    }
  }
  return std::nullopt;
}

Status Reducer::finish(Deadline deadline, std::span<std::byte* const> outputs, std::span<Outcome> outcomes) {
  std::lock_guard lock(mutex_);
  if (iteration_.phase() != Iteration::Phase::kExpecting) {
    return {Code::kInvalidArgument, "no iteration is under way: prepare a backward pass before it is finished"};
  }
  pack(iteration_.end_of_backward());
  launch();
  if (times_.backward_end == Time()) times_.backward_end = Clock::now();
  if (!failure_) {
    if (auto fault = find_fault()) fail_here(*fault);
  }
  if (!failure_) {
    const Waited collected = collect(deadline, outputs);
    if (!collected.ended) return collected.status;
    if (collected.status.ok()) {
      succeed(outputs, outcomes);
      return {};
    }
  }
  return settle(deadline);
}

Waited Reducer::collect(Deadline deadline, std::span<std::byte* const> outputs) {
  // Before anything is copied out it must be known what nobody used.
  if (map_ticket_ != 0) {
    Waited map = await_map(deadline);
    if (!map.ended || !map.status.ok()) return map;
  }
  for (; copied_ < tickets_.size(); ++copied_) {
    if (tickets_[copied_] != 0) {
      Waited bucket = pipeline_.wait(tickets_[copied_], deadline);
      if (!bucket.ended) return bucket;
      if (!bucket.status.ok()) {
        failure_ = bucket.status.prefixed(named_bucket(copied_));
        return {true, *failure_};
      }
    }
    if (!needs_agreement()) copy_out(copied_, outputs);
  }
  if (!needs_agreement()) return {true, {}};
  Waited agreed = await_agreement(deadline);
  if (agreed.ended && agreed.status.ok()) {
    for (size_t bucket = 0; bucket < tickets_.size(); ++bucket) copy_out(bucket, outputs);
  }
  return agreed;
}

Waited Reducer::await_map(Deadline deadline) {
  Waited map = pipeline_.wait(map_ticket_, deadline);
  if (!map.ended) return map;
  if (!map.status.ok()) {
    failure_ = map.status.prefixed("what the ranks used");
    return {true, *failure_};
  }
  if (const auto bucket = iteration_.set_global(map_, group_->size())) {
    fail_here(Status(Code::kMismatch, text(named_bucket(*bucket),
                                           " is unused on some ranks but not on all; that is not "
                                           "allowed with skip_all_reduce_unused_params")));
    return {true, *failure_};
  }
  return map;
}

/// Ranks at which a hook failed call something else here.
Waited Reducer::await_agreement(Deadline deadline) {
  if (agreement_ticket_ == 0) {
    auto* flag = reinterpret_cast<std::byte*>(&nothing_wrong_);
    agreement_ = std::make_unique<SingleExchange>(Exchange::Step{allreduce_of(DType::kI32, 1), flag, flag, 0});
    agreement_ticket_ = pipeline_.submit(agreement_.get());
  }
  Waited agreed = pipeline_.wait(agreement_ticket_, deadline);
  if (agreed.ended && !agreed.status.ok()) failure_ = agreed.status.prefixed("the end of an iteration");
  return agreed;
}

std::byte* Reducer::place_of(size_t parameter, std::span<std::byte* const> outputs) const {
  return outputs.empty() ? const_cast<std::byte*>(gradients_[parameter]) : outputs[parameter];
}

void Reducer::copy_out(size_t index, std::span<std::byte* const> outputs) {
  const Bucket& bucket = layout().buckets()[index];
  if (options_.views || bucket.sparse) return;
  for (size_t parameter : bucket.parameters) {
    std::byte* to = place_of(parameter, outputs);
    const std::byte* from =
        stays(parameter) ? gradients_[parameter] : built_->memory[index].get() + layout().offset(parameter);
    if (to == nullptr || to == from || iteration_.globally_unused(parameter)) continue;
    kernel::copy(to, from, options_.parameters[parameter].bytes());
  }
}

Outcome Reducer::outcome_of(size_t parameter, std::span<std::byte* const> outputs) const {
  if (iteration_.globally_unused(parameter)) return Outcome::kUntouched;
  if (layout().buckets()[layout().slot(parameter).bucket].sparse) return Outcome::kByCaller;
  const bool has_place = options_.views ? gradients_[parameter] != nullptr : place_of(parameter, outputs) != nullptr;
  return has_place ? Outcome::kReduced : Outcome::kWithoutPlace;
}

void Reducer::succeed(std::span<std::byte* const> outputs, std::span<Outcome> outcomes) {
  statistics_.unused_bytes = 0;
  for (size_t parameter = 0; parameter < gradients_.size(); ++parameter) {
    if (!outcomes.empty()) outcomes[parameter] = outcome_of(parameter, outputs);
    if (iteration_.globally_unused(parameter)) statistics_.unused_bytes += options_.parameters[parameter].bytes();
  }
  for (size_t bucket = 0; bucket < tickets_.size(); ++bucket) {
    if (tickets_[bucket] == 0 && !delivered_[bucket]) continue;
    ++statistics_.buckets_reduced;
    statistics_.gradient_bytes += layout().buckets()[bucket].bytes();
  }
  ++statistics_.iterations;
  learn();
  times_.communication_end = needs_agreement() ? Clock::now() : pipeline_.last_end();
  if (sampler_.takes(statistics_.iterations)) sampler_.add(times_, statistics_);
}

/// What all ranks know after an iteration that none of them failed in.
void Reducer::learn() {
  // In the first iteration of a static graph all are complete at the end, in no order that would mean anything.
  if (!iteration_.delayed()) last_order_ = iteration_.order();
  iteration_.finish();
  ++round_.iteration;
}

void Reducer::fail_here(const Status& why) {
  failure_ = why;
  failed_here_ = true;
}

// An iteration that was left in the middle: an exception ended the backward pass, or parameters got no gradient.
Status Reducer::end_unfinished() {
  if (!iteration_.under_way() && !failure_) return {};
  if (!failure_ && iteration_.all_launched() && !needs_agreement()) {
    // This rank has given the others all they need. Its own results are nobody's any more.
    const uint64_t last = std::max(map_ticket_, *std::max_element(tickets_.begin(), tickets_.end()));
    const Waited end = pipeline_.wait(last, Deadline::never());
    if (!end.ended) return end.status;
    if (end.status.ok()) {
      if (map_ticket_ != 0) iteration_.set_global(map_, group_->size());
      learn();
      iteration_.reset();
      return {};
    }
    failure_ = end.status;
  }
  if (!failure_) {
    fail_here(find_fault().value_or(Status(Code::kInvalidArgument, "the last iteration was not finished")));
  }
  return settle(Deadline::never());
}

// Whoever knows a reason calls this, and so does everybody whose operation failed because of it: an operation that
// meets another one fails on all ranks with kMismatch, and then those ranks come here as well.
Status Reducer::settle(Deadline deadline) {
  while (true) {
    const Waited idle = pipeline_.wait_idle(deadline);
    if (!idle.ended) return idle.status;
    if (reasons_ == nullptr) {
      if (group_->over()) return end_failed(*failure_);
      pipeline_.reset();
      reasons_ = std::make_unique<Reasons>(failed_here_ ? *failure_ : Status(), group_->size());
      reasons_ticket_ = pipeline_.submit(reasons_->exchange());
    }
    const Waited told = pipeline_.wait(reasons_ticket_, deadline);
    if (!told.ended) return told.status;
    const auto reasons = std::move(reasons_);
    if (told.status.ok()) return end_failed(reasons->first(group_->ranks()).value_or(*failure_));
    if (told.status.code() != Code::kMismatch) return end_failed(failed_here_ ? *failure_ : told.status);
  }
}

Status Reducer::end_failed(Status why) {
  iteration_.reset();
  pipeline_.reset();
  failure_.reset();
  failed_here_ = false;
  ++statistics_.failures;
  // Those two codes say that the iteration goes on.
  const bool misleads = why.code() == Code::kTimeout || why.code() == Code::kInterrupted;
  return misleads ? Status(Code::kStopped, why.message()) : std::move(why);
}

}  // namespace horo::ddp
