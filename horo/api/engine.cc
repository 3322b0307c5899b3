#include <algorithm>
#include <cstring>

#include "horo/api/handles.h"
#include "horo/base/text.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/knobs.h"

namespace {

using horo::Code;
using horo::Config;
using horo::Deadline;
using horo::Environment;
using horo::Result;
using horo::Status;
using horo::api::is_absent;

constexpr horo::KnobTable kTables[] = {horo::rendezvous::kKnobs, horo::group::kKnobs};

/// The environment with what the options say on top.
Result<Environment> environment_of(const horo_engine_options& options) {
  Environment::Variables changes;
  for (const char* const* setting = options.settings; setting != nullptr && *setting != nullptr; ++setting) {
    const std::string_view words(*setting);
    const size_t equals = words.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Status(Code::kInvalidArgument, horo::text("setting '", words, "' is not of the form NAME=value"));
    }
    changes[std::string(words.substr(0, equals))] = words.substr(equals + 1);
  }
  if (options.rank >= 0) changes["HORO_RANK"] = std::to_string(options.rank);
  if (options.size >= 0) changes["HORO_SIZE"] = std::to_string(options.size);
  if (options.store != nullptr) changes["HORO_STORE"] = options.store;
  if (options.job != nullptr) changes["HORO_JOB_ID"] = options.job;
  if (options.key_file != nullptr) changes["HORO_KEY_FILE"] = options.key_file;
  return Environment::of_process().with(changes);
}

Status start(const horo_engine_options& options, horo_engine& handle) {
  HORO_ASSIGN(Environment environment, environment_of(options));
  HORO_ASSIGN(Config config, Config::read(kTables, environment));
  HORO_ASSIGN(horo::rendezvous::JobPlace place, horo::rendezvous::find_place(config));
  HORO_ASSIGN(horo::net::Key found, horo::rendezvous::find_key(config));
  auto key = std::make_shared<const horo::net::Key>(std::move(found));
  horo::group::EngineOptions engine_options{.rank = place.rank,
                                            .size = place.size,
                                            .job = place.job,
                                            .key = key->is_none() ? nullptr : key,
                                            .config = config};
  if (options.log_sink != nullptr) {
    engine_options.log_sink = [sink = options.log_sink, context = options.log_context](horo::LogLevel level,
                                                                                       std::string_view line) {
      sink(context, static_cast<int>(level), std::string(line).c_str());
    };
  }
  horo::Log log;
  horo::rendezvous::StoreAccess access;
  if (place.size > 1) {
    const Deadline deadline = Deadline::after(config.get(horo::group::kTimeout));
    HORO_ASSIGN(access, horo::rendezvous::open_store(place, key, &log, deadline));
    engine_options.store = std::move(access.store);
  }
  HORO_ASSIGN(handle.engine, horo::group::Engine::start(std::move(engine_options)));
  return {};
}

}  // namespace

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
    handle->world = {handle->engine.get(), handle->engine->world_handle(), ""};
    *engine = handle.release();
    return {};
  });
}

void horo_engine_shutdown(horo_engine* engine) {
  if (!is_absent(engine, "horo_engine_shutdown", "engine")) engine->engine->shutdown();
}

void horo_engine_destroy(horo_engine* engine) { delete engine; }

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

const char* horo_knobs_help(void) {
  static const std::string kHelp = horo::knobs_help(kTables);
  return kHelp.c_str();
}

const char* horo_knobs_markdown(void) {
  static const std::string kMarkdown = horo::knobs_markdown(kTables);
  return kMarkdown.c_str();
}
