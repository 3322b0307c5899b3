// How the agent of a host is started: here, or elsewhere through ssh.
#pragma once

#include <string>
#include <vector>

#include "horo/base/status.h"

namespace horo::cli::launch {

struct SshOptions {
  /// The program and options in front of ours: "ssh", "ssh -F my.config". Cut at blanks; no shell reads it.
  std::string command = "ssh";
  int port = 0;               ///< 0: as ssh is configured.
  std::string identity_file;  ///< Empty: as ssh is configured.
  int connect_timeout_seconds = 30;
};

/// What to run to have `horo agent` on `host`. Host keys are checked as ssh is configured; nothing is asked for.
/// Nothing secret is on it.
std::vector<std::string> ssh_words(const SshOptions& options, const std::string& host, const std::string& own_path);

/// For a POSIX shell: one word, whatever is in it.
std::string quoted(const std::string& word);

/// What ssh's last words mean: "cannot reach it: ...", with what to do about it.
std::string explain_ssh(int code, const std::string& host, const std::string& said);

}  // namespace horo::cli::launch
