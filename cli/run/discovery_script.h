// One run of the script that knows the hosts, beside the loop of the launcher.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/run/discovery.h"
#include "cli/run/spawn.h"

namespace horo::cli::launch {

/// In a session of its own.
class DiscoveryScript {
 public:
  static Result<DiscoveryScript> start(const std::string& script);
  DiscoveryScript(DiscoveryScript&&) = default;
  DiscoveryScript& operator=(DiscoveryScript&&) = delete;

  pid_t pid() const { return child_.pid; }
  /// To be watched for reading, until read() returns false.
  int output_fd() const { return output_.get(); }
  int error_fd() const { return error_.get(); }
  /// Takes what has come. False at the end.
  bool read_output() { return read(output_, printed_); }
  bool read_error() { return read(error_, complained_); }

  /// Also what it has left behind in its session. Before it is reaped.
  void kill_all() const;
  /// After its end (wait status).
  Discovery::Run result(int status);

 private:
  DiscoveryScript() = default;
  static bool read(const net::UniqueFd& from, std::string& into);

  Child child_;
  net::UniqueFd output_;
  net::UniqueFd error_;
  std::string printed_;
  std::string complained_;
};

}  // namespace horo::cli::launch
