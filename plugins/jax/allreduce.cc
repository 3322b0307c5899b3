// The handler that JAX calls for a grouped allreduce on the host: all gradients of a step are one call of it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/jax/call.h"
#include "plugins/jax/continuations.h"

#include "horo/base/text.h"

namespace horo::jax {

namespace {

using Acquired = std::unique_ptr<horo_runtime, void (*)(horo_runtime*)>;

ffi::ErrorCode code_of(horo_code code) {
  switch (code) {
    case HORO_INVALID_ARGUMENT:
    case HORO_MISMATCH:
      return ffi::kInvalidArgument;
    case HORO_INTERNAL:
      return ffi::kInternal;
    default:
      return ffi::kAborted;
  }
}

/// What a failure becomes in XLA. The front end reads the first words of it.
struct Failure {
  ffi::ErrorCode code;
  std::string words;

  ffi::Error* create(const ffi::Api& api) const {
    ffi::ErrorCreateArguments arguments{sizeof(arguments), nullptr, words.c_str(), code};
    return api.create_error(&arguments);
  }
};

Failure failure_of(horo_code code, const std::string& ranks, const std::string& words) {
  return {code_of(code), text("horo: ", horo_code_name(code), ranks, ": ", words)};
}

/// "horo: peer-lost[2,3]: peer-lost: ...": exceptions of JAX hold nothing but words.
Failure failure_of(const horo_status* status) {
  std::vector<int> lost(horo_status_lost(status, nullptr, 0));
  horo_status_lost(status, lost.data(), lost.size());
  std::string ranks;
  for (const int rank : lost) ranks += text(ranks.empty() ? "[" : ",", rank);
  if (!ranks.empty()) ranks += "]";
  return failure_of(horo_status_code(status), ranks, horo_status_message(status));
}

/// Takes over `status`, which is a failure.
Failure take_failure(horo_status* status) {
  Failure failure = failure_of(status);
  horo_status_free(status);
  return failure;
}

void set_available(const ffi::Api& api, ffi::Future* future) {
  ffi::FutureArguments arguments{sizeof(arguments), nullptr, future};
  api.future_set_available(&arguments);
}

void set_error(const ffi::Api& api, ffi::Future* future, const Failure& failure) {
  ffi::FutureErrorArguments arguments{sizeof(arguments), nullptr, future, failure.create(api)};
  api.future_set_error(&arguments);
}

/// An allreduce under way whose end XLA hears of by a future.
struct UnderWay {
  const ffi::Api* api;
  ffi::Future* future;

  static void done(void* context, const horo_status* status) {
    const std::unique_ptr<UnderWay> self(static_cast<UnderWay*>(context));
    if (status == nullptr) {
      Continuations::shared().run([one = *self] { set_available(*one.api, one.future); });
    } else {
      Continuations::shared().run(
          [one = *self, failure = failure_of(status)] { set_error(*one.api, one.future, failure); });
    }
  }
};

/// Null where this jaxlib has no futures.
ffi::Future* make_future(const ffi::Api& api) {
  if (api.struct_size < ffi::kApiWithFutures || api.future_create == nullptr) return nullptr;
  ffi::FutureArguments arguments{sizeof(arguments), nullptr, nullptr};
  return api.future_create(&arguments) == nullptr ? arguments.future : nullptr;
}

/// Hands in and returns. The future is XLA's from now on, whatever became of the call.
void begin(ffi::CallFrame& frame, ffi::Future* future, horo_runtime* runtime, const Call& call) {
  auto under_way = std::make_unique<UnderWay>(UnderWay{frame.api, future});
  horo_status* status = horo_runtime_submit(runtime, call.set, call.tensors.data(), call.tensors.size(), UnderWay::done,
                                            under_way.get(), nullptr);
  if (status == nullptr) {
    static_cast<void>(under_way.release());  // done() owns it.
  } else {
    set_error(*frame.api, future, take_failure(status));
  }
  frame.future = future;
}

horo_status* run(Acquired runtime, const Call& call) {
  horo_handle* handle = nullptr;
  horo_status* status =
      horo_runtime_submit(runtime.get(), call.set, call.tensors.data(), call.tensors.size(), nullptr, nullptr, &handle);
  runtime.reset();  // Not held while waiting.
  if (status == nullptr) status = horo_handle_wait(handle, -1);
  horo_handle_destroy(handle);
  return status;
}

ffi::Error* allreduce(ffi::CallFrame& frame) {
  const Result<Call> call = read_call(frame);
  if (!call.ok()) {
    return failure_of(HORO_INVALID_ARGUMENT, "", call.status().message()).create(*frame.api);
  }
  Acquired runtime(horo_runtime_acquire(), horo_runtime_release);
  if (runtime == nullptr) {
    const std::string words = text("the allreduce '", call->names.front(),
                                   "' needs horo, which has not been initialized; use hvd.init() before it runs");
    return failure_of(HORO_INVALID_ARGUMENT, "", words).create(*frame.api);
  }
  if (ffi::Future* future = make_future(*frame.api)) {
    begin(frame, future, runtime.get(), *call);
    return nullptr;
  }
  horo_status* status = run(std::move(runtime), *call);
  return status == nullptr ? nullptr : take_failure(status).create(*frame.api);
}

/// Whether the call was a question about the handler.
bool answer_metadata(const ffi::CallFrame& frame) {
  ffi::Extension* extension = frame.extension_start;
  if (extension == nullptr || extension->type != ffi::kMetadataExtension) return false;
  ffi::Metadata& metadata = *reinterpret_cast<ffi::MetadataExtension*>(extension)->metadata;
  metadata.version.major = ffi::kMajor;
  metadata.version.minor = ffi::kMinor;
  metadata.traits = 0;
  return true;
}

}  // namespace

}  // namespace horo::jax

/// Registered with JAX as "horo_allreduce" by horo.jax.
extern "C" __attribute__((visibility("default"))) horo::jax::ffi::Error* horo_jax_allreduce(
    horo::jax::ffi::CallFrame* frame) {
  using namespace horo::jax;
  if (answer_metadata(*frame) || frame->stage != ffi::kExecute) return nullptr;
  try {
    return allreduce(*frame);
  } catch (const std::exception& error) {
    return failure_of(HORO_INTERNAL, "", error.what()).create(*frame->api);
  }
}
