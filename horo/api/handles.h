// What the opaque handles of horo.h are. Not installed.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "horo/api/horo.h"
#include "horo/api/meeting.h"
#include "horo/base/status.h"
#include "horo/engine/runtime.h"
#include "horo/group/engine.h"
#include "horo/group/fork.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::group {
class Courier;
}

struct horo_status {
  horo::Status value;
  std::string words;
};

struct horo_group {
  horo::group::Engine* engine = nullptr;
  std::shared_ptr<horo::group::Group> group;
  std::shared_ptr<horo::engine::Runtime> runtime;  ///< Whose engine it is; null where the user owns the engine.
};

namespace horo::api {

/// What engines, runtimes, stores and their handles belong to. A forked child is another process: the library's
/// threads do not exist there, its locks may be held there for ever, and its descriptors are closed, or others by now.
struct Process {
  static Process current();
  bool is_current() const { return forks == group::forks(); }

  int id = 0;
  uint32_t forks = 0;
};

}  // namespace horo::api

struct horo_engine {
  ~horo_engine();

  horo::api::Process process = horo::api::Process::current();
  std::shared_ptr<horo::api::PluginFabric> fabric;  ///< Through which the ranks met; null: they did not.
  horo::api::Rejoining rejoining;                   ///< Keeps the store open that other ranks may still use.
  std::unique_ptr<horo::rendezvous::Store> store;
  std::unique_ptr<horo::group::Engine> engine;
  std::unique_ptr<horo::group::Courier> courier;  ///< Null until messages are opened; goes before the engine.
  horo_group world;
};

struct horo_store {
  horo::api::Process process = horo::api::Process::current();
  std::unique_ptr<horo::rendezvous::TcpStoreServer> server;
  std::string address;
  std::string job;
  std::shared_ptr<const horo::net::Key> key;
};

struct horo_request {
  horo::group::RequestHandle request;
};

struct horo_runtime {
  std::shared_ptr<horo::engine::Runtime> runtime;
  horo::api::Rejoining rejoining;                   ///< For a successor.
  std::shared_ptr<horo::api::PluginFabric> fabric;  ///< Through which the ranks met; null: they did not.
  horo::api::Process process;
  std::atomic<int> holders = 1;  ///< Its owner, and who has acquired it since it was published.
};

struct horo_handle {
  std::shared_ptr<horo::engine::Runtime> runtime;
  horo::api::Process process;
  int set = 0;
  horo::engine::Handle submission;
};

struct horo_memory {
  horo::api::Process process;
  std::shared_ptr<std::byte> bytes;
};

namespace horo::api {

/// If `runtime` is the published one, none is from now on.
void take_back(const horo_runtime* runtime);

/// Null for success; the caller owns it.
horo_status* to_handle(Status status);

/// Memory that peers can read and that frees itself. `runtime` is kept alive by it; null where the user owns the
/// engine.
Result<std::shared_ptr<std::byte>> allocate_shared(group::Engine& engine, std::shared_ptr<engine::Runtime> runtime,
                                                   uint64_t bytes);

/// What a timeout in seconds means: negative ones never end.
inline Deadline deadline_of(double timeout) {
  return timeout < 0 ? Deadline::never() : Deadline::after_seconds(timeout);
}

/// Until it has come so far or the deadline has. In pieces: the runtime cannot be shut down by another thread while
/// this one is inside.
Status wait_in_pieces(const horo_handle& handle, Deadline deadline,
                      engine::Submission::Until until = engine::Submission::Until::kDone);

/// Remembers for horo_last_error() that `what` of a call that returns no status is null. True when it is.
bool is_absent(const void* what, const char* function, const char* name);

/// The user's callback as one of the library's; empty for null.
group::Callback call_of(horo_callback callback, void* context);

/// What `device` and `stream` of an operation say: the event is recorded now.
Result<device::Where> where_of(group::Engine& engine, int device, void* stream);

/// None for operations that named tensors do not have.
std::optional<engine::Kind> kind_of(horo_kind kind);

/// kForked where the caller is not the process that a runtime belongs to.
Status check_process(const Process& process, const char* function);

/// Runs `body` so that nothing escapes into C: memory that ran out becomes a status.
template <class Body>
horo_status* guarded(Body body) {
  try {
    return to_handle(body());
  } catch (const std::exception& error) {
    return to_handle(Status(Code::kUnavailable, error.what()));
  }
}

}  // namespace horo::api
