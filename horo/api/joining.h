// How a process joins a job: what its options and its environment say, its key, and the store where the ranks meet.
#pragma once

#include <memory>
#include <optional>

#include "horo/api/horo.h"
#include "horo/api/meeting.h"
#include "horo/base/log.h"
#include "horo/base/status.h"
#include "horo/group/engine.h"
#include "horo/rendezvous/bootstrap.h"

namespace horo::api {

/// Must live until the engine has started.
struct Joining {
  /// Call it then. What the next runtime of this process needs to join the same job once more.
  Rejoining joined();

  std::shared_ptr<Log> log;
  rendezvous::StoreAccess access;
  Meeting meeting;
  group::EngineOptions options;
  Rejoining before;
  std::string list;    ///< What is behind the job's name: a list of its ranks (list_suffix), or its generation.
  int generation = 0;  ///< How often this process has joined the job before.
};

/// `before`: what this process's last time in the job has left. The ranks meet under another name each time, since the
/// store remembers who came.
Result<Joining> prepare(const horo_engine_options& options, const Rejoining& before);

/// The environment, with `settings` ("HORO_X=value", ended by NULL; may be null) on top.
Result<Config> read_config(const char* const* settings);

/// Of all modules.
std::span<const KnobTable> knob_tables();
/// The page of old variables, behind that of knobs.
std::string old_variables_markdown();

}  // namespace horo::api
