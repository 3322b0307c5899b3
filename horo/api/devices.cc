// Devices, as callers name them.
#include "horo/api/devices.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "horo/api/handles.h"
#include "horo/api/joining.h"
#include "horo/base/text.h"
#include "horo/ddp/int8.h"
#include "horo/device/loader.h"
#include "horo/kernel/reduce.h"

using horo::Code;
using horo::Result;
using horo::Status;

namespace {

Status allocate_on(horo::group::Engine& engine, int device, size_t bytes, horo_memory** memory) {
  if (memory == nullptr) return {Code::kInvalidArgument, "no place for the memory of a device"};
  if (bytes == 0) return {Code::kInvalidArgument, "no bytes of a device"};
  HORO_ASSIGN(horo::device::Devices * devices, engine.devices().get());
  HORO_TRY(devices->usable());
  HORO_ASSIGN(auto made, engine.devices().share(device, bytes));
  *memory = new horo_memory{horo::api::Process::current(), std::move(made)};
  return {};
}

/// Largest values are found first: arrays may name the same place.
void quantize_on_host(const horo_cast_array* arrays, size_t count) {
  for (size_t i = 0; i < count; ++i) *arrays[i].largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const float one = horo::ddp::largest(static_cast<const float*>(arrays[i].from), arrays[i].count);
    float& all = *arrays[i].largest;
    if (all == all && !(one <= all)) all = one;  // NaN stays.
  }
  for (size_t i = 0; i < count; ++i) {
    horo::ddp::quantize(static_cast<int8_t*>(arrays[i].to), static_cast<const float*>(arrays[i].from), arrays[i].count,
                        *arrays[i].largest);
  }
}

void dequantize_on_host(const horo_cast& terms, const horo_cast_array& array) {
  auto* to = static_cast<float*>(array.to);
  const auto* from = static_cast<const int8_t*>(array.from);
  (terms.add != 0 ? horo::ddp::add_dequantized : horo::ddp::dequantize)(to, from, array.count, *array.largest);
  if (terms.factor == 1.0F) return;
  for (uint64_t i = 0; i < array.count; ++i) to[i] *= terms.factor;
}

Status cast_on_host(const horo_cast& terms, const horo_cast_array* arrays, size_t count) {
  if (terms.to == HORO_I8) {
    quantize_on_host(arrays, count);
    return {};
  }
  for (size_t i = 0; i < count; ++i) {
    if (terms.from == HORO_I8) {
      dequantize_on_host(terms, arrays[i]);
    } else {
      horo::kernel::cast(static_cast<horo::DType>(terms.to), static_cast<horo::DType>(terms.from))(
          static_cast<std::byte*>(arrays[i].to), static_cast<const std::byte*>(arrays[i].from), arrays[i].count);
    }
  }
  return {};
}

bool is_half(horo_dtype dtype) { return dtype == HORO_F16 || dtype == HORO_BF16; }
bool is_wide(horo_dtype dtype) { return dtype == HORO_F32 || dtype == HORO_F64; }

Status check(const horo_cast& terms, const horo_cast_array* arrays, size_t count) {
  const bool by_bytes =
      (terms.to == HORO_I8 && terms.from == HORO_F32) || (terms.to == HORO_F32 && terms.from == HORO_I8);
  const bool halves = (is_half(terms.to) && is_wide(terms.from)) || (is_wide(terms.to) && is_half(terms.from));
  if (!by_bytes && !halves) {
    return {Code::kInvalidArgument, horo::text("there is no cast from element type ", static_cast<int>(terms.from),
                                               " to ", static_cast<int>(terms.to))};
  }
  for (size_t i = 0; i < count; ++i) {
    if (by_bytes == (arrays[i].largest != nullptr)) continue;
    return {Code::kInvalidArgument, "a cast from or to i8 needs a place for the largest value, and no other does"};
  }
  return {};
}

}  // namespace

Result<horo::device::Where> horo::api::where_of(group::Engine& engine, int device, void* stream) {
  device::Where where;
  if (device < 0) return where;
  HORO_ASSIGN(device::Devices * devices, engine.devices().get());
  HORO_TRY(devices->usable());
  where.device = device;
  HORO_ASSIGN(where.ready, devices->record(device, stream));
  return where;
}

horo_status* horo_group_allocate_on(horo_group* group, int device, size_t bytes, horo_memory** memory) {
  return horo::api::guarded([&]() -> Status {
    if (group == nullptr) return {Code::kInvalidArgument, "horo_group_allocate_on: the group is null"};
    return allocate_on(*group->engine, device, bytes, memory);
  });
}

horo_status* horo_runtime_allocate_on(horo_runtime* runtime, int device, size_t bytes, horo_memory** memory) {
  return horo::api::guarded([&]() -> Status {
    if (runtime == nullptr) return {Code::kInvalidArgument, "horo_runtime_allocate_on: the runtime is null"};
    HORO_TRY(horo::api::check_process(runtime->process, "horo_runtime_allocate_on"));
    return allocate_on(runtime->runtime->engine(), device, bytes, memory);
  });
}

horo_status* horo_request_wait_in_stream(horo_request* request, void* stream, double timeout) {
  return horo::api::guarded([&]() -> Status {
    if (request == nullptr) return {Code::kInvalidArgument, "horo_request_wait_in_stream: the request is null"};
    horo::group::Request& waited = *request->request;
    HORO_TRY(waited.wait_promised(horo::api::deadline_of(timeout), horo::group::Request::OnSignal::kReturn));
    const horo::device::EventHandle result = waited.promised();
    return result == nullptr ? Status() : result->precede(waited.operation().where.device, stream);
  });
}

horo_status* horo_handle_wait_in_stream(horo_handle* handle, void* stream, double timeout) {
  return horo::api::guarded([&]() -> Status {
    if (handle == nullptr) return {Code::kInvalidArgument, "horo_handle_wait_in_stream: the handle is null"};
    HORO_TRY(horo::api::check_process(handle->process, "horo_handle_wait_in_stream"));
    horo::engine::Submission& waited = *handle->submission;
    HORO_TRY(horo::api::wait_in_pieces(*handle, horo::api::deadline_of(timeout),
                                       horo::engine::Submission::Until::kPromised));
    const horo::device::EventHandle result = waited.promised();
    return result == nullptr ? Status() : result->precede(waited.calls().front().where.device, stream);
  });
}

horo_status* horo_group_cast(horo_group* group, const horo_cast* cast, const horo_cast_array* arrays, size_t count) {
  return horo::api::guarded([&]() -> Status {
    if (group == nullptr) return {Code::kInvalidArgument, "horo_group_cast: the group is null"};
    if (cast == nullptr || cast->struct_size < sizeof(size_t) || (arrays == nullptr && count > 0)) {
      return {Code::kInvalidArgument, "horo_group_cast needs arrays, and terms made with HORO_CAST_INIT"};
    }
    horo_cast terms = HORO_CAST_INIT;
    std::memcpy(&terms, cast, std::min(cast->struct_size, sizeof terms));
    HORO_TRY(check(terms, arrays, count));
    if (terms.device < 0) return cast_on_host(terms, arrays, count);
    HORO_ASSIGN(horo::device::Devices * devices, group->engine->devices().get());
    std::vector<horo_device_cast> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back({arrays[i].to, arrays[i].from, arrays[i].count, arrays[i].largest});
    }
    return devices->cast(terms.device, terms.stream, {terms.to, terms.from, terms.add, terms.factor}, all);
  });
}

const char* horo_devices_describe(const char* const* settings, int* usable) {
  thread_local std::string words;
  if (usable != nullptr) *usable = 0;
  try {
    Result<horo::Config> config = horo::api::read_config(settings);
    if (!config.ok()) return (words = config.status().to_string()).c_str();
    const auto source = std::make_shared<horo::device::Source>(*config);
    Result<horo::device::Devices*> devices = source->get();
    if (!devices.ok()) return (words = devices.status().message()).c_str();
    words = (*devices)->describe();
    if (usable != nullptr) *usable = (*devices)->usable().ok() ? 1 : 0;
  } catch (const std::exception& error) {
    words = error.what();
  }
  return words.c_str();
}
