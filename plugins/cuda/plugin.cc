// The table that libhoro takes.
#include "horo/device/plugin.h"

#include <cstring>
#include <string>

#include "plugins/cuda/cast.h"
#include "plugins/cuda/context.h"
#include "plugins/cuda/nccl.h"
#include "plugins/cuda/queue.h"

#include "horo/base/text.h"

namespace {

using horo::Code;
using horo::Result;
using horo::Status;
using horo::text;
using namespace horo::cuda;

std::string& words_of_thread() {
  thread_local std::string words;
  return words;
}

int code_of(const Status& status) {
  if (!status.ok()) words_of_thread() = status.message();
  return static_cast<int>(status.code());
}

/// Runs `body` with the device's context; nothing escapes into C.
template <class Body>
int with(int device, Body body) {
  try {
    Result<Context*> context = context_of(device);
    if (!context.ok()) return code_of(context.status());
    const Context::Use use(**context);
    return code_of(body(**context, (*context)->driver()));
  } catch (const std::exception& error) {
    return code_of(Status(Code::kUnavailable, error.what()));
  }
}

template <class Body>
int guarded(Body body) {
  try {
    return code_of(body());
  } catch (const std::exception& error) {
    return code_of(Status(Code::kUnavailable, error.what()));
  }
}

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }
// NOLINTNEXTLINE(performance-no-int-to-ptr): the driver has them as numbers.
void* pointer(CUdeviceptr memory) { return reinterpret_cast<void*>(memory); }
Queue& queue_of(void* queue) { return *static_cast<Queue*>(queue); }

const char* last_error() { return words_of_thread().c_str(); }

std::string describe_devices(const Driver& found) {
  int devices = 0, version = 0;
  found.cuDeviceGetCount(&devices);
  found.cuDriverGetVersion(&version);
  std::string words = text("driver: CUDA ", version / 1000, ".", version % 1000 / 10, " (", found.file, "), ", devices,
                           devices == 1 ? " device" : " devices", "\n");
  for (int i = 0; i < devices; ++i) {
    CUdevice device = 0;
    char name[256] = "";
    int major = 0, minor = 0;
    if (found.cuDeviceGet(&device, i) != kSuccess) continue;
    found.cuDeviceGetName(name, sizeof name, device);
    found.cuDeviceGetAttribute(&major, kAttributeMajor, device);
    found.cuDeviceGetAttribute(&minor, kAttributeMinor, device);
    words += text("device ", i, ": ", name, ", compute capability ", major, ".", minor, "\n");
  }
  return words;
}

int describe(char* out, size_t capacity) {
  return guarded([&]() -> Status {
    const Result<Driver>& found = driver();
    const Result<Compiler>& nvrtc = compiler();
    std::string words = found.ok() ? describe_devices(*found) : text("driver: ", found.status().message(), "\n");
    if (nvrtc.ok()) {
      int major = 0, minor = 0;
      nvrtc->nvrtcVersion(&major, &minor);
      words += text("NVRTC: ", major, ".", minor, " (", nvrtc->file, ")\n");
    } else {
      words += text("NVRTC: ", nvrtc.status().message(), "\n");
    }
    words += text("NCCL: ", describe_nccl(), "\n");
    if (capacity > 0) {
      const size_t bytes = std::min(words.size(), capacity - 1);
      std::memcpy(out, words.data(), bytes);
      out[bytes] = '\0';
    }
    if (!found.ok()) return found.status().prefixed("CUDA cannot be used");
    return nvrtc.status();
  });
}

void set_cache(const char* folder) { set_cache_folder(folder == nullptr ? "" : folder); }

int count(int* devices) {
  return guarded([&]() -> Status {
    const Result<Driver>& found = driver();
    if (!found.ok()) return found.status();
    return check(*found, found->cuDeviceGetCount(devices), "cuDeviceGetCount");
  });
}

int allocate(int device, uint64_t bytes, void** memory) {
  return with(device, [&](Context&, const Driver& cuda) {
    CUdeviceptr made = 0;
    Status status = check(cuda, cuda.cuMemAlloc(&made, bytes), "cuMemAlloc");
    *memory = pointer(made);
    return status;
  });
}

void free_memory(int device, void* memory) {
  with(device, [&](Context&, const Driver& cuda) { return check(cuda, cuda.cuMemFree(address(memory)), "cuMemFree"); });
}

int export_memory(int device, void* memory, unsigned char handle[HORO_DEVICE_HANDLE_BYTES]) {
  return with(device, [&](Context&, const Driver& cuda) {
    CUipcMemHandle made{};
    Status status = check(cuda, cuda.cuIpcGetMemHandle(&made, address(memory)), "cuIpcGetMemHandle");
    static_assert(sizeof made == HORO_DEVICE_HANDLE_BYTES);
    std::memcpy(handle, &made, sizeof made);
    return status;
  });
}

int import_memory(int device, const unsigned char handle[HORO_DEVICE_HANDLE_BYTES], void** memory) {
  return with(device, [&](Context&, const Driver& cuda) {
    CUipcMemHandle given{};
    std::memcpy(&given, handle, sizeof given);
    CUdeviceptr mapped = 0;
    Status status = check(cuda, cuda.cuIpcOpenMemHandle(&mapped, given, kIpcLazyPeerAccess), "cuIpcOpenMemHandle");
    *memory = pointer(mapped);
    return status;
  });
}

void close_memory(int device, void* memory) {
  with(device, [&](Context&, const Driver& cuda) {
    return check(cuda, cuda.cuIpcCloseMemHandle(address(memory)), "cuIpcCloseMemHandle");
  });
}

int allocate_host(int device, uint64_t bytes, void** memory) {
  return with(device, [&](Context&, const Driver& cuda) {
    return check(cuda, cuda.cuMemHostAlloc(memory, bytes, kHostPortable | kHostMapped), "cuMemHostAlloc");
  });
}

void free_host(int device, void* memory) {
  with(device, [&](Context&, const Driver& cuda) { return check(cuda, cuda.cuMemFreeHost(memory), "cuMemFreeHost"); });
}

int open_queue(int device, void** queue) {
  return with(device, [&](Context& context, const Driver&) -> Status {
    HORO_ASSIGN(std::unique_ptr<Queue> made, Queue::open(context));
    *queue = made.release();
    return {};
  });
}

void close_queue(void* queue) { delete &queue_of(queue); }

int queue_wait(void* queue, void* event) {
  return guarded([&] { return queue_of(queue).wait(static_cast<Context::Event*>(event)->event); });
}
int queue_copy(void* queue, const horo_device_copy* pieces, size_t number) {
  return guarded([&] { return queue_of(queue).copy({pieces, number}); });
}
int queue_transfer(void* queue, void* to, const void* from, uint64_t bytes) {
  return guarded([&] { return queue_of(queue).transfer(to, from, bytes); });
}
int queue_reduce(void* queue, const horo_device_reduction* reduction) {
  return guarded([&] { return queue_of(queue).reduce(*reduction); });
}
int queue_finish(void* queue, int may_spin) {
  return guarded([&] { return queue_of(queue).finish(may_spin != 0); });
}

int record(int device, void* stream, void** event) {
  return with(device, [&](Context& context, const Driver& cuda) -> Status {
    const auto from = static_cast<CUstream>(stream);
    int capturing = kCaptureNone;
    HORO_TRY(check(cuda, cuda.cuStreamIsCapturing(from, &capturing), "cuStreamIsCapturing"));
    if (capturing != kCaptureNone) {
      return {Code::kInvalidArgument,
              "an operation while a CUDA graph is captured: other ranks would have to replay theirs at the same time; "
              "capture the parts before and after it"};
    }
    HORO_ASSIGN(Context::Event * taken, context.take_event());
    Status recorded = check(cuda, cuda.cuEventRecord(taken->event, from), "cuEventRecord");
    if (recorded.ok()) {
      *event = taken;
    } else {
      Context::give_back(taken);
    }
    return recorded;
  });
}

void forget(void* event) { Context::give_back(static_cast<Context::Event*>(event)); }

int identify(int device, horo_device_identity* identity) {
  return with(device, [&](Context&, const Driver& cuda) -> Status {
    CUdevice number = 0;
    CUuuid uuid{};
    *identity = {};
    HORO_TRY(check(cuda, cuda.cuDeviceGet(&number, device), "cuDeviceGet"));
    HORO_TRY(check(cuda, cuda.cuDeviceGetUuid(&uuid, number), "cuDeviceGetUuid"));
    std::memcpy(identity->uuid, uuid.bytes, sizeof identity->uuid);
    int mps = 0;
    identity->in_turns = cuda.cuDeviceGetAttribute(&mps, kAttributeMps, number) == kSuccess && mps != 0 ? 0 : 1;
    return check(cuda, cuda.cuDeviceGetPCIBusId(identity->address, sizeof identity->address, number),
                 "cuDeviceGetPCIBusId");
  });
}

Communicator& communicator_of(void* communicator) { return *static_cast<Communicator*>(communicator); }

/// A code, or that it goes on.
template <class Body>
int guarded_pending(Body body) {
  bool done = true;
  const int code = guarded([&]() -> Status {
    HORO_ASSIGN(done, body());
    return {};
  });
  return code == 0 && !done ? HORO_DEVICE_PENDING : code;
}

int fabric_version(int* version) {
  return guarded([&]() -> Status {
    const Result<Nccl>& library = nccl();
    if (!library.ok()) return library.status();
    *version = library->version;
    return {};
  });
}

int fabric_reduces(int dtype, int op) { return nccl_reduces(dtype, op) ? 1 : 0; }

int fabric_id(unsigned char id[HORO_DEVICE_FABRIC_ID_BYTES]) {
  return guarded([&]() -> Status {
    const Result<Nccl>& library = nccl();
    if (!library.ok()) return library.status();
    ncclUniqueId made{};
    if (const ncclResult result = library->ncclGetUniqueId(&made); result != kNcclSuccess) {
      return {Code::kUnavailable, text("ncclGetUniqueId failed: ", library->ncclGetErrorString(result))};
    }
    std::memcpy(id, &made, sizeof made);
    return {};
  });
}

int open_communicator(int device, const unsigned char id[HORO_DEVICE_FABRIC_ID_BYTES], int members, int member,
                      void** communicator) {
  return with(device, [&](Context& context, const Driver&) -> Status {
    const Result<Nccl>& library = nccl();
    if (!library.ok()) return library.status();
    ncclUniqueId given{};
    std::memcpy(&given, id, sizeof given);
    HORO_ASSIGN(std::unique_ptr<Communicator> made, Communicator::open(*library, context, given, members, member));
    *communicator = made.release();
    return {};
  });
}

int poll_communicator(void* communicator) {
  return guarded_pending([&] { return communicator_of(communicator).poll(); });
}

int queue_collective(void* queue, void* communicator, const horo_device_collective* collective) {
  return guarded_pending([&] { return communicator_of(communicator).run(queue_of(queue), *collective); });
}

void close_communicator(void* communicator, int abort) {
  guarded([&]() -> Status {
    Communicator::end(std::unique_ptr<Communicator>(&communicator_of(communicator)), abort != 0);
    return {};
  });
}

int queue_mark(void* queue) {
  return guarded([&] { return queue_of(queue).mark(); });
}
int queue_poll(void* queue) {
  return guarded_pending([&] { return queue_of(queue).poll(); });
}
int queue_await(void* queue, int may_spin) {
  return guarded([&] { return queue_of(queue).await(may_spin != 0); });
}

int cast(int device, void* stream, const horo_device_cast_terms* terms, const horo_device_cast* arrays, size_t number) {
  return with(device, [&](Context& context, const Driver&) {
    return cast_arrays(context, static_cast<CUstream>(stream), *terms, {arrays, number});
  });
}

int synchronize(int device) {
  return with(device,
              [](Context&, const Driver& cuda) { return check(cuda, cuda.cuCtxSynchronize(), "cuCtxSynchronize"); });
}

int event_poll(void* event) {
  const Context::Event& asked = *static_cast<Context::Event*>(event);
  const Driver& cuda = asked.context.driver();
  return guarded_pending([&]() -> Result<bool> {
    const Context::Use use(asked.context);
    const CUresult state = cuda.cuEventQuery(asked.event);
    if (state == kNotReady) return false;
    HORO_TRY(check(cuda, state, "cuEventQuery"));
    return true;
  });
}

int queue_record(void* queue, void** event) {
  return guarded([&]() -> Status {
    HORO_ASSIGN(*event, queue_of(queue).record());
    return {};
  });
}

int stream_wait(int device, void* stream, void* event) {
  return with(device, [&](Context&, const Driver& cuda) {
    return check(cuda,
                 cuda.cuStreamWaitEvent(static_cast<CUstream>(stream), static_cast<Context::Event*>(event)->event, 0),
                 "cuStreamWaitEvent");
  });
}

int queue_signal(void* queue, uint32_t* word, uint32_t value) {
  return guarded([&] { return queue_of(queue).signal(word, value); });
}
int queue_hold(void* queue, const uint32_t* word, uint32_t value) {
  return guarded([&] { return queue_of(queue).hold(word, value); });
}
int queue_guard(void* queue, const uint32_t* word) {
  return guarded([&] { return queue_of(queue).guard(word); });
}

int may_hold(int device) {
  Result<Context*> context = context_of(device);
  return context.ok() && (*context)->may_hold() ? 1 : 0;
}
void release_holds(int) { Context::release_holds(); }

constexpr horo_device_plugin kTable = {
    sizeof(horo_device_plugin),
    HORO_DEVICE_VERSION,
    "cuda",
    last_error,
    describe,
    set_cache,
    count,
    allocate,
    free_memory,
    export_memory,
    import_memory,
    close_memory,
    allocate_host,
    free_host,
    open_queue,
    close_queue,
    queue_wait,
    queue_copy,
    queue_transfer,
    queue_reduce,
    queue_finish,
    record,
    forget,
    identify,
    fabric_version,
    fabric_reduces,
    fabric_id,
    open_communicator,
    poll_communicator,
    queue_collective,
    close_communicator,
    queue_mark,
    queue_poll,
    queue_await,
    cast,
    synchronize,
    event_poll,
    queue_record,
    stream_wait,
    queue_signal,
    queue_hold,
    queue_guard,
    may_hold,
    release_holds,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const horo_device_plugin* horo_device_plugin_table();
extern "C" const horo_device_plugin* horo_device_plugin_table() { return &kTable; }
