#include "horo/api/messages.h"

#include "horo/api/handles.h"
#include "horo/base/text.h"
#include "horo/group/courier.h"

namespace {

using horo::Code;
using horo::Deadline;
using horo::Status;
using horo::group::Callback;
using horo::group::Courier;

Status check(const char* function, const horo_engine* engine, const horo_group* group, const void* memory,
             size_t bytes) {
  if (engine == nullptr || group == nullptr) {
    return {Code::kInvalidArgument, horo::text(function, ": the engine or the group is null")};
  }
  if (memory == nullptr && bytes > 0) {
    return {Code::kInvalidArgument, horo::text(function, ": the memory of ", bytes, " bytes is null")};
  }
  if (engine->courier == nullptr) {
    return {Code::kInvalidArgument, horo::text(function, " needs horo_messages_open, by all ranks")};
  }
  if (group->engine != engine->engine.get()) {
    return {Code::kInvalidArgument, horo::text(function, ": the group belongs to another engine")};
  }
  return {};
}

Deadline deadline_of(double timeout) { return timeout > 0 ? Deadline::after_seconds(timeout) : Deadline::never(); }

}  // namespace

horo_status* horo_messages_open(horo_engine* engine) {
  return horo::api::guarded([&]() -> Status {
    if (engine == nullptr) return {Code::kInvalidArgument, "horo_messages_open: the engine is null"};
    if (engine->courier != nullptr) return {Code::kInvalidArgument, "horo_messages_open: they are open"};
    HORO_ASSIGN(engine->courier, Courier::open(*engine->engine));
    return {};
  });
}

horo_status* horo_message_send(horo_engine* engine, horo_group* group, int to, uint64_t tag, const void* memory,
                               size_t bytes, double timeout, horo_callback callback, void* context,
                               horo_request** request) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check("horo_message_send", engine, group, memory, bytes));
    HORO_ASSIGN(auto handle,
                engine->courier->send(*group->group, to, tag, {static_cast<const std::byte*>(memory), bytes},
                                      deadline_of(timeout), horo::api::call_of(callback, context)));
    if (request != nullptr) *request = new horo_request{std::move(handle)};
    return {};
  });
}

horo_status* horo_message_receive(horo_engine* engine, horo_group* group, int from, uint64_t tag, void* memory,
                                  size_t bytes, double timeout, horo_callback callback, void* context,
                                  horo_request** request) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check("horo_message_receive", engine, group, memory, bytes));
    const std::optional<int> member = from == -1 ? std::nullopt : std::optional(from);
    HORO_ASSIGN(auto handle,
                engine->courier->receive(*group->group, member, tag, {static_cast<std::byte*>(memory), bytes},
                                         deadline_of(timeout), horo::api::call_of(callback, context)));
    if (request != nullptr) *request = new horo_request{std::move(handle)};
    return {};
  });
}

int horo_request_source(const horo_request* request) {
  return horo::api::is_absent(request, "horo_request_source", "request") ? -1 : request->request->source();
}
