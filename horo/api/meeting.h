// Where the ranks of a job meet, and with which key: as options and HORO_* variables say, or else as the launcher's
// variables say (rendezvous/launcher.h), through a file of the host's or through MPI.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "horo/api/fabric_plugin.h"
#include "horo/api/horo.h"
#include "horo/base/config.h"
#include "horo/base/log.h"
#include "horo/net/key.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/handover.h"
#include "horo/rendezvous/key_loan.h"

namespace horo::api {

/// What a runtime leaves to the next one of this process in the same job.
struct Rejoining {
  std::shared_ptr<const net::Key> key;  ///< The descriptor that it came from is closed.
  /// How often this process has joined the job before, by the list of its ranks (list_suffix).
  std::map<std::string, int> times;
  /// Where the ranks met, if they found out at run time; the first rank serves there until it ends.
  std::optional<rendezvous::JobPlace> place;
  std::string generation;    ///< Of a job that has grown; else empty.
  int knocks = 0;            ///< How often this process has waited for a job to take it in.
  bool on_one_host = false;  ///< As far as is known.
  std::string store, job;    ///< Where others may come to the door, and its name there; empty: nowhere.
  std::shared_ptr<rendezvous::TcpStoreServer> server;
  std::shared_ptr<Log> log;  ///< Of the server.
};

struct Meeting {
  rendezvous::JobPlace place;
  std::shared_ptr<const net::Key> key;
  /// Of a key that was read for this; keep() it when the job is joined.
  std::optional<rendezvous::KeyLoan> loan;
  std::optional<rendezvous::Handover> letter;  ///< Goes when the job is joined.
  std::shared_ptr<rendezvous::TcpStoreServer> server;
  std::shared_ptr<PluginFabric> fabric;  ///< Through which they met; null: they did not.
  bool moves_data = false;               ///< Whether it is the data plane too.
  bool on_one_host = false;              ///< As far as is known: nothing needs to listen beyond loopback.
  bool lasts = false;                    ///< The next runtime of this process meets there again.
  std::string generation;                ///< Of a job that has grown; else empty.
  bool is_newcomer = false;              ///< And was taken in just now.
};

/// What a user asks for, as both see it.
struct Asked {
  const horo_engine_options& options;
  const Environment& environment;
  const Config& config;
};

/// Those of all processes that are the job; empty: all.
std::span<const int> ranks_of(const horo_engine_options& options);
/// What tells a job of some of the processes from jobs of the others: "/0,2".
std::string list_suffix(std::span<const int> ranks);

Result<Meeting> meet(const Asked& asked, const Rejoining& before, const std::shared_ptr<Log>& log);

}  // namespace horo::api
