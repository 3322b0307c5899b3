// The launcher's side of one host: the process that leads there (an agent, or ssh to one), and what it says.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "cli/run/duct.h"
#include "cli/run/lines.h"
#include "cli/run/remote.h"
#include "cli/run/spawn.h"

#include "horo/base/deadline.h"

namespace horo::cli::launch {

class HostLink {
 public:
  /// Starts the agent, directly when the host is this one, else through ssh.
  /// `elastic`: the agent here can tell the user when it goes on without us.
  static Result<HostLink> start(const std::string& host, bool is_here, const SshOptions& ssh, bool elastic);

  const std::string& name() const { return name_; }
  bool is_here() const { return is_here_; }
  Duct& duct() { return *duct_; }
  int complaints_fd() const { return complaints_.get(); }
  pid_t pid() const { return child_.pid; }
  /// What was run, for --verbose.
  const std::vector<std::string>& words() const { return words_; }

  /// Lines that ssh or the agent wrote to standard error. False at their end.
  bool read_complaints(std::vector<std::string>& lines);
  /// The process has ended (wait status).
  void note_exit(int status) { exit_status_ = status; }
  bool has_exited() const { return exit_status_.has_value(); }
  /// Why there is no agent (any more). Complete once the process has ended.
  std::string why_lost() const;

  std::optional<AgentHello> hello;
  std::deque<std::vector<std::byte>> start_orders;  ///< Until they are sent.
  size_t fed = 0;                                   ///< Of the ranks' input.
  bool said_ended = false;
  /// Reading has ended; the reason is awaited until then.
  std::optional<Deadline> closed;
  bool reading = false;
  bool writing = false;
  bool complaining = false;

 private:
  std::string name_;
  bool is_here_ = false;
  std::vector<std::string> words_;
  Child child_;
  std::optional<Duct> duct_;
  net::UniqueFd complaints_;
  LineCutter cutter_;
  std::string last_complaints_;
  std::optional<int> exit_status_;
};

/// kIncompatible, with both versions, when the agent cannot work with this launcher.
Status check_versions(const AgentHello& hello);

}  // namespace horo::cli::launch
