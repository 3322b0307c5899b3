#include "horo/engine/runtime.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <numeric>
#include <set>

#include "horo/base/text.h"
#include "horo/engine/autotune.h"
#include "horo/engine/knobs.h"
#include "horo/engine/metrics_server.h"
#include "horo/engine/process_set.h"
#include "horo/engine/timeline.h"

namespace horo::engine {

namespace {

constexpr auto kRest = std::chrono::microseconds(500);
constexpr uint64_t kLeastKept = 64 << 20, kMostKept = uint64_t{1} << 40;

Status stopped() { return {Code::kStopped, "horo was shut down on this rank"}; }

Result<NegotiationOptions> options_from(const Config& config) {
  NegotiationOptions options;
  options.coordinator.fusion.threshold = config.get(kFusionThreshold);
  options.coordinator.fusion.across_groups = !config.get(kDisableGroupFusion);
  options.coordinator.window = config.get(kGatherWindow);
  options.coordinator.cache_capacity = static_cast<size_t>(config.get(kCacheCapacity));
  options.stall_warning = config.get(kStallCheckDisable) ? Duration::zero() : config.get(kStallWarning);
  options.stall_abort = config.get(kStallCheckDisable) ? Duration::zero() : config.get(kStallAbort);
  if (options.stall_abort > Duration::zero() && options.stall_abort <= options.stall_warning) {
    return Status(Code::kInvalidArgument, "HORO_STALL_ABORT must be longer than HORO_STALL_WARNING");
  }
  return options;
}

/// `ranks` are sorted.
Status check_members(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) return {Code::kInvalidArgument, "a process set needs one rank at least"};
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size) {
      return {Code::kInvalidArgument, text("a process set with rank ", ranks[i], "; there are ", size, " ranks")};
    }
    if (i > 0 && ranks[i] == ranks[i - 1]) {
      return {Code::kInvalidArgument, text("a process set with rank ", ranks[i], " twice")};
    }
  }
  return {};
}

/// Before the job is joined: a mistake here must not disturb ranks that made none. Sorts them.
Status check_sets(std::vector<std::vector<int>>& sets, int size) {
  std::vector<int> everybody(static_cast<size_t>(size));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::set<std::vector<int>> known{everybody};
  for (std::vector<int>& ranks : sets) {
    std::sort(ranks.begin(), ranks.end());
    HORO_TRY(check_members(ranks, size));
    if (!known.insert(ranks).second) {
      return {Code::kInvalidArgument, text("a second process set of ", ranks_text(ranks), ", which one already has")};
    }
  }
  return {};
}

/// Empties those that a job of this size cannot have, or has already as set 0.
void leave_out_impossible(std::vector<std::vector<int>>& sets, int size) {
  for (std::vector<int>& ranks : sets) {
    const bool beyond = std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return rank >= size; });
    if (beyond || ranks.size() == static_cast<size_t>(size)) ranks.clear();
  }
}

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::start(RuntimeOptions options) {
  std::unique_ptr<Runtime> runtime(new Runtime());
  HORO_ASSIGN(NegotiationOptions negotiation, options_from(options.engine.config));
  if (options.tuning) {
    negotiation.coordinator.fusion.threshold = options.tuning->threshold;
    negotiation.coordinator.window = options.tuning->window;
  }
  runtime->negotiation_ = std::make_unique<const NegotiationOptions>(std::move(negotiation));
  const Status opened = runtime->open(options);
  if (opened.ok()) return runtime;
  if (runtime->engine_ != nullptr) runtime->engine_->withdraw();
  return opened;
}

Status Runtime::open(RuntimeOptions& options) {
  if (options.replaces) {
    leave_out_impossible(options.process_sets, options.engine.size);
  } else {
    HORO_TRY(check_sets(options.process_sets, options.engine.size));
  }
  HORO_ASSIGN(engine_, group::Engine::start(std::move(options.engine)));
  make_timeline();
  pool_ = make_pool();
  std::vector<int> everybody(static_cast<size_t>(engine_->size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  seating_ = std::make_shared<const Seating>(
      Seating{everybody, engine_->rank(), position_of(engine_->world().shape(), engine_->rank())});
  HORO_TRY(open_set(0, everybody));
  engine_->keep_quorum(everybody);
  // Its first operation was the decision: from here on the others are in this job.
  Status rest = open_rest(options);
  if (rest.ok() || !options.replaces) return rest;
  return {Code::kEvicted, text("the others went on in a larger job, which this rank could not follow into: ", rest)};
}

Status Runtime::open_rest(const RuntimeOptions& options) {
  for (size_t i = 0; i < options.process_sets.size(); ++i) {
    const std::vector<int>& ranks = options.process_sets[i];
    if (!ranks.empty()) HORO_TRY(open_set(static_cast<int>(i) + 1, ranks));
  }
  HORO_ASSIGN(loop_, Thread::start("horo-loop", [this](const std::stop_token& stop) { loop(stop); }));
  HORO_TRY(loop_.stay_on(engine_->core()));
  if (!options.replaces) observe(nullptr, "");
  return {};
}

Runtime::Runtime() = default;

Runtime::~Runtime() { shutdown(); }

// As much is kept as the largest operations that tensors are put together for need: what is given, and the result.
std::unique_ptr<BufferPool> Runtime::make_pool() {
  BufferSource source{.allocate = [this](uint64_t bytes) { return engine_->allocate(bytes); },
                      .free = [this](std::byte* memory) { engine_->free(memory); },
                      .shared = [this](std::span<std::byte> memory) { return engine_->shows(memory); }};
  BufferPoolOptions options;
  options.most_idle = std::max(kLeastKept, 2 * std::min(kMostKept, negotiation_->coordinator.fusion.threshold));
  return std::make_unique<BufferPool>(std::move(source), options, [this] { engine_->bell().ring(); });
}

Status Runtime::open_set(int number, const std::vector<int>& seats) {
  Known known{seats, nullptr};
  if (std::binary_search(seats.begin(), seats.end(), engine_->rank())) {
    std::shared_ptr<group::Group> group = engine_->world_handle();
    if (number != 0) {
      HORO_ASSIGN(group, engine_->create_group(seats));
    }
    const Tuning start{.threshold = negotiation_->coordinator.fusion.threshold,
                       .window = negotiation_->coordinator.window};
    auto set = make_set(number, group, start, number == 0);
    if (!set.ok() && number != 0) engine_->remove_group(group);
    HORO_ASSIGN(known.set, std::move(set));
  }
  std::lock_guard lock(mutex_);
  sets_[number] = std::move(known);
  return {};
}

Result<std::shared_ptr<ProcessSet>> Runtime::make_set(int number, std::shared_ptr<group::Group> group,
                                                      const Tuning& start, bool tunes, Deadline deadline) {
  const auto special = [this](const Unit& unit, const Handle& handle) {
    unit.kind() == Kind::kAddSet ? begin_set(unit, handle) : end_set(unit, handle);
  };
  NegotiationOptions options = *negotiation_;
  options.coordinator.fusion.threshold = start.threshold;
  options.coordinator.window = start.window;
  const Config& config = engine_->config();
  if (tunes) options.tuner = tuner_options(config, start, *group);
  HORO_ASSIGN(std::shared_ptr<ProcessSet> set,
              ProcessSet::open(*engine_, *pool_, std::move(group), options, special,
                               Observation(number, timeline_.get(), &metrics_.set(number)), deadline));
  if (options.tuner && set->member() == 0) set->set_tuning_log(open_tuning_log(config, engine_->log()));
  return set;
}

Result<std::shared_ptr<ProcessSet>> Runtime::find(int set) const {
  std::vector<int> seats;
  {
    std::lock_guard lock(mutex_);
    if (ended_) return stopped();
    auto found = sets_.find(set);
    if (found == sets_.end()) return Status(Code::kInvalidArgument, text("there is no process set ", set));
    if (found->second.set != nullptr) return found->second.set;
    seats = found->second.seats;
  }
  return Status(Code::kInvalidArgument,
                text("rank ", rank(), " is not in process set ", set, " (", ranks_text(ranks_of(seats)), ")"));
}

Result<Handle> Runtime::submit(int set, std::vector<Call> calls, Submission::Callback callback) {
  HORO_ASSIGN(std::shared_ptr<ProcessSet> where, find(set));
  HORO_ASSIGN(HandedIn done, hand_in(set, *where, std::move(calls), std::move(callback)));
  if (done.waiting == 1) engine_->bell().ring();
  if (done.waiting == 2) end_rest();
  return std::move(done.submission);
}

Result<Handle> Runtime::submit_to_wait(int set, std::vector<Call> calls) {
  HORO_ASSIGN(std::shared_ptr<ProcessSet> where, find(set));
  HORO_ASSIGN(HandedIn done, hand_in(set, *where, std::move(calls), {}));
  return std::move(done.submission);
}

// One ring for all of them: a thread that began with the first would have its core from the one that hands in.
Status Runtime::submit_each(int set, std::vector<Call> calls, bool waits, std::vector<Handle>& handles) {
  HORO_ASSIGN(std::shared_ptr<ProcessSet> where, find(set));
  Status refused;
  const size_t before = handles.size();
  handles.reserve(before + calls.size());
  try {
    for (size_t i = 0; i < calls.size() && refused.ok(); ++i) {
      std::vector<Call> alone;
      alone.push_back(std::move(calls[i]));
      Result<HandedIn> done = hand_in(set, *where, std::move(alone), {});
      if (done.ok()) handles.push_back(std::move(done->submission));
      refused = done.status();
    }
  } catch (const std::bad_alloc& error) {  // The ones before it are under way all the same.
    refused = Status(Code::kUnavailable, error.what());
  }
  const size_t count = handles.size() - before;
  if (count > 0 && !waits) engine_->bell().ring();
  if (count > 1 && !waits) end_rest();
  return refused;
}

Result<Runtime::HandedIn> Runtime::hand_in(int set, ProcessSet& where, std::vector<Call> calls,
                                           Submission::Callback callback) {
  for (Call& call : calls) {
    if (call.tensor.kind != Kind::kBroadcast) continue;
    const std::vector<int> ranks = where.names();
    auto root = std::find(ranks.begin(), ranks.end(), call.tensor.root);
    if (root == ranks.end()) {
      return Status(Code::kInvalidArgument,
                    text("broadcast of tensor '", call.tensor.name, "': root rank ", call.tensor.root,
                         " is not in process set ", set, " (", ranks_text(ranks), ")"));
    }
    call.tensor.root = static_cast<int32_t>(root - ranks.begin());
  }
  HORO_TRY(check_calls(calls, where.size(), where.member()));
  HORO_TRY(where.check_device(calls));
  HORO_ASSIGN(UnitPtr unit, where.describe(calls));
  auto submission = std::make_shared<Submission>(std::move(calls), std::move(callback), std::move(unit));
  HORO_ASSIGN(const size_t waiting, where.submit(submission));
  return HandedIn{std::move(submission), waiting};
}

Result<Handle> Runtime::join(int set) {
  HORO_ASSIGN(std::shared_ptr<ProcessSet> where, find(set));
  auto joining = std::make_shared<Submission>(std::vector<Call>{}, nullptr);
  HORO_TRY(where->join(joining));
  engine_->bell().ring();
  return joining;
}

Status Runtime::wait(int set, const Handle& handle, Deadline deadline, Submission::Until until) {
  if (handle->done()) return handle->status();
  if (Result<std::shared_ptr<ProcessSet>> where = find(set); where.ok()) {
    (*where)->count_waiter(1);
    if (!drive_until(*handle, deadline, until)) wait_beside(*handle, deadline, until);
    (*where)->count_waiter(-1);
  } else {
    handle->wait(deadline, until);  // Whoever ends the set ends it. Until then its memory is in use.
  }
  if (handle->done()) return handle->status();
  return handle->has_come(until) ? Status() : Status(Code::kTimeout, "the operation is still under way");
}

// False when another caller does it. The loop's own thread drives only for moments, and is waited for.
bool Runtime::drive_until(const Submission& submission, Deadline deadline, Submission::Until until) {
  if (caller_drives_.exchange(true, std::memory_order_acquire)) return false;
  group::Bell& bell = engine_->bell();
  Deadline next = Deadline::never();
  bell.begin_driving();
  uint32_t seen = bell.look();
  {
    std::lock_guard role(role_);
    while (!submission.has_come(until) && !deadline.expired()) {
      seen = bell.look();
      next = drive(true, until == Submission::Until::kDone);
      if (submission.has_come(until)) break;
      bell.wait(seen, next.earlier(deadline), true);
    }
  }
  driven_at_.store(Clock::now(), std::memory_order_relaxed);
  caller_drives_.store(false, std::memory_order_seq_cst);
  bell.end_driving(seen);
  // The loop's thread sleeps until something rings: it must hear what is left to do at a certain time.
  if (!next.is_never() || others_wait()) bell.ring();
  return true;
}

// The one that drives may leave off at any time: the loop's thread must be there then, and not at rest.
void Runtime::wait_beside(const Submission& submission, Deadline deadline, Submission::Until until) {
  const auto change = [this](int by) {
    std::lock_guard lock(rest_mutex_);
    beside_ += by;
  };
  change(1);
  rest_.notify_all();
  engine_->bell().ring();  // Whoever drives must hear that somebody waits.
  submission.wait(deadline, until);
  change(-1);
}

Deadline Runtime::drive(bool may_spin, bool may_run) {
  std::vector<std::shared_ptr<ProcessSet>> sets;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, known] : sets_) {
      if (known.set) sets.push_back(known.set);
    }
  }
  const Time now = Clock::now();
  Deadline next = Deadline::never();
  // With one set only: waiting inside an operation of one could otherwise hold up another that a peer waits in.
  const bool here = may_run && sets.size() == 1;
  for (const std::shared_ptr<ProcessSet>& set : sets) {
    set->drive(now, here, may_spin);
    next = next.earlier(set->next(now));
  }
  return next;
}

bool Runtime::others_wait() const {
  std::lock_guard lock(mutex_);
  return std::any_of(sets_.begin(), sets_.end(),
                     [](const auto& known) { return known.second.set && known.second.set->pending() > 0; });
}

// Callers that hand in and wait, again and again, do all the work themselves, and nobody need be woken for it. So for a
// moment after one has driven, this thread sleeps where no ring reaches it: rings, of callers and of peers, then cost
// one atomic. What they were about is seen to by the next caller that waits, or here when the moment is over. Who hands
// in a second tensor before the first was looked at is no such caller, and ends the rest: see end_rest().
bool Runtime::rest_for_callers(const std::stop_token& stop) {
  const Time until = driven_at_.load(std::memory_order_relaxed) + kRest;
  if (Clock::now() >= until) return false;
  std::unique_lock lock(rest_mutex_);
  const bool ended = rest_.wait_until(lock, stop, until, [this] { return beside_ > 0 || in_a_row_; });
  in_a_row_ = false;
  return !ended;
}

void Runtime::end_rest() {
  {
    std::lock_guard lock(rest_mutex_);
    in_a_row_ = true;
  }
  rest_.notify_all();
}

void Runtime::loop(const std::stop_token& stop) {
  // A caller that drives would take an ordinary ring for its own, and leave this thread asleep for ever.
  std::stop_callback wake(stop, [this] { engine_->bell().ring_sleepers(); });
  while (true) {
    const bool rested = rest_for_callers(stop);
    const uint32_t seen = engine_->bell().look();
    if (stop.stop_requested()) return;  // Asked after the look: the ring of a request before it would end no wait.
    if (rested) {
      pool_->trim(Clock::now());
      continue;
    }
    Deadline next = Deadline::never();
    if (!caller_drives_.load(std::memory_order_acquire)) {
      std::lock_guard role(role_);
      next = drive(false, true);
    }
    // Buffers that nobody has used for long go back. While some are kept, this thread comes once in a while to look;
    // after the last use it comes for them once more, and then sleeps until something rings.
    next = next.earlier(pool_->trim(Clock::now()));
    engine_->bell().wait(seen, next, false);
  }
}

Status Runtime::check_new_set(const std::vector<int>& ranks) const {
  HORO_TRY(check_members(ranks, size()));
  HORO_ASSIGN(const std::vector<int> seats, seats_of(ranks));
  std::lock_guard lock(mutex_);
  for (const auto& [number, known] : sets_) {
    if (known.seats != seats) continue;
    return {Code::kInvalidArgument, text("process set ", number, " already has ", ranks_text(ranks))};
  }
  return {};
}

Tuning Runtime::tuning() const {
  const auto all = find(0);
  return all.ok() ? (*all)->tuning() : Tuning{};
}

void Runtime::shutdown() {
  std::map<int, Known> sets;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    sets = sets_;
  }
  if (!engine_) return;
  stop_serving();
  loop_ = Thread();
  for (auto& [number, known] : sets) {
    if (!known.set) continue;
    known.set->close(stopped());
    known.set->group().stop(stopped(), group::Group::Leaving::kWholeRank);
  }
  engine_->bell().ring();  // A caller that drives finds its submission done, and leaves.
  std::lock_guard role(role_);
  engine_->shutdown();
  timeline_->stop();
  std::lock_guard lock(mutex_);
  sets_.clear();
}

}  // namespace horo::engine
