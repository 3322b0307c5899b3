#include <cstring>

#include "horo/api/handles.h"
#include "horo/base/text.h"

namespace {

using horo::Code;
using horo::Deadline;
using horo::Result;
using horo::Status;
using horo::api::is_absent;
using horo::collective::Operation;
using horo::group::Request;

const std::byte* as_bytes(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* as_bytes(void* memory) { return static_cast<std::byte*>(memory); }

Deadline deadline_of(const horo_operation& operation) {
  return operation.timeout > 0 ? Deadline::after_seconds(operation.timeout) : Deadline::never();
}

Result<horo_operation> complete(const horo_group* group, const horo_operation* operation) {
  if (group == nullptr) return Status(Code::kInvalidArgument, "the group is null");
  if (operation == nullptr || operation->struct_size < sizeof(size_t)) {
    return Status(Code::kInvalidArgument, "an operation must be made with HORO_OPERATION_INIT");
  }
  horo_operation all = HORO_OPERATION_INIT;
  std::memcpy(&all, operation, std::min(operation->struct_size, sizeof all));
  return all;
}

Result<Operation> operation_of(const horo_group& group, const horo_operation& from) {
  if (from.kind < HORO_BARRIER || from.kind > HORO_SENDRECV) {
    return Status(Code::kInvalidArgument, horo::text("there is no operation of kind ", static_cast<int>(from.kind)));
  }
  // Before they are narrowed, or 266 would become 10.
  if (static_cast<unsigned>(from.dtype) > HORO_BYTE) {
    return Status(Code::kInvalidArgument, horo::text("there is no element type ", static_cast<int>(from.dtype)));
  }
  if (static_cast<unsigned>(from.op) > HORO_XOR) {
    return Status(Code::kInvalidArgument, horo::text("there is no reduction ", static_cast<int>(from.op)));
  }
  Operation operation;
  operation.kind = static_cast<horo::transport::Kind>(from.kind);
  operation.dtype = static_cast<horo::DType>(from.dtype);
  operation.op = static_cast<horo::ReduceOp>(from.op);
  operation.root = from.root;
  operation.target = from.target;
  operation.count = from.count;
  operation.prescale = from.prescale;
  operation.postscale = from.postscale;
  const auto size = static_cast<size_t>(group.group->size());
  if (from.counts != nullptr) operation.counts.assign(from.counts, from.counts + size);
  if (from.receive_counts != nullptr) operation.receive_counts.assign(from.receive_counts, from.receive_counts + size);
  HORO_ASSIGN(operation.where, horo::api::where_of(*group.engine, from.device, from.stream));
  return operation;
}

horo_status* wait_for(horo_request* request, const char* function, double timeout, Request::OnSignal on_signal) {
  return horo::api::guarded([&]() -> Status {
    if (request == nullptr) return {Code::kInvalidArgument, horo::text(function, ": the request is null")};
    return request->request->wait(horo::api::deadline_of(timeout), on_signal);
  });
}

horo_status* run_simple(horo_group* group, const horo_operation& operation, const void* input, void* output) {
  return horo_group_run(group, &operation, input, output);
}

horo_operation make(horo_kind kind, horo_dtype dtype, uint64_t count) {
  horo_operation operation = HORO_OPERATION_INIT;
  operation.kind = kind;
  operation.dtype = dtype;
  operation.count = count;
  return operation;
}

std::vector<uint64_t> equal_counts(const horo_group* group, uint64_t count) {
  return std::vector<uint64_t>(group == nullptr ? 0 : static_cast<size_t>(group->group->size()), count);
}

}  // namespace

horo::group::Callback horo::api::call_of(horo_callback callback, void* context) {
  if (callback == nullptr) return {};
  return [callback, context](const Status& status) {
    horo_status* handle = to_handle(status);
    callback(context, handle);
    horo_status_free(handle);
  };
}

horo_group* horo_engine_world(horo_engine* engine) {
  return is_absent(engine, "horo_engine_world", "engine") ? nullptr : &engine->world;
}

horo_status* horo_group_create(horo_engine* engine, const int* ranks, size_t count, horo_group** group) {
  return horo::api::guarded([&]() -> Status {
    if (engine == nullptr || ranks == nullptr || group == nullptr) {
      return {Code::kInvalidArgument, "horo_group_create: null argument"};
    }
    HORO_ASSIGN(auto made, engine->engine->create_group(std::vector<int>(ranks, ranks + count)));
    *group = new horo_group{engine->engine.get(), std::move(made), nullptr};
    return {};
  });
}

void horo_group_destroy(horo_group* group) {
  if (group == nullptr) return;
  group->engine->remove_group(group->group);
  delete group;
}

horo_status* horo_group_give_up(horo_group* group, const char* why) {
  return horo::api::guarded([&]() -> Status {
    if (group == nullptr || why == nullptr) return {Code::kInvalidArgument, "horo_group_give_up: null argument"};
    group->group->give_up(Status(Code::kStopped, why));
    return {};
  });
}

int horo_group_rank(const horo_group* group) {
  return is_absent(group, "horo_group_rank", "group") ? -1 : group->group->member();
}

int horo_group_size(const horo_group* group) {
  return is_absent(group, "horo_group_size", "group") ? -1 : group->group->size();
}

const char* horo_group_transport(const horo_group* group) {
  return is_absent(group, "horo_group_transport", "group") ? "" : group->group->transport_name().data();
}

const char* horo_group_algorithm(const horo_group* group) {
  return is_absent(group, "horo_group_algorithm", "group") ? "" : group->group->algorithm_name().data();
}

horo_status* horo_group_run(horo_group* group, const horo_operation* operation, const void* input, void* output) {
  return horo::api::guarded([&]() -> Status {
    HORO_ASSIGN(horo_operation all, complete(group, operation));
    HORO_ASSIGN(Operation what, operation_of(*group, all));
    return group->group->run(what, as_bytes(input), as_bytes(output), deadline_of(all));
  });
}

// On the group's own thread, so that the operation goes on whatever the caller's thread does about its signal.
horo_status* horo_group_run_interruptible(horo_group* group, const horo_operation* operation, const void* input,
                                          void* output, horo_request** request) {
  return horo::api::guarded([&]() -> Status {
    if (request == nullptr) {
      return {Code::kInvalidArgument,
              "horo_group_run_interruptible: no place for the request that is left when a "
              "signal arrives"};
    }
    *request = nullptr;
    HORO_ASSIGN(horo_operation all, complete(group, operation));
    HORO_ASSIGN(Operation what, operation_of(*group, all));
    auto rest = std::make_unique<horo_request>();
    HORO_ASSIGN(rest->request,
                group->group->submit(std::move(what), as_bytes(input), as_bytes(output), deadline_of(all)));
    Status status = rest->request->wait(Deadline::never(), Request::OnSignal::kReturn);
    if (status.code() == Code::kInterrupted) *request = rest.release();
    return status;
  });
}

horo_status* horo_group_submit(horo_group* group, const horo_operation* operation, const void* input, void* output,
                               horo_callback callback, void* context, horo_request** request) {
  return horo::api::guarded([&]() -> Status {
    HORO_ASSIGN(horo_operation all, complete(group, operation));
    HORO_ASSIGN(Operation what, operation_of(*group, all));
    HORO_ASSIGN(auto handle, group->group->submit(std::move(what), as_bytes(input), as_bytes(output), deadline_of(all),
                                                  horo::api::call_of(callback, context)));
    if (request != nullptr) *request = new horo_request{std::move(handle)};
    return {};
  });
}

int horo_request_done(const horo_request* request) {
  if (is_absent(request, "horo_request_done", "request")) return -1;
  return request->request->done() ? 1 : 0;
}

horo_status* horo_request_wait(horo_request* request, double timeout) {
  return wait_for(request, "horo_request_wait", timeout, Request::OnSignal::kGoOn);
}

horo_status* horo_request_wait_interruptible(horo_request* request, double timeout) {
  return wait_for(request, "horo_request_wait_interruptible", timeout, Request::OnSignal::kReturn);
}

void horo_request_destroy(horo_request* request) { delete request; }

horo_status* horo_allreduce(horo_group* group, const void* input, void* output, uint64_t count, horo_dtype dtype,
                            horo_reduce_op op) {
  horo_operation operation = make(HORO_ALLREDUCE, dtype, count);
  operation.op = op;
  return run_simple(group, operation, input, output);
}

horo_status* horo_broadcast(horo_group* group, void* memory, uint64_t count, horo_dtype dtype, int root) {
  horo_operation operation = make(HORO_BROADCAST, dtype, count);
  operation.root = root;
  return run_simple(group, operation, memory, memory);
}

horo_status* horo_allgather(horo_group* group, const void* input, void* output, uint64_t count, horo_dtype dtype) {
  const auto counts = equal_counts(group, count);
  horo_operation operation = make(HORO_ALLGATHER, dtype, 0);
  operation.counts = counts.data();
  return run_simple(group, operation, input, output);
}

horo_status* horo_reducescatter(horo_group* group, const void* input, void* output, uint64_t count, horo_dtype dtype,
                                horo_reduce_op op) {
  const auto counts = equal_counts(group, count);
  horo_operation operation = make(HORO_REDUCESCATTER, dtype, 0);
  operation.op = op;
  operation.counts = counts.data();
  return run_simple(group, operation, input, output);
}

horo_status* horo_alltoall(horo_group* group, const void* input, void* output, uint64_t count, horo_dtype dtype) {
  const auto counts = equal_counts(group, count);
  horo_operation operation = make(HORO_ALLTOALL, dtype, 0);
  operation.counts = counts.data();
  operation.receive_counts = counts.data();
  return run_simple(group, operation, input, output);
}

horo_status* horo_barrier(horo_group* group) {
  return run_simple(group, make(HORO_BARRIER, HORO_BYTE, 0), nullptr, nullptr);
}
