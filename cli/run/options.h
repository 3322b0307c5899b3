// What the user wants of `horo run`, complete and checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/run/flags.h"
#include "cli/run/hosts.h"
#include "cli/run/remote.h"
#include "cli/run/roster.h"

#include "horo/base/deadline.h"

namespace horo::cli::launch {

/// Ranks that mpirun starts instead of horo.
struct MpiOptions {
  bool wanted = false;
  std::string arguments;  ///< More words for mpirun.
  std::string binding;    ///< Instead of its usual ones.
};

/// A job that may lose ranks and gain others.
struct ElasticOptions {
  bool wanted = false;
  int least = 0;  ///< --min-np
  int most = 0;   ///< --max-np; 0: as many as there are slots.
  Duration timeout = std::chrono::seconds(600);
  std::optional<Cooldown> cooldown;  ///< Nothing: what failed is not used again.
  std::string script;                ///< That knows the hosts; empty: they are fixed.
  int slots_per_host = 1;
  std::vector<Host> offered;  ///< All hosts and slots at the start.
};

struct RunOptions {
  Placement placement;
  std::vector<std::string> command;
  Environment::Variables variables;  ///< For the ranks, from flags.
  std::vector<std::string> interfaces;
  std::string output_folder;  ///< Empty: none.
  std::string input_file;     ///< What every rank gets as its standard input; empty: nothing.
  std::string result_folder;  ///< For what ranks hand back; empty: they cannot.
  int parent = 0;             ///< The process with which this one ends; 0: none.
  int gpus_per_rank = 0;      ///< 0: all ranks see what there is.
  bool share_gpus = false;
  bool timestamps = false;
  bool verbose = false;
  SshOptions ssh;
  Duration start_timeout = std::chrono::seconds(30);
  Duration grace = std::chrono::seconds(5);
  uint16_t store_port = 0;
  MpiOptions mpi;
  ElasticOptions elastic;
  std::vector<std::string> notes;  ///< Lines for the user.
};

/// Reads the files and runs the discovery script that the flags name, until it offers enough slots. kInvalidArgument
/// says what is wrong.
Result<RunOptions> make_options(FlagValues flags, const Environment& environment);

/// Of the file that a flag names. kInvalidArgument when it cannot be read.
Result<std::string> contents_of(const std::string& path, std::string_view flag);

}  // namespace horo::cli::launch
