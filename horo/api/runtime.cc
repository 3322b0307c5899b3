#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "horo/api/handles.h"
#include "horo/api/joining.h"
#include "horo/base/text.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/door.h"

namespace {

using horo::Code;
using horo::Deadline;
using horo::Result;
using horo::Status;
using horo::api::check_process;
using horo::api::is_absent;

Status check(const horo_runtime* runtime, const char* function) {
  if (runtime == nullptr) return {Code::kInvalidArgument, horo::text(function, ": the runtime is null")};
  return check_process(runtime->process, function);
}

Status check(const horo_handle* handle, const char* function) {
  if (handle == nullptr) return {Code::kInvalidArgument, horo::text(function, ": the handle is null")};
  return check_process(handle->process, function);
}

Result<horo_runtime_options> complete(const horo_runtime_options* options) {
  horo_runtime_options all = HORO_RUNTIME_OPTIONS_INIT;
  if (options == nullptr) return all;
  if (options->struct_size < sizeof(size_t)) {
    return Status(Code::kInvalidArgument, "horo_runtime_start needs options made with HORO_RUNTIME_OPTIONS_INIT");
  }
  std::memcpy(&all, options, std::min(options->struct_size, sizeof all));
  if (all.set_count > 0 && (all.set_ranks == nullptr || all.set_sizes == nullptr)) {
    return Status(Code::kInvalidArgument, "horo_runtime_start: set_ranks or set_sizes is null");
  }
  return all;
}

Result<horo_engine_options> complete(const horo_engine_options* options) {
  horo_engine_options all = HORO_ENGINE_OPTIONS_INIT;
  if (options == nullptr) return all;
  if (options->struct_size < sizeof(size_t)) {
    return Status(Code::kInvalidArgument, "horo_runtime_start needs options made with HORO_ENGINE_OPTIONS_INIT");
  }
  std::memcpy(&all, options, std::min(options->struct_size, sizeof all));
  return all;
}

using horo::api::Joining;

constexpr horo::Duration kToTellOthers = std::chrono::seconds(2);

/// A generation of a job that grows. If it does not come about, those who wait for it are told.
Result<std::unique_ptr<horo::engine::Runtime>> start_generation(const Joining& joining, const horo_runtime* before,
                                                                horo::engine::RuntimeOptions options) {
  const std::shared_ptr<horo::rendezvous::Store> store = options.engine.store;
  horo::rendezvous::Door door(*store, joining.meeting.place.job);
  const std::string& name = joining.meeting.generation;
  const auto old = before == nullptr ? nullptr : before->runtime;
  options.replaces = true;
  options.engine.give_up = [door, name, old, epoch = old ? old->epoch() : 0]() mutable -> Status {
    if (old && old->epoch() != epoch) return {Code::kPeerLost, "the job lost a rank meanwhile"};
    return door.check(name, Deadline::after(kToTellOthers));
  };
  auto runtime = horo::engine::Runtime::start(std::move(options));
  if (runtime.ok()) {
    (*runtime)->observe(old.get(), name);
  } else {
    door.give_up(name, runtime.status().message(), Deadline::after(kToTellOthers));
  }
  return runtime;
}

Status start_once(const horo_runtime_options& options, const horo::api::Rejoining& rejoining, horo_runtime& handle) {
  HORO_ASSIGN(horo_engine_options engine, complete(options.engine));
  handle.process = horo::api::Process::current();
  HORO_ASSIGN(Joining joining, horo::api::prepare(engine, rejoining));
  handle.rejoining.knocks = rejoining.knocks + (joining.meeting.is_newcomer ? 1 : 0);
  horo::engine::RuntimeOptions all{.engine = std::move(joining.options), .process_sets = {}};
  for (size_t i = 0; i < options.set_count; ++i) {
    all.process_sets.emplace_back(options.set_ranks[i], options.set_ranks[i] + options.set_sizes[i]);
  }
  const bool replaces = joining.meeting.is_newcomer || engine.generation != nullptr;
  auto runtime = replaces ? start_generation(joining, options.predecessor, std::move(all))
                          : horo::engine::Runtime::start(std::move(all));
  if (!runtime.ok()) return runtime.status();
  handle.runtime = std::move(*runtime);
  handle.rejoining = joining.joined();
  handle.fabric = joining.meeting.fabric;
  // Nothing of horo's may use MPI when the program ends it.
  if (handle.fabric != nullptr) {
    handle.fabric->at_end([](void* ending) { horo_runtime_shutdown(static_cast<horo_runtime*>(ending)); }, &handle);
  }
  return {};
}

/// Whom the job could not take in, since somebody else was lost meanwhile, say, comes to the door again.
Status start(const horo_runtime_options& options, horo_runtime& handle) {
  horo::api::Rejoining rejoining;
  if (options.predecessor != nullptr) rejoining = options.predecessor->rejoining;
  while (true) {
    Status started = start_once(options, rejoining, handle);
    const bool knocked = handle.rejoining.knocks > rejoining.knocks;
    const bool passes =
        started.code() == Code::kPeerLost || started.code() == Code::kTimeout || started.code() == Code::kStopped;
    if (started.ok() || !knocked || !passes) return started;
    rejoining.knocks = handle.rejoining.knocks;
  }
}

Status decline(const horo_runtime_options& options) {
  HORO_ASSIGN(horo_engine_options engine, complete(options.engine));
  if (engine.store == nullptr) return {Code::kInvalidArgument, "horo_runtime_decline needs options that name a store"};
  const horo_runtime* before = options.predecessor;
  HORO_ASSIGN(Joining joining,
              horo::api::prepare(engine, before == nullptr ? horo::api::Rejoining() : before->rejoining));
  if (joining.options.size < 2) return {};
  const auto deadline = horo::Deadline::after(joining.options.config.get(horo::group::kTimeout));
  return horo::rendezvous::decline(*joining.options.store, joining.options.job, joining.options.rank,
                                   joining.options.size, deadline);
}

/// One of this rank's numbers.
template <class Get>
int number(const horo_runtime* runtime, const char* function, Get get) {
  return is_absent(runtime, function, "runtime") ? -1 : static_cast<int>(get(*runtime->runtime));
}

}  // namespace

Status horo::api::wait_in_pieces(const horo_handle& handle, Deadline deadline, engine::Submission::Until until) {
  if (handle.submission->done()) return handle.submission->status();
  constexpr double kPiece = 0.1;
  while (true) {
    Status status =
        handle.runtime->wait(handle.set, handle.submission, deadline.earlier(Deadline::after_seconds(kPiece)), until);
    if (status.code() != Code::kTimeout || handle.submission->done() || deadline.expired()) return status;
  }
}

horo::api::Process horo::api::Process::current() { return {getpid(), group::forks()}; }

Status horo::api::check_process(const Process& process, const char* function) {
  if (process.is_current()) return {};
  return {Code::kForked, horo::text(function, ": process ", getpid(), " was forked off rank's process ", process.id,
                                    ", which alone can use its runtime")};
}

horo_status* horo_runtime_start(const horo_runtime_options* options, horo_runtime** runtime) {
  return horo::api::guarded([&]() -> Status {
    if (runtime == nullptr) return {Code::kInvalidArgument, "horo_runtime_start: no place for the runtime"};
    HORO_ASSIGN(horo_runtime_options all, complete(options));
    auto handle = std::make_unique<horo_runtime>();
    HORO_TRY(start(all, *handle));
    *runtime = handle.release();
    return {};
  });
}

horo_status* horo_runtime_decline(const horo_runtime_options* options) {
  return horo::api::guarded([&]() -> Status {
    HORO_ASSIGN(horo_runtime_options all, complete(options));
    return decline(all);
  });
}

void horo_runtime_shutdown(horo_runtime* runtime) {
  if (is_absent(runtime, "horo_runtime_shutdown", "runtime") || !runtime->process.is_current()) return;
  horo::api::take_back(runtime);
  runtime->runtime->shutdown();
}

void horo_runtime_destroy(horo_runtime* runtime) {
  // In a forked child there are no threads to end, and nothing there may be touched.
  if (runtime == nullptr || !runtime->process.is_current()) return;
  horo::api::take_back(runtime);
  if (runtime->fabric != nullptr) runtime->fabric->forget(runtime);
  runtime->runtime->shutdown();
  horo_runtime_release(runtime);
}

int horo_runtime_rank(const horo_runtime* runtime) {
  return number(runtime, "horo_runtime_rank", [](auto& of) { return of.rank(); });
}

int horo_runtime_size(const horo_runtime* runtime) {
  return number(runtime, "horo_runtime_size", [](auto& of) { return of.size(); });
}

int horo_runtime_local_rank(const horo_runtime* runtime) {
  return number(runtime, "horo_runtime_local_rank", [](auto& of) { return of.position().local_rank; });
}

int horo_runtime_local_size(const horo_runtime* runtime) {
  return number(runtime, "horo_runtime_local_size", [](auto& of) { return of.position().local_size; });
}

int horo_runtime_cross_rank(const horo_runtime* runtime) {
  return number(runtime, "horo_runtime_cross_rank", [](auto& of) { return of.position().cross_rank; });
}

int horo_runtime_cross_size(const horo_runtime* runtime) {
  return number(runtime, "horo_runtime_cross_size", [](auto& of) { return of.position().cross_size; });
}

int horo_runtime_is_homogeneous(const horo_runtime* runtime) {
  return number(runtime, "horo_runtime_is_homogeneous", [](auto& of) { return of.position().homogeneous; });
}

uint64_t horo_runtime_epoch(const horo_runtime* runtime) {
  return is_absent(runtime, "horo_runtime_epoch", "runtime") ? 0 : runtime->runtime->epoch();
}

horo_status* horo_runtime_reform(horo_runtime* runtime, double timeout) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_reform"));
    return runtime->runtime->reform(timeout < 0 ? Deadline::never() : Deadline::after_seconds(timeout));
  });
}

horo_status* horo_runtime_join(horo_runtime* runtime, int set, horo_handle** handle) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_join"));
    if (handle == nullptr) return {Code::kInvalidArgument, "horo_runtime_join: no place for the handle"};
    HORO_ASSIGN(horo::engine::Handle joining, runtime->runtime->join(set));
    *handle = new horo_handle{runtime->runtime, runtime->process, set, std::move(joining)};
    return {};
  });
}

int horo_handle_done(const horo_handle* handle) {
  if (is_absent(handle, "horo_handle_done", "handle") || !handle->process.is_current()) return -1;
  return handle->submission->done() ? 1 : 0;
}

horo_status* horo_handle_wait(horo_handle* handle, double timeout) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(handle, "horo_handle_wait"));
    return horo::api::wait_in_pieces(*handle, horo::api::deadline_of(timeout));
  });
}

int64_t horo_handle_answer(const horo_handle* handle) {
  return is_absent(handle, "horo_handle_answer", "handle") ? -1 : handle->submission->answer();
}

horo_status* horo_handle_result(const horo_handle* handle, size_t index, horo_result* result) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(handle, "horo_handle_result"));
    if (result == nullptr || result->struct_size < sizeof(size_t)) {
      return {Code::kInvalidArgument, "horo_handle_result needs a result made with HORO_RESULT_INIT"};
    }
    const horo::engine::Submission& submission = *handle->submission;
    if (index >= submission.size()) {
      return {Code::kInvalidArgument, horo::text("horo_handle_result: tensor ", index, " of ", submission.size())};
    }
    if (!submission.has_come(horo::engine::Submission::Until::kPromised)) {
      return {Code::kInvalidArgument, "horo_handle_result: the operation is still under way"};
    }
    if (submission.done()) HORO_TRY(submission.status());
    const horo::engine::TensorResult& from = submission.result(index);
    const horo_result all{result->struct_size,         from.memory,
                          from.shape.data(),           from.shape.size(),
                          from.received_splits.data(), from.received_splits.size()};
    std::memcpy(result, &all, std::min(result->struct_size, sizeof all));
    return {};
  });
}

void horo_handle_destroy(horo_handle* handle) {
  if (handle != nullptr && handle->process.is_current()) delete handle;
}

Result<std::shared_ptr<std::byte>> horo::api::allocate_shared(group::Engine& engine,
                                                              std::shared_ptr<engine::Runtime> runtime,
                                                              uint64_t bytes) {
  HORO_ASSIGN(std::span<std::byte> made, engine.allocate(bytes));
  return std::shared_ptr<std::byte>(
      made.data(), [&engine, runtime = std::move(runtime)](std::byte* memory) { engine.free(memory); });
}

horo_status* horo_runtime_allocate(horo_runtime* runtime, size_t bytes, horo_memory** memory) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_allocate"));
    if (memory == nullptr) return {Code::kInvalidArgument, "horo_runtime_allocate: no place for the memory"};
    if (bytes == 0) return {Code::kInvalidArgument, "horo_runtime_allocate: no bytes"};
    HORO_ASSIGN(auto made, horo::api::allocate_shared(runtime->runtime->engine(), runtime->runtime, bytes));
    *memory = new horo_memory{runtime->process, std::move(made)};
    return {};
  });
}

void* horo_memory_address(const horo_memory* memory) {
  return is_absent(memory, "horo_memory_address", "memory") ? nullptr : memory->bytes.get();
}

void horo_memory_destroy(horo_memory* memory) {
  if (memory == nullptr || !memory->process.is_current()) return;
  delete memory;
}

horo_status* horo_runtime_add_set(horo_runtime* runtime, const int* ranks, size_t count, int* set) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_add_set"));
    if (set == nullptr) return {Code::kInvalidArgument, "horo_runtime_add_set: no place for the set's number"};
    if (ranks == nullptr && count > 0) return {Code::kInvalidArgument, "horo_runtime_add_set: the ranks are null"};
    HORO_ASSIGN(*set, runtime->runtime->add_set(std::vector<int>(ranks, ranks + count)));
    return {};
  });
}

horo_status* horo_runtime_remove_set(horo_runtime* runtime, int set) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_remove_set"));
    return runtime->runtime->remove_set(set);
  });
}

size_t horo_runtime_set_numbers(const horo_runtime* runtime, int* numbers, size_t capacity) {
  if (is_absent(runtime, "horo_runtime_set_numbers", "runtime") || !runtime->process.is_current()) return 0;
  const std::vector<int> all = runtime->runtime->set_numbers();
  if (numbers != nullptr) std::copy_n(all.begin(), std::min(capacity, all.size()), numbers);
  return all.size();
}

horo_status* horo_runtime_set_ranks(const horo_runtime* runtime, int set, int* ranks, size_t capacity, size_t* count) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_set_ranks"));
    if (count == nullptr) return {Code::kInvalidArgument, "horo_runtime_set_ranks: no place for the count"};
    HORO_ASSIGN(std::vector<int> all, runtime->runtime->set_ranks(set));
    if (ranks != nullptr) std::copy_n(all.begin(), std::min(capacity, all.size()), ranks);
    *count = all.size();
    return {};
  });
}

horo_status* horo_runtime_group(horo_runtime* runtime, const int* ranks, size_t count, horo_group** group) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(runtime, "horo_runtime_group"));
    if (ranks == nullptr || group == nullptr) {
      return {Code::kInvalidArgument, "horo_runtime_group: the ranks or the place for the group are null"};
    }
    horo::group::Engine& engine = runtime->runtime->engine();
    HORO_ASSIGN(auto made, runtime->runtime->create_group(std::vector<int>(ranks, ranks + count)));
    *group = new horo_group{&engine, std::move(made), runtime->runtime};
    return {};
  });
}
