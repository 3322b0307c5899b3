#include "horo/ddp/reducer.h"

#include <algorithm>
#include <cstring>

#include "horo/base/text.h"
#include "horo/kernel/reduce.h"

namespace horo::ddp {

namespace {

constexpr uint64_t kLargeGradient = 1 << 20;  // Bytes.

Status invalid(std::string words) { return {Code::kInvalidArgument, std::move(words)}; }

std::string limits_text(const std::vector<uint64_t>& limits) {
  std::string words;
  for (uint64_t limit : limits) words += text(words.empty() ? "" : ", ", limit);
  return words.empty() ? "none" : words;
}

std::string options_text(const ReducerOptions& options) {
  const auto word = [](bool is) { return is ? "yes" : "no"; };
  return text("the options first limits ", limits_text(options.first_limits), "; rebuilt limits ",
              limits_text(options.rebuilt_limits), "; find unused ", word(options.rules.find_unused), "; static graph ",
              word(options.rules.static_graph), "; skip unused ", word(options.rules.skip_unused),
              "; small bucket last ", word(options.small_last), "; views ", word(options.views));
}

}  // namespace

Reducer::Reducer(std::shared_ptr<group::Group> group, Allocate allocate, ReducerOptions options)
    : options_(std::move(options)),
      group_(std::move(group)),
      allocate_(std::move(allocate)),
      iteration_(options_.rules, options_.parameters.size()),
      gradients_(options_.parameters.size(), nullptr),
      pipeline_(*group_) {}

Result<std::unique_ptr<Reducer>> Reducer::create(std::shared_ptr<group::Group> group, Allocate allocate,
                                                 ReducerOptions options) {
  if (options.parameters.empty()) return invalid("a reducer needs one parameter at least");
  for (const Parameter& parameter : options.parameters) HORO_TRY(check(parameter));
  HORO_TRY(agree_on(*group, describe(options.parameters)));
  HORO_TRY(agree_on(*group, {options_text(options)}));
  std::unique_ptr<Reducer> reducer(new Reducer(std::move(group), std::move(allocate), std::move(options)));
  HORO_ASSIGN(reducer->built_,
              reducer->build(first_buckets(reducer->options_.parameters, reducer->options_.first_limits)));
  const Layout& layout = reducer->layout();
  reducer->iteration_.set_buckets(layout.groups(), reducer->by_caller(layout));
  return reducer;
}

Result<std::unique_ptr<Reducer::Built>> Reducer::build(const std::vector<Indices>& groups) const {
  auto built = std::make_unique<Built>();
  built->layout = Layout(options_.parameters, groups);
  for (const Bucket& bucket : built->layout.buckets()) {
    Memory memory;
    if (!bucket.sparse) {
      auto made = allocate_(std::max<uint64_t>(bucket.bytes(), 1));
      if (!made.ok()) return made.status().prefixed(text("memory for ", bucket.bytes(), " bytes of gradients"));
      memory = std::move(*made);
    }
    built->memory.push_back(std::move(memory));
  }
  // What a hook keeps of each parameter outlives a rebuild.
  built->hook = built_ ? std::move(built_->hook) : std::make_unique<Hook>(hook_options_, options_.parameters);
  if (Status status = make_exchanges(*built, *built->hook); !status.ok()) {
    if (built_) built_->hook = std::move(built->hook);
    return status;
  }
  return built;
}

Status Reducer::make_exchanges(Built& built, Hook& hook) const {
  std::vector<std::unique_ptr<BucketExchange>> exchanges;
  built.in_place = reduces_in_place(built.layout, hook);
  const auto allocate = [this](uint64_t bytes) { return allocate_(std::max<uint64_t>(bytes, 1)); };
  for (size_t i = 0; i < built.memory.size(); ++i) {
    const Bucket& bucket = built.layout.buckets()[i];
    if (bucket.sparse || hook.options().kind == HookKind::kCaller) {
      exchanges.push_back(nullptr);
      continue;
    }
    BucketPlace place{&bucket, built.memory[i].get(), group_->member(), group_->size()};
    if (built.in_place) place.parts = parts_of(built.layout, bucket);
    HORO_ASSIGN(auto exchange, hook.make(place, allocate));
    exchanges.push_back(std::move(exchange));
  }
  built.exchanges = std::move(exchanges);
  return {};
}

// To copy a gradient that no cache holds into a bucket and back costs more than the operation saves there. Not where
// the results must not show before all ranks agree: with buckets of the caller's, and where nobody may have used a
// parameter.
bool Reducer::reduces_in_place(const Layout& layout, const Hook& hook) const {
  const std::vector<Bucket>& buckets = layout.buckets();
  return !options_.views && !options_.rules.find_unused && hook.options().kind == HookKind::kAllreduce &&
         std::none_of(buckets.begin(), buckets.end(), [](const Bucket& bucket) { return bucket.sparse; });
}

/// The same on all ranks, wherever their gradients lie.
std::vector<Part> Reducer::parts_of(const Layout& layout, const Bucket& bucket) const {
  std::vector<Part> parts;
  for (size_t parameter : bucket.parameters) {
    const bool large = options_.parameters[parameter].bytes() >= kLargeGradient;
    const uint64_t elements = options_.parameters[parameter].count();
    if (large || parts.empty() || parts.back().large) {
      parts.push_back({layout.offset(parameter), elements, parameter, large});
    } else {
      parts.back().elements += elements;
    }
  }
  return parts;
}

/// Whether the gradient is reduced where it lies, and not in its bucket.
bool Reducer::stays(size_t parameter) const {
  return built_->in_place && gradients_[parameter] != nullptr &&
         options_.parameters[parameter].bytes() >= kLargeGradient;
}

std::vector<bool> Reducer::by_caller(const Layout& layout) const {
  std::vector<bool> by_caller;
  for (const Bucket& bucket : layout.buckets()) {
    by_caller.push_back(bucket.sparse || hook_options_.kind == HookKind::kCaller);
  }
  return by_caller;
}

std::string Reducer::named(size_t parameter) const { return text("'", options_.parameters[parameter].name, "'"); }

std::string Reducer::named_bucket(size_t bucket) const {
  const Indices& members = layout().buckets()[bucket].parameters;
  const std::string first = text("bucket ", bucket, " of gradients (", named(members[0]));
  return members.size() == 1 ? first + ")" : text(first, " and ", members.size() - 1, " more)");
}

Status Reducer::check_parameter(size_t parameter) const {
  if (parameter < options_.parameters.size()) return {};
  return invalid(text("there is no parameter ", parameter, "; the model has ", options_.parameters.size()));
}

Status Reducer::check_idle(const char* what) const {
  if (!iteration_.under_way() && !failure_) return {};
  return invalid(text(what, " cannot change while gradients are under way; finish the iteration first"));
}

Result<bool> Reducer::prepare_forward() {
  std::lock_guard lock(mutex_);
  HORO_TRY(end_unfinished());
  times_ = Times();
  times_.forward_start = Clock::now();
  const bool in_order = options_.rules.find_unused == false || iteration_.rules().static_graph;
  if (rebuilt_ || options_.rebuilt_limits.empty() || !in_order || last_order_.empty()) return false;
  return rebuild();
}

Result<bool> Reducer::rebuild() {
  HORO_ASSIGN(const auto groups, agree_on_buckets(*group_,
                                                  rebuilt_buckets(options_.parameters, options_.rebuilt_limits,
                                                                  last_order_, options_.small_last),
                                                  options_.parameters.size()));
  rebuilt_ = statistics_.rebuilt = true;
  if (groups == layout().groups()) return false;
  HORO_ASSIGN(built_, build(groups));
  iteration_.set_buckets(groups, by_caller(layout()));
  return true;
}

Status Reducer::prepare_backward(bool synchronize, std::span<const size_t> unused,
                                 std::span<const std::byte* const> gradients) {
  std::lock_guard lock(mutex_);
  for (size_t parameter : unused) HORO_TRY(check_parameter(parameter));
  HORO_TRY(end_unfinished());
  iteration_.prepare(synchronize, unused);
  if (!synchronize) return {};
  std::fill(gradients_.begin(), gradients_.end(), nullptr);
  for (size_t i = 0; i < gradients.size(); ++i) gradients_[unused[i]] = gradients[i];
  tickets_.assign(layout().buckets().size(), 0);
  delivered_.assign(layout().buckets().size(), false);
  taken_ = announced_ = false;
  copied_ = 0;
  map_ticket_ = agreement_ticket_ = 0;
  round_.factor = 1.0 / (divisor_ > 0 ? divisor_ : static_cast<double>(group_->size()));
  times_.backward_start = Clock::now();
  times_.communication_start = times_.backward_end = Time();
  return {};
}

Result<Events> Reducer::ready(size_t parameter, const std::byte* gradient) {
  std::lock_guard lock(mutex_);
  HORO_TRY(check_parameter(parameter));
  const auto result = iteration_.ready(parameter, gradient != nullptr);
  if (result.wrong) return wrong(parameter, *result.wrong);
  if (iteration_.phase() != Iteration::Phase::kExpecting) return Events();
  gradients_[parameter] = gradient;
  pack(result.complete);
  Events events = launch();
  events.taken = !result.complete.empty() && result.complete.back() == parameter;
  return events;
}

Status Reducer::wrong(size_t parameter, Iteration::Wrong wrong) {
  switch (wrong) {
    case Iteration::Wrong::kAfterTheEnd:
      return invalid(text("parameter ", named(parameter),
                          " got a gradient after the gradients of this iteration were reduced: a second backward pass "
                          "needs a forward pass of its own, or both of them one that only adds up (no_sync)"));
    case Iteration::Wrong::kTwice:
      fail_here(invalid(text("parameter ", named(parameter),
                             " got its gradient twice in one backward pass: it is used in several reentrant passes "
                             "(checkpoints), which only a static graph allows, or outside of the module's forward")));
      break;
    case Iteration::Wrong::kTooOften:
      fail_here(invalid(text("parameter ", named(parameter),
                             " got more gradients than in the first iteration, but the graph was said to be static; "
                             "leave static_graph out")));
      break;
  }
  return *failure_;
}

Result<Events> Reducer::ready_all() {
  std::lock_guard lock(mutex_);
  pack(iteration_.ready_all());
  return launch();
}

Result<Events> Reducer::end_backward() {
  std::lock_guard lock(mutex_);
  pack(iteration_.end_of_backward());
  return launch();
}

void Reducer::pack(const Indices& complete) {
  for (size_t parameter : complete) {
    const Slot& slot = layout().slot(parameter);
    if (layout().buckets()[slot.bucket].sparse || stays(parameter)) continue;
    std::byte* to = built_->memory[slot.bucket].get() + layout().offset(parameter);
    const uint64_t bytes = options_.parameters[parameter].bytes();
    const std::byte* from = gradients_[parameter];
    if (from == nullptr) {
      std::memset(to, 0, bytes);
    } else if (from != to) {
      kernel::copy_for_later(to, from, bytes);
    }
  }
}

Events Reducer::launch() {
  while (auto launch = iteration_.launch()) {
    if (launch->skipped) {
      ++statistics_.buckets_skipped;
      continue;
    }
    if (times_.communication_start == Time()) times_.communication_start = Clock::now();
    if (launch->by_caller) {
      taken_ = false;
    } else {
      hand_in(launch->bucket);
    }
  }
  const bool all = iteration_.all_launched();
  if (all && map_ticket_ == 0 && iteration_.needs_map()) hand_in_map();
  const bool news = all && !std::exchange(announced_, all);
  return {.take = iteration_.out().has_value() && !taken_, .all_launched = news};
}

void Reducer::hand_in(size_t bucket) {
  BucketExchange& exchange = *built_->exchanges[bucket];
  exchange.begin(round_);
  for (size_t parameter : layout().buckets()[bucket].parameters) {
    if (stays(parameter)) exchange.put(parameter, const_cast<std::byte*>(gradients_[parameter]));
  }
  tickets_[bucket] = pipeline_.submit(&exchange);
}

void Reducer::hand_in_map() {
  map_ = iteration_.map();
  auto* bytes = reinterpret_cast<std::byte*>(map_.data());
  map_exchange_ =
      std::make_unique<SingleExchange>(Exchange::Step{allreduce_of(DType::kI32, map_.size()), bytes, bytes, 0});
  map_ticket_ = pipeline_.submit(map_exchange_.get());
}

bool Reducer::all_launched() const {
  std::lock_guard lock(mutex_);
  return iteration_.all_launched();
}

bool Reducer::under_way() const {
  std::lock_guard lock(mutex_);
  return iteration_.under_way();
}

// What the caller does with its bucket may use the group, and what is still queued in the pipeline must not come after
// it on some ranks and before it on others.
Result<std::optional<size_t>> Reducer::take() {
  std::lock_guard lock(mutex_);
  if (!iteration_.out() || taken_) return std::optional<size_t>();
  if (const Waited idle = pipeline_.wait_idle(Deadline::never()); !idle.ended) return idle.status;
  for (size_t bucket = 0; bucket < tickets_.size(); ++bucket) {
    if (tickets_[bucket] == 0) continue;
    if (const Status status = pipeline_.wait(tickets_[bucket], Deadline::never()).status; !status.ok()) {
      failure_ = status.prefixed(named_bucket(bucket));
      return *failure_;
    }
  }
  taken_ = true;
  return iteration_.out();
}

Result<Events> Reducer::launched(size_t bucket) {
  std::lock_guard lock(mutex_);
  if (iteration_.out() != bucket || !taken_) return invalid(text("bucket ", bucket, " is not with the caller"));
  iteration_.launched(bucket);
  taken_ = false;
  return launch();
}

Status Reducer::deliver(size_t bucket, const std::byte* result) {
  std::lock_guard lock(mutex_);
  if (bucket >= delivered_.size() || built_->exchanges[bucket] != nullptr ||
      iteration_.phase() != Iteration::Phase::kExpecting) {
    return invalid(text("bucket ", bucket, " is not the caller's"));
  }
  if (result != nullptr && built_->memory[bucket] != nullptr && result != built_->memory[bucket].get()) {
    kernel::copy(built_->memory[bucket].get(), result, layout().buckets()[bucket].bytes());
  }
  delivered_[bucket] = true;
  return {};
}

Status Reducer::fail(const Status& why) {
  std::lock_guard lock(mutex_);
  if (iteration_.phase() != Iteration::Phase::kExpecting) return invalid("no iteration is under way that could fail");
  if (!failure_) fail_here(why);
  return {};
}

Status Reducer::set_hook(const HookOptions& options) {
  std::lock_guard lock(mutex_);
  HORO_TRY(check(options));
  HORO_TRY(check_idle("the hook"));
  auto hook = std::make_unique<Hook>(options, options_.parameters);
  HORO_TRY(make_exchanges(*built_, *hook));
  built_->hook = std::move(hook);
  hook_options_ = options;
  round_.iteration = 0;
  iteration_.set_by_caller(by_caller(layout()));
  return {};
}

Status Reducer::set_divisor(double divisor) {
  std::lock_guard lock(mutex_);
  if (!(divisor >= 0)) return invalid(text("sums cannot be divided by ", divisor));
  divisor_ = divisor;
  return {};
}

Status Reducer::set_sample_rate(uint64_t iterations) {
  std::lock_guard lock(mutex_);
  if (iterations == 0) return invalid("the sample rate must be 1 at least");
  sampler_.set_rate(iterations);
  return {};
}

Status Reducer::set_static_graph() {
  std::lock_guard lock(mutex_);
  if (iteration_.rules().static_graph) return {};
  if (statistics_.iterations > 0 || iteration_.under_way()) {
    return invalid("a graph can be made static before the first iteration only");
  }
  iteration_.make_static();
  return {};
}

Statistics Reducer::statistics() const {
  std::lock_guard lock(mutex_);
  Statistics all = statistics_;
  all.sent_bytes = pipeline_.sent_bytes();
  return all;
}

Indices Reducer::ready_order() const {
  std::lock_guard lock(mutex_);
  return last_order_;
}

}  // namespace horo::ddp
