#include <algorithm>
#include <cstring>

#include "horo/api/handles.h"
#include "horo/api/joining.h"
#include "horo/group/courier.h"

namespace {

using horo::Code;
using horo::Status;
using horo::api::is_absent;

Status start(const horo_engine_options& options, horo_engine& handle) {
  HORO_ASSIGN(horo::api::Joining joining, horo::api::prepare(options, {}));
  HORO_ASSIGN(handle.engine, horo::group::Engine::start(std::move(joining.options)));
  handle.rejoining = joining.joined();
  handle.fabric = joining.meeting.fabric;
  if (handle.fabric != nullptr) {
    handle.fabric->at_end([](void* engine) { horo_engine_shutdown(static_cast<horo_engine*>(engine)); }, &handle);
  }
  return {};
}

}  // namespace

horo_engine::~horo_engine() = default;

horo_status* horo_engine_start(const horo_engine_options* options, horo_engine** engine) {
  return horo::api::guarded([&]() -> Status {
    if (engine == nullptr || options == nullptr || options->struct_size < sizeof(size_t)) {
      return {Code::kInvalidArgument,
              "horo_engine_start needs options made with HORO_ENGINE_OPTIONS_INIT and a place "
              "for the engine"};
    }
    horo_engine_options all = HORO_ENGINE_OPTIONS_INIT;
    std::memcpy(&all, options, std::min(options->struct_size, sizeof all));
    auto handle = std::make_unique<horo_engine>();
    HORO_TRY(start(all, *handle));
    handle->world = {handle->engine.get(), handle->engine->world_handle(), nullptr};
    *engine = handle.release();
    return {};
  });
}

void horo_engine_shutdown(horo_engine* engine) {
  if (is_absent(engine, "horo_engine_shutdown", "engine") || !engine->process.is_current()) return;
  if (engine->courier != nullptr) engine->courier->stop(Status(Code::kStopped, "the engine was shut down"));
  engine->engine->shutdown();
}

void horo_engine_destroy(horo_engine* engine) {
  // In a forked child there are no threads to end, and what was mapped and open here belongs to nobody or to the child.
  if (engine != nullptr && !engine->process.is_current()) return;
  if (engine != nullptr && engine->fabric != nullptr) engine->fabric->forget(engine);
  delete engine;
}

int horo_engine_rank(const horo_engine* engine) {
  return is_absent(engine, "horo_engine_rank", "engine") ? -1 : engine->engine->rank();
}

int horo_engine_size(const horo_engine* engine) {
  return is_absent(engine, "horo_engine_size", "engine") ? -1 : engine->engine->size();
}

int horo_engine_local_rank(const horo_engine* engine) {
  if (is_absent(engine, "horo_engine_local_rank", "engine")) return -1;
  const auto& ranks = engine->engine->local_ranks();
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), engine->engine->rank()) - ranks.begin());
}

int horo_engine_local_size(const horo_engine* engine) {
  if (is_absent(engine, "horo_engine_local_size", "engine")) return -1;
  return static_cast<int>(engine->engine->local_ranks().size());
}

uint64_t horo_engine_epoch(const horo_engine* engine) {
  return is_absent(engine, "horo_engine_epoch", "engine") ? UINT64_MAX : engine->engine->epoch();
}

size_t horo_engine_members(const horo_engine* engine, int* ranks, size_t capacity) {
  if (is_absent(engine, "horo_engine_members", "engine")) return 0;
  const std::vector<int> members = engine->engine->members();
  if (ranks != nullptr) std::copy_n(members.begin(), std::min(capacity, members.size()), ranks);
  return members.size();
}

horo_status* horo_buffer_allocate(horo_engine* engine, size_t bytes, void** memory) {
  return horo::api::guarded([&]() -> Status {
    if (engine == nullptr || memory == nullptr) return {Code::kInvalidArgument, "horo_buffer_allocate: null argument"};
    HORO_ASSIGN(auto buffer, engine->engine->allocate(bytes));
    *memory = buffer.data();
    return {};
  });
}

void horo_buffer_free(horo_engine* engine, void* memory) {
  if (memory == nullptr || is_absent(engine, "horo_buffer_free", "engine")) return;
  engine->engine->free(static_cast<std::byte*>(memory));
}

// Part of the interface from the start, so that programs already say what a registering fabric will need.
horo_status* horo_memory_register(horo_engine* engine, void* memory, size_t) {
  return horo::api::guarded([&]() -> Status {
    if (engine == nullptr || memory == nullptr) return {Code::kInvalidArgument, "horo_memory_register: null argument"};
    return {};
  });
}

horo_status* horo_memory_unregister(horo_engine* engine, void* memory) {
  return horo::api::guarded([&]() -> Status {
    if (engine == nullptr || memory == nullptr)
      return {Code::kInvalidArgument, "horo_memory_unregister: null argument"};
    return {};
  });
}
