#include "cli/run/mpi_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <sstream>

#include "cli/run/capture.h"
#include "cli/run/variables.h"

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

constexpr Duration kVersionLimit = std::chrono::seconds(20);
constexpr const char* kProgram = "mpirun";

void add_words(std::vector<std::string>& words, const std::string& more) {
  std::istringstream pieces(more);
  for (std::string piece; pieces >> piece;) words.push_back(piece);
}

std::string hosts_list(const Placement& placement) {
  std::string list;
  for (const Host& host : placement.hosts) list += text(list.empty() ? "" : ",", host.name, ":", host.slots);
  return list;
}

bool crowded(const Placement& placement, int cores) {
  return std::ranges::any_of(placement.hosts, [&](const Host& host) { return host.slots > cores; });
}

void add_open_mpi(std::vector<std::string>& words, const RunOptions& options, const MpiHost& host,
                  const std::vector<std::string>& forwarded) {
  if (host.is_root) words.emplace_back("--allow-run-as-root");
  words.emplace_back("--tag-output");
  add_words(words, text("-np ", options.placement.ranks.size(), " -H ", hosts_list(options.placement)));
  // Whoever waits there gives its core away, where there are too few.
  if (crowded(options.placement, host.cores)) words.emplace_back("--oversubscribe");
  add_words(words, options.mpi.binding.empty() ? "-bind-to none -map-by slot" : options.mpi.binding);
  add_words(words, "-mca pml ob1 -mca btl ^openib");
  if (!options.interfaces.empty()) {
    std::string list;
    for (const std::string& name : options.interfaces) list += text(list.empty() ? "" : ",", name);
    add_words(words, text("-mca btl_tcp_if_include ", list));
  }
  for (const std::string& name : forwarded) add_words(words, text("-x ", name));
}

void add_mpich(std::vector<std::string>& words, const RunOptions& options) {
  add_words(words, text("-n ", options.placement.ranks.size(), " -hosts ", hosts_list(options.placement)));
  add_words(words, options.mpi.binding.empty() ? "-bind-to none" : options.mpi.binding);
  words.emplace_back("-prepend-rank");
  words.emplace_back("-genvall");
  if (!options.interfaces.empty()) add_words(words, text("-iface ", options.interfaces.front()));
}

/// Of the environment and what flags set: arguments of execve().
std::vector<std::string> environment_words(const Environment& environment) {
  std::vector<std::string> words;
  for (const auto& [name, value] : environment.variables()) words.push_back(text(name, "=", value));
  return words;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

Result<MpiFamily> mpi_family(std::string_view version) {
  if (version.find("Open MPI") != version.npos || version.find("OpenRTE") != version.npos) return MpiFamily::kOpenMpi;
  for (std::string_view words : {"HYDRA", "MPICH", "Intel(R) MPI", "MVAPICH"}) {
    if (version.find(words) != version.npos) return MpiFamily::kMpich;
  }
  return Status(Code::kNotFound, text(kProgram, " is neither Open MPI's nor of MPICH's family: ", version));
}

std::vector<std::string> mpi_command(MpiFamily family, const RunOptions& options, const MpiHost& host,
                                     const std::vector<std::string>& forwarded) {
  std::vector<std::string> words{kProgram};
  if (family == MpiFamily::kOpenMpi) {
    add_open_mpi(words, options, host, forwarded);
  } else {
    add_mpich(words, options);
  }
  add_words(words, options.mpi.arguments);
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

Status run_through_mpi(const RunOptions& options, const Environment& environment) {
  auto version = capture({kProgram, "--version"}, Deadline::after(kVersionLimit));
  if (!version.ok()) {
    return version.status().prefixed(text(
        "--mpi needs ", kProgram, " of Open MPI or MPICH in the PATH; without --mpi horo starts the ranks itself"));
  }
  HORO_ASSIGN(const MpiFamily family, mpi_family(*version));
  const Environment all = environment.with(options.variables).with({{"PYTHONUNBUFFERED", "1"}});
  std::vector<std::string> forwarded;
  for (const auto& [name, value] : variables_to_forward(all)) forwarded.push_back(name);
  const MpiHost host{geteuid() == 0, System().usable_cores()};
  std::vector<std::string> words = mpi_command(family, options, host, forwarded);
  if (options.verbose) {
    for (const std::string& word : words) std::cerr << word << ' ';
    std::cerr << '\n';
  }
  std::vector<std::string> variables = environment_words(all);
  const std::vector<char*> arguments = pointers(words), settings = pointers(variables);
  execvpe(kProgram, arguments.data(), settings.data());
  return Status(Code::kUnavailable, text("starting ", kProgram, ": ", std::strerror(errno)));
}

}  // namespace horo::cli::launch
