// The environment of ranks. Pure.
#pragma once

#include <string>
#include <string_view>

#include "cli/run/hosts.h"

#include "horo/base/config.h"

namespace horo::cli::launch {

/// What tells one rank its place, under the names of horo and under those that scripts for Horovod read.
Environment::Variables variables_of(const RankPlace& place, const Placement& placement);

/// Of a process that comes to a job that runs: it has a seat, and no place yet.
Environment::Variables variables_of_newcomer(int seat, const std::string& host);

/// What all ranks of a job get, beside the user's own variables.
struct JobVariables {
  std::string job;
  std::string store;  ///< host:port, as this host reaches it.
};
Environment::Variables variables_of(const JobVariables& job);

/// The launcher's variables as a host elsewhere gets them: without those that belong to this host, this login or this
/// shell.
Environment::Variables variables_to_forward(const Environment& environment);
bool is_forwarded(std::string_view name);

}  // namespace horo::cli::launch
