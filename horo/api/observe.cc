// Looking at a runtime: its timeline and its metrics.

#include "horo/api/observe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "horo/api/handles.h"
#include "horo/base/text.h"

namespace {

using horo::Code;
using horo::Status;
using horo::api::is_absent;

Status check(const horo_runtime* runtime, const char* function) {
  if (runtime == nullptr) return {Code::kInvalidArgument, horo::text(function, ": the runtime is null")};
  return horo::api::check_process(runtime->process, function);
}

horo_times times_of(const horo::engine::Histogram& histogram) {
  const horo::engine::Histogram::Values values = histogram.values();
  horo_times times{};
  static_assert(sizeof times.buckets == sizeof values.counts);
  times.count = values.count();
  times.sum = values.sum_seconds;
  std::copy(values.counts.begin(), values.counts.end(), times.buckets);
  return times;
}

/// As much of `all` as the caller's struct has room for; its size stays.
template <class Struct>
Status hand_out(Struct all, Struct* to, const char* function) {
  if (to == nullptr || to->struct_size < sizeof(size_t)) {
    return {Code::kInvalidArgument, horo::text(function, " needs a struct that begins with its size")};
  }
  all.struct_size = to->struct_size;
  std::memcpy(to, &all, std::min(to->struct_size, sizeof all));
  return {};
}

}  // namespace

horo_status* horo_runtime_operation_metrics(const horo_runtime* runtime, int set, horo_kind kind,
                                            horo_operation_metrics* metrics) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_operation_metrics"));
    const auto wanted = horo::api::kind_of(kind);
    if (!wanted) {
      return {Code::kInvalidArgument,
              horo::text("horo_runtime_operation_metrics: no tensor is of kind ", static_cast<int>(kind))};
    }
    horo_operation_metrics all{};
    if (const horo::engine::SetMetrics* found = runtime->runtime->metrics().find(set)) {
      const horo::engine::KindMetrics& from = found->of(*wanted);
      all = {0,
             from.handed_in.get(),
             from.tensors.get(),
             from.errors.get(),
             from.bytes.get(),
             from.batches.get(),
             times_of(from.latency),
             times_of(from.wait)};
    }
    return hand_out(all, metrics, "horo_runtime_operation_metrics");
  });
}

horo_status* horo_runtime_set_metrics(const horo_runtime* runtime, int set, horo_set_metrics* metrics) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_set_metrics"));
    horo_set_metrics all{};
    if (const horo::engine::SetMetrics* from = runtime->runtime->metrics().find(set)) {
      all = {0,
             from->announced_by_number.get(),
             from->announced_in_full.get(),
             from->messages_sent.get(),
             from->messages_received.get(),
             from->stalls.get()};
    }
    return hand_out(all, metrics, "horo_runtime_set_metrics");
  });
}

size_t horo_runtime_metrics_text(const horo_runtime* runtime, char* text, size_t capacity) {
  if (is_absent(runtime, "horo_runtime_metrics_text", "runtime") || !runtime->process.is_current()) return 0;
  const std::string all = runtime->runtime->metrics_text();
  if (text != nullptr && capacity > 0) {
    const size_t count = std::min(all.size(), capacity - 1);
    std::memcpy(text, all.data(), count);
    text[count] = '\0';
  }
  return all.size();
}

horo_status* horo_runtime_start_timeline(horo_runtime* runtime, const char* path, int mark_cycles) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_start_timeline"));
    if (path == nullptr) return {Code::kInvalidArgument, "horo_runtime_start_timeline: the path is null"};
    return runtime->runtime->start_timeline(path, mark_cycles != 0);
  });
}

horo_status* horo_runtime_stop_timeline(horo_runtime* runtime) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_stop_timeline"));
    runtime->runtime->stop_timeline();
    return {};
  });
}
