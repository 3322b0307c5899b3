// The C interface of the reducer.
#include "horo/api/ddp.h"

#include <cstring>

#include "horo/api/handles.h"
#include "horo/base/text.h"
#include "horo/ddp/reducer.h"
#include "horo/kernel/reduce.h"

struct horo_reducer {
  std::shared_ptr<horo::engine::Runtime> runtime;  ///< Outlives the reducer's memory; null where the user owns it.
  horo::api::Process process;
  std::unique_ptr<horo::ddp::Reducer> reducer;
};

namespace {

using horo::Code;
using horo::Deadline;
using horo::Result;
using horo::Status;
using horo::api::guarded;
using horo::api::is_absent;
using horo::ddp::Events;
using horo::ddp::HookOptions;
using horo::ddp::Outcome;
using horo::ddp::Parameter;
using horo::ddp::ReducerOptions;
using horo::ddp::Statistics;

Status wrong(std::string words) { return {Code::kInvalidArgument, std::move(words)}; }

const std::byte* as_bytes(const void* memory) { return static_cast<const std::byte*>(memory); }

Status check(const horo_reducer* reducer, const char* function) {
  if (reducer == nullptr) return wrong(horo::text(function, ": the reducer is null"));
  return horo::api::check_process(reducer->process, function);
}

/// A struct of the caller's, who may know fewer fields of it.
template <class Struct>
Result<Struct> complete(const Struct* given, Struct all, const char* function, const char* maker) {
  if (given == nullptr || given->struct_size < sizeof(size_t)) {
    return wrong(horo::text(function, " needs a struct made with ", maker));
  }
  std::memcpy(&all, given, std::min(given->struct_size, sizeof all));
  return all;
}

Result<Parameter> parameter_of(const horo_parameter& from) {
  if (from.name == nullptr) return wrong("horo_reducer_create: the name of a parameter is null");
  if (static_cast<unsigned>(from.dtype) > HORO_BYTE) {
    return wrong(horo::text("parameter '", from.name, "': there is no element type ", static_cast<int>(from.dtype)));
  }
  if (from.shape == nullptr && from.dimensions > 0) return wrong(horo::text("parameter '", from.name, "': no shape"));
  Parameter parameter;
  parameter.name = from.name;
  parameter.dtype = static_cast<horo::DType>(from.dtype);
  if (from.dimensions > 0) parameter.shape.assign(from.shape, from.shape + from.dimensions);
  if (from.dimensions > 0 && from.strides != nullptr) {
    parameter.strides.assign(from.strides, from.strides + from.dimensions);
  }
  parameter.device = from.device;
  parameter.sparse = from.sparse != 0;
  return parameter;
}

/// The structs lie as far apart as the program that made them thinks they are long.
Result<std::vector<Parameter>> parameters_of(const horo_parameter* from, size_t count) {
  if (from == nullptr || count == 0) return wrong("horo_reducer_create needs one parameter at least");
  const size_t stride = from->struct_size;
  std::vector<Parameter> parameters;
  parameters.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto* given = reinterpret_cast<const horo_parameter*>(reinterpret_cast<const std::byte*>(from) + i * stride);
    HORO_ASSIGN(horo_parameter all,
                complete(given, horo_parameter HORO_PARAMETER_INIT, "horo_reducer_create", "HORO_PARAMETER_INIT"));
    HORO_ASSIGN(Parameter parameter, parameter_of(all));
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::vector<uint64_t> numbers_of(const uint64_t* from, size_t count) {
  return from == nullptr ? std::vector<uint64_t>() : std::vector<uint64_t>(from, from + count);
}

Result<ReducerOptions> options_of(const horo_reducer_options* given) {
  HORO_ASSIGN(horo_reducer_options from, complete(given, horo_reducer_options HORO_REDUCER_OPTIONS_INIT,
                                                  "horo_reducer_create", "HORO_REDUCER_OPTIONS_INIT"));
  ReducerOptions options;
  HORO_ASSIGN(options.parameters, parameters_of(from.parameters, from.parameter_count));
  options.first_limits = numbers_of(from.first_limits, from.first_limit_count);
  options.rebuilt_limits = numbers_of(from.rebuilt_limits, from.rebuilt_limit_count);
  options.rules = {from.find_unused != 0, from.static_graph != 0, from.skip_unused != 0};
  options.views = from.views != 0;
  options.small_last = from.small_bucket_last != 0;
  return options;
}

unsigned bits_of(const Events& events) {
  unsigned bits = 0;
  if (events.take) bits |= HORO_READY_TAKE;
  if (events.all_launched) bits |= HORO_READY_ALL_LAUNCHED;
  if (events.taken) bits |= HORO_READY_TAKEN;
  return bits;
}

/// A call that only brings about events.
template <class Body>
horo_status* eventful(horo_reducer* reducer, const char* function, unsigned* events, Body body) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, function));
    HORO_ASSIGN(const Events happened, body(*reducer->reducer));
    if (events != nullptr) *events = bits_of(happened);
    return {};
  });
}

double seconds_of(horo::Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

horo_reduction_statistics statistics_of(const Statistics& from) {
  horo_reduction_statistics to = HORO_REDUCTION_STATISTICS_INIT;
  to.iterations = from.iterations;
  to.failures = from.failures;
  to.buckets_reduced = from.buckets_reduced;
  to.buckets_skipped = from.buckets_skipped;
  to.gradient_bytes = from.gradient_bytes;
  to.sent_bytes = from.sent_bytes;
  to.unused_bytes = from.unused_bytes;
  to.rebuilt = from.rebuilt ? 1 : 0;
  to.samples = from.samples;
  to.last = {seconds_of(from.last.forward_start), seconds_of(from.last.backward_start),
             seconds_of(from.last.communication_start), seconds_of(from.last.backward_end),
             seconds_of(from.last.communication_end)};
  to.mean_forward = from.mean_forward;
  to.mean_backward = from.mean_backward;
  to.mean_communication = from.mean_communication;
  to.mean_overlap = from.mean_overlap;
  return to;
}

}  // namespace

horo_status* horo_reducer_create(horo_group* group, const horo_reducer_options* options, horo_reducer** reducer) {
  return guarded([&]() -> Status {
    if (group == nullptr) return wrong("horo_reducer_create: the group is null");
    if (reducer == nullptr) return wrong("horo_reducer_create: no place for the reducer");
    HORO_ASSIGN(ReducerOptions all, options_of(options));
    auto allocate = [engine = group->engine, runtime = group->runtime](uint64_t bytes) {
      return horo::api::allocate_shared(*engine, runtime, bytes);
    };
    HORO_ASSIGN(auto made, horo::ddp::Reducer::create(group->group, std::move(allocate), std::move(all)));
    *reducer = new horo_reducer{group->runtime, horo::api::Process::current(), std::move(made)};
    return {};
  });
}

void horo_reducer_destroy(horo_reducer* reducer) {
  // In a forked child the threads that would end what is under way do not exist.
  if (reducer == nullptr || !reducer->process.is_current()) return;
  delete reducer;
}

int64_t horo_reducer_bucket_count(const horo_reducer* reducer) {
  if (is_absent(reducer, "horo_reducer_bucket_count", "reducer")) return -1;
  return static_cast<int64_t>(reducer->reducer->layout().buckets().size());
}

horo_status* horo_reducer_bucket(const horo_reducer* reducer, size_t bucket, horo_bucket* out) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_bucket"));
    HORO_ASSIGN(horo_bucket all,
                complete(out, horo_bucket HORO_BUCKET_INIT, "horo_reducer_bucket", "HORO_BUCKET_INIT"));
    const auto& buckets = reducer->reducer->layout().buckets();
    if (bucket >= buckets.size()) return wrong(horo::text("there is no bucket ", bucket, " of ", buckets.size()));
    const horo::ddp::Bucket& from = buckets[bucket];
    all.memory = reducer->reducer->memory(bucket).get();
    all.bytes = from.bytes();
    all.dtype = static_cast<horo_dtype>(from.dtype);
    all.parameters = from.parameters.data();
    all.parameter_count = from.parameters.size();
    all.sparse = from.sparse ? 1 : 0;
    std::memcpy(out, &all, std::min(out->struct_size, sizeof all));
    return {};
  });
}

horo_status* horo_reducer_slot(const horo_reducer* reducer, size_t parameter, size_t* bucket, uint64_t* offset) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_slot"));
    if (bucket == nullptr || offset == nullptr) return wrong("horo_reducer_slot: no place for the answer");
    if (parameter >= reducer->reducer->parameters().size())
      return wrong(horo::text("there is no parameter ", parameter));
    *bucket = reducer->reducer->layout().slot(parameter).bucket;
    *offset = reducer->reducer->layout().offset(parameter);
    return {};
  });
}

horo_status* horo_reducer_memory(const horo_reducer* reducer, size_t bucket, horo_memory** memory) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_memory"));
    if (memory == nullptr) return wrong("horo_reducer_memory: no place for the memory");
    if (bucket >= reducer->reducer->layout().buckets().size()) return wrong(horo::text("there is no bucket ", bucket));
    horo::ddp::Memory bytes = reducer->reducer->memory(bucket);
    if (bytes == nullptr) return wrong(horo::text("bucket ", bucket, " is sparse and has no memory"));
    *memory = new horo_memory{reducer->process, std::move(bytes)};
    return {};
  });
}

horo_status* horo_reducer_prepare_forward(horo_reducer* reducer, int* rebuilt) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_prepare_forward"));
    HORO_ASSIGN(const bool is, reducer->reducer->prepare_forward());
    if (rebuilt != nullptr) *rebuilt = is ? 1 : 0;
    return {};
  });
}

horo_status* horo_reducer_prepare_backward(horo_reducer* reducer, int synchronize, const size_t* unused,
                                           const void* const* gradients, size_t count) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_prepare_backward"));
    if (unused == nullptr && count > 0) return wrong("horo_reducer_prepare_backward: the unused parameters are null");
    std::vector<const std::byte*> held;
    for (size_t i = 0; gradients != nullptr && i < count; ++i) held.push_back(as_bytes(gradients[i]));
    return reducer->reducer->prepare_backward(synchronize != 0, {unused, count}, held);
  });
}

horo_status* horo_reducer_ready(horo_reducer* reducer, size_t parameter, const void* gradient, unsigned* events) {
  return eventful(reducer, "horo_reducer_ready", events,
                  [&](auto& to) { return to.ready(parameter, as_bytes(gradient)); });
}

horo_status* horo_reducer_ready_all(horo_reducer* reducer, unsigned* events) {
  return eventful(reducer, "horo_reducer_ready_all", events, [](auto& to) { return to.ready_all(); });
}

horo_status* horo_reducer_end_backward(horo_reducer* reducer, unsigned* events) {
  return eventful(reducer, "horo_reducer_end_backward", events, [](auto& to) { return to.end_backward(); });
}

horo_status* horo_reducer_take(horo_reducer* reducer, int64_t* bucket) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_take"));
    if (bucket == nullptr) return wrong("horo_reducer_take: no place for the bucket");
    *bucket = -1;
    HORO_ASSIGN(const auto taken, reducer->reducer->take());
    if (taken) *bucket = static_cast<int64_t>(*taken);
    return {};
  });
}

horo_status* horo_reducer_launched(horo_reducer* reducer, size_t bucket, unsigned* events) {
  return eventful(reducer, "horo_reducer_launched", events, [&](auto& to) { return to.launched(bucket); });
}

horo_status* horo_reducer_deliver(horo_reducer* reducer, size_t bucket, const void* result) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_deliver"));
    return reducer->reducer->deliver(bucket, as_bytes(result));
  });
}

int horo_reducer_all_launched(const horo_reducer* reducer) {
  if (is_absent(reducer, "horo_reducer_all_launched", "reducer")) return -1;
  return reducer->process.is_current() && reducer->reducer->all_launched() ? 1 : 0;
}

int horo_reducer_under_way(const horo_reducer* reducer) {
  if (is_absent(reducer, "horo_reducer_under_way", "reducer")) return -1;
  return reducer->process.is_current() && reducer->reducer->under_way() ? 1 : 0;
}

horo_status* horo_reducer_fail(horo_reducer* reducer, horo_code code, const char* why) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_fail"));
    if (why == nullptr) return wrong("horo_reducer_fail: the reason is null");
    if (code == HORO_OK || static_cast<unsigned>(code) > HORO_INTERNAL) {
      return wrong(horo::text("horo_reducer_fail: ", static_cast<int>(code), " is no code of a failure"));
    }
    return reducer->reducer->fail(Status(static_cast<Code>(code), why));
  });
}

horo_status* horo_reducer_finish(horo_reducer* reducer, double timeout, void* const* outputs, horo_outcome* outcomes) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_finish"));
    const size_t count = reducer->reducer->parameters().size();
    std::vector<std::byte*> places;
    for (size_t i = 0; outputs != nullptr && i < count; ++i) places.push_back(static_cast<std::byte*>(outputs[i]));
    std::vector<Outcome> found(count, Outcome::kReduced);
    HORO_TRY(
        reducer->reducer->finish(timeout < 0 ? Deadline::never() : Deadline::after_seconds(timeout), places, found));
    for (size_t i = 0; outcomes != nullptr && i < count; ++i) outcomes[i] = static_cast<horo_outcome>(found[i]);
    return {};
  });
}

horo_status* horo_reducer_set_hook(horo_reducer* reducer, const horo_hook_options* options) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_set_hook"));
    HORO_ASSIGN(horo_hook_options from, complete(options, horo_hook_options HORO_HOOK_OPTIONS_INIT,
                                                 "horo_reducer_set_hook", "HORO_HOOK_OPTIONS_INIT"));
    if (static_cast<unsigned>(from.kind) > HORO_HOOK_CALLER) {
      return wrong(horo::text("there is no hook of kind ", static_cast<int>(from.kind)));
    }
    return reducer->reducer->set_hook(HookOptions{static_cast<horo::ddp::HookKind>(from.kind), from.rank,
                                                  from.start_iteration, from.min_compression_rate,
                                                  from.error_feedback != 0, from.warm_start != 0, from.seed});
  });
}

horo_status* horo_reducer_set_divisor(horo_reducer* reducer, double divisor) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_set_divisor"));
    return reducer->reducer->set_divisor(divisor);
  });
}

horo_status* horo_reducer_set_sample_rate(horo_reducer* reducer, uint64_t iterations) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_set_sample_rate"));
    return reducer->reducer->set_sample_rate(iterations);
  });
}

horo_status* horo_reducer_set_static_graph(horo_reducer* reducer) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_set_static_graph"));
    return reducer->reducer->set_static_graph();
  });
}

horo_status* horo_reducer_statistics(const horo_reducer* reducer, horo_reduction_statistics* statistics) {
  return guarded([&]() -> Status {
    HORO_TRY(check(reducer, "horo_reducer_statistics"));
    HORO_ASSIGN(horo_reduction_statistics all,
                complete(statistics, horo_reduction_statistics HORO_REDUCTION_STATISTICS_INIT,
                         "horo_reducer_statistics", "HORO_REDUCTION_STATISTICS_INIT"));
    const size_t size = all.struct_size;
    all = statistics_of(reducer->reducer->statistics());
    all.struct_size = size;
    std::memcpy(statistics, &all, std::min(size, sizeof all));
    return {};
  });
}

size_t horo_reducer_ready_order(const horo_reducer* reducer, size_t* parameters, size_t capacity) {
  if (is_absent(reducer, "horo_reducer_ready_order", "reducer")) return 0;
  const auto order = reducer->reducer->ready_order();
  if (parameters != nullptr) std::copy_n(order.begin(), std::min(capacity, order.size()), parameters);
  return order.size();
}

void horo_pack(void* to, const void* from, size_t bytes) {
  if (bytes == 0 || is_absent(to, "horo_pack", "place") || is_absent(from, "horo_pack", "gradient")) return;
  horo::kernel::copy_for_later(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}
