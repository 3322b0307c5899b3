// When the script that knows the hosts is run, and what is made of how it ends. Pure: the clock and the process are the
// caller's.
//
// It is run again and again while the job runs. A run that hangs, fails or prints what is no list of hosts changes
// nothing: the last good list stays, and the user is told, once per kind of trouble.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/hosts.h"

#include "horo/base/deadline.h"

namespace horo::cli::launch {

class Discovery {
 public:
  enum class Step : uint8_t { kNothing, kRun, kKill };
  /// How a run ended.
  struct Run {
    int code = 0;
    int signal = 0;
    std::string printed;
    std::string complaint;  ///< The last line of its standard error.
  };

  Discovery(std::string script, int slots_per_host, Time now)
      : script_(std::move(script)), slots_per_host_(slots_per_host), next_(now + kInterval) {}

  /// After kRun: call started() or failed_to_start(). After kKill: ended(), once it has.
  Step step(Time now);
  void started(Time now) { kill_at_ = Deadline(now + kLimit); }
  void failed_to_start(const std::string& why, Time now);
  /// The hosts, if the run was a good one.
  std::optional<std::vector<Host>> ended(const Run& run, Time now);

  Deadline deadline() const { return runs_ ? (killed_ ? Deadline::never() : kill_at_) : Deadline(next_); }
  const std::string& script() const { return script_; }
  /// Lines for the user.
  std::vector<std::string> take_words() { return std::exchange(words_, {}); }

  /// From the end of one run to the next.
  static constexpr Duration kInterval = std::chrono::seconds(1);
  /// A run that takes longer hangs, and is killed.
  static constexpr Duration kLimit = std::chrono::seconds(10);
  /// The same trouble is told again after so long.
  static constexpr Duration kSayAgain = std::chrono::minutes(10);

 private:
  enum class Trouble : uint8_t { kHangs, kFails, kGarbage, kCannotRun };
  void report(Trouble trouble, const std::string& what, Time now);

  std::string script_;
  int slots_per_host_;
  Time next_;
  bool runs_ = false;
  bool killed_ = false;
  Deadline kill_at_;
  std::map<Trouble, Time> told_;
  std::vector<std::string> words_;
};

}  // namespace horo::cli::launch
