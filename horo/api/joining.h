// How a process joins a job: what its options and its environment say, its key, and the store where the ranks meet.
#pragma once

#include <memory>
#include <optional>

#include "horo/api/horo.h"
#include "horo/base/log.h"
#include "horo/base/status.h"
#include "horo/group/engine.h"
#include "horo/net/key.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/key_loan.h"

namespace horo::api {

/// Must live until the engine has started.
struct Joining {
  /// Call it then.
  void joined() {
    if (loan) loan->keep();
  }

  std::unique_ptr<Log> log;
  rendezvous::StoreAccess access;
  std::shared_ptr<const net::Key> key;
  /// Of a key that was read for this; keep() it when the job is joined.
  std::optional<rendezvous::KeyLoan> loan;
  group::EngineOptions options;
};

/// `known`: the key if this process has read it before, else null. `generation`: how often this process has joined the
/// job before; the ranks meet under another name each time, since the store remembers who came.
Result<Joining> prepare(const horo_engine_options& options, std::shared_ptr<const net::Key> known, int generation);

/// The environment, with `settings` ("HORO_X=value", ended by NULL; may be null) on top.
Result<Config> read_config(const char* const* settings);

/// Of all modules.
std::span<const KnobTable> knob_tables();
/// The page of old variables, behind that of knobs.
std::string old_variables_markdown();

}  // namespace horo::api
