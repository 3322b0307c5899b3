// Named tensors as the runtime takes them.
#include <algorithm>
#include <cstring>
#include <memory>

#include "horo/api/handles.h"
#include "horo/base/text.h"

namespace {

using horo::Code;
using horo::Result;
using horo::Status;
using horo::engine::Call;
using horo::engine::Kind;

Status wrong(std::string words) { return {Code::kInvalidArgument, std::move(words)}; }

horo::engine::Allocate allocate_of(const horo_tensor& from) {
  if (from.allocate == nullptr) return {};
  return [allocate = from.allocate,
          context = from.allocate_context](const std::vector<int64_t>& shape) -> Result<std::byte*> {
    return static_cast<std::byte*>(allocate(context, shape.data(), shape.size()));
  };
}

Result<Call> call_of(const horo_tensor& from) {
  if (from.name == nullptr) return wrong("horo_runtime_submit: the name of a tensor is null");
  const std::optional<Kind> kind = horo::api::kind_of(from.kind);
  if (!kind) return wrong(horo::text("named tensors have no operation of kind ", static_cast<int>(from.kind)));
  // Before they are narrowed, or 266 would become 10.
  if (static_cast<unsigned>(from.dtype) > HORO_BYTE) {
    return wrong(horo::text("tensor '", from.name, "': there is no element type ", static_cast<int>(from.dtype)));
  }
  if (static_cast<unsigned>(from.op) > HORO_ADASUM) {
    return wrong(horo::text("tensor '", from.name, "': there is no reduction ", static_cast<int>(from.op)));
  }
  if (from.shape == nullptr && from.dimensions > 0) return wrong(horo::text("tensor '", from.name, "': no shape"));
  Call call;
  call.tensor.name = from.name;
  call.tensor.kind = *kind;
  call.tensor.dtype = static_cast<horo::DType>(from.dtype);
  call.tensor.reduction = static_cast<horo::engine::Reduction>(from.op);
  call.tensor.root = from.root;
  call.tensor.prescale = from.prescale;
  call.tensor.postscale = from.postscale;
  if (from.dimensions > 0) call.tensor.shape.assign(from.shape, from.shape + from.dimensions);
  if (from.dimensions > 0 && from.strides != nullptr) {
    call.tensor.strides = horo::engine::layout_of(call.tensor.shape, {from.strides, from.dimensions});
  }
  call.input = static_cast<const std::byte*>(from.input);
  call.output = static_cast<std::byte*>(from.output);
  call.allocate = allocate_of(from);
  if (from.splits != nullptr) call.splits.assign(from.splits, from.splits + from.split_count);
  return call;
}

/// The structs lie as far apart as the program that made them thinks they are long.
Result<std::vector<Call>> calls_of(horo::group::Engine& engine, const horo_tensor* tensors, size_t count) {
  if (tensors == nullptr || count == 0) return wrong("horo_runtime_submit needs one tensor at least");
  const size_t stride = tensors->struct_size;
  if (stride < sizeof(size_t)) return wrong("horo_runtime_submit needs tensors made with HORO_TENSOR_INIT");
  std::vector<Call> calls;
  calls.reserve(count);
  horo::device::Where where;
  void* stream = nullptr;
  for (size_t i = 0; i < count; ++i) {
    horo_tensor all = HORO_TENSOR_INIT;
    std::memcpy(&all, reinterpret_cast<const std::byte*>(tensors) + i * stride, std::min(stride, sizeof all));
    HORO_ASSIGN(Call call, call_of(all));
    if (all.device >= 0) {
      // Tensors of one stream share one event.
      if (all.device != where.device || all.stream != stream) {
        HORO_ASSIGN(where, horo::api::where_of(engine, all.device, all.stream));
        stream = all.stream;
      }
      call.where = where;
      call.tensor.place = horo::engine::Place::kDevice;
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

horo::engine::Submission::Callback callback_of(horo_callback callback, void* context) {
  if (callback == nullptr) return {};
  return [callback, context](const horo::engine::Submission& submission) {
    horo_status* status = horo::api::to_handle(submission.status());
    callback(context, status);
    horo_status_free(status);
  };
}

Status check_runtime(const horo_runtime* runtime, const char* function) {
  if (runtime == nullptr) return wrong(horo::text(function, ": the runtime is null"));
  return horo::api::check_process(runtime->process, function);
}

Status run(horo_runtime& runtime, int set, const horo_tensor* tensors, size_t count, horo::Deadline deadline,
           horo_handle** handle) {
  HORO_ASSIGN(std::vector<Call> calls, calls_of(runtime.runtime->engine(), tensors, count));
  auto made = std::make_unique<horo_handle>();
  HORO_ASSIGN(horo::engine::Handle submission, runtime.runtime->submit_to_wait(set, std::move(calls)));
  *made = horo_handle{runtime.runtime, runtime.process, set, std::move(submission)};
  Status outcome = horo::api::wait_in_pieces(*made, deadline);
  if (handle != nullptr) *handle = made.release();
  return outcome;
}

}  // namespace

std::optional<Kind> horo::api::kind_of(horo_kind kind) {
  switch (kind) {
    case HORO_ALLREDUCE:
      return Kind::kAllreduce;
    case HORO_ALLGATHER:
      return Kind::kAllgather;
    case HORO_BROADCAST:
      return Kind::kBroadcast;
    case HORO_ALLTOALL:
      return Kind::kAlltoall;
    case HORO_REDUCESCATTER:
      return Kind::kReduceScatter;
    case HORO_BARRIER:
      return Kind::kBarrier;
    default:
      return std::nullopt;
  }
}

horo_status* horo_runtime_run(horo_runtime* runtime, int set, const horo_tensor* tensors, size_t count,
                              horo_handle** handle) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check_runtime(runtime, "horo_runtime_run"));
    return run(*runtime, set, tensors, count, horo::Deadline::never(), handle);
  });
}

horo_status* horo_runtime_run_for(horo_runtime* runtime, int set, const horo_tensor* tensors, size_t count,
                                  double timeout, horo_handle** handle) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check_runtime(runtime, "horo_runtime_run_for"));
    if (handle == nullptr) return wrong("horo_runtime_run_for: no place for the handle");
    return run(*runtime, set, tensors, count, horo::Deadline::after_seconds(timeout), handle);
  });
}

horo_status* horo_runtime_submit_each(horo_runtime* runtime, int set, const horo_tensor* tensors, size_t count,
                                      int waits, horo_handle** handles) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check_runtime(runtime, "horo_runtime_submit_each"));
    if (handles == nullptr) return wrong("horo_runtime_submit_each: no place for the handles");
    std::fill_n(handles, count, nullptr);
    HORO_ASSIGN(std::vector<Call> calls, calls_of(runtime->runtime->engine(), tensors, count));
    // Before anything is handed in: afterwards nothing may fail.
    std::vector<std::unique_ptr<horo_handle>> made(count);
    for (auto& one : made) one = std::make_unique<horo_handle>();
    std::vector<horo::engine::Handle> submissions;
    Status refused = runtime->runtime->submit_each(set, std::move(calls), waits != 0, submissions);
    for (size_t i = 0; i < submissions.size(); ++i) {
      *made[i] = horo_handle{runtime->runtime, runtime->process, set, std::move(submissions[i])};
      handles[i] = made[i].release();
    }
    return refused;
  });
}

horo_status* horo_runtime_submit(horo_runtime* runtime, int set, const horo_tensor* tensors, size_t count,
                                 horo_callback callback, void* context, horo_handle** handle) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check_runtime(runtime, "horo_runtime_submit"));
    HORO_ASSIGN(std::vector<Call> calls, calls_of(runtime->runtime->engine(), tensors, count));
    // Before anything is handed in: afterwards nothing may fail.
    auto made = handle == nullptr ? nullptr : std::make_unique<horo_handle>();
    HORO_ASSIGN(horo::engine::Handle submission,
                runtime->runtime->submit(set, std::move(calls), callback_of(callback, context)));
    if (handle == nullptr) return {};
    *made = horo_handle{runtime->runtime, runtime->process, set, std::move(submission)};
    *handle = made.release();
    return {};
  });
}
