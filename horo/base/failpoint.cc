#include "horo/base/failpoint.h"

#ifdef HORO_FAILPOINTS

#include <signal.h>

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "horo/base/config.h"
#include "horo/base/deadline.h"
#include "horo/base/text.h"

namespace horo {

namespace {

struct Action {
  enum class Kind : uint8_t { kKill, kDelay, kError };
  Kind kind = Kind::kKill;
  Duration delay{};
  uint64_t passage = 1;
  uint64_t passed = 0;
};

struct Points {
  std::atomic<bool> idle{false};  ///< Nothing is armed: points cost next to nothing.
  std::mutex mutex;
  bool read = false;
  std::map<std::string, Action, std::less<>> armed;
  std::set<std::string, std::less<>> passed;
};

// Debug builds alone have this state: a point deep in the code has nobody to get it from.
Points& points() {
  static auto* all = new Points;  // Threads of the library may pass points while the process exits.
  return *all;
}

bool parse_number(std::string_view words, uint64_t& number) {
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
  return error == std::errc() && end == words.data() + words.size();
}

/// "kill@3", "delay:50ms", "error".
bool parse_action(std::string_view words, Action& action) {
  if (const size_t at = words.find('@'); at != std::string_view::npos) {
    if (!parse_number(words.substr(at + 1), action.passage) || action.passage == 0) return false;
    words = words.substr(0, at);
  }
  if (words == "kill") return true;
  action.kind = Action::Kind::kError;
  if (words == "error") return true;
  action.kind = Action::Kind::kDelay;
  constexpr std::string_view kDelay = "delay:", kUnit = "ms";
  uint64_t milliseconds = 0;
  if (!words.starts_with(kDelay) || !words.ends_with(kUnit)) return false;
  words = words.substr(kDelay.size(), words.size() - kDelay.size() - kUnit.size());
  if (!parse_number(words, milliseconds)) return false;
  action.delay = std::chrono::milliseconds(milliseconds);
  return true;
}

Status arm(Points& all, std::string_view words) {
  all.read = true;
  all.idle = false;
  all.armed.clear();
  while (!words.empty()) {
    const size_t end = words.find(';');
    const std::string_view one = words.substr(0, end);
    words = end == std::string_view::npos ? std::string_view() : words.substr(end + 1);
    if (one.empty()) continue;
    const size_t equals = one.find('=');
    Action action;
    if (equals == std::string_view::npos || !parse_action(one.substr(equals + 1), action)) {
      return {
          Code::kInvalidArgument,
          text("a failpoint is NAME=kill, NAME=error or NAME=delay:MILLISECONDSms, with @N for a later passage, not "
               "\"",
               one, "\"")};
    }
    all.armed[std::string(one.substr(0, equals))] = action;
  }
  all.idle = all.armed.empty();
  return {};
}

}  // namespace

Status arm_failpoints(std::string_view words) {
  Points& all = points();
  std::lock_guard lock(all.mutex);
  return arm(all, words);
}

std::vector<std::string> passed_failpoints() {
  Points& all = points();
  std::lock_guard lock(all.mutex);
  return {all.passed.begin(), all.passed.end()};
}

Status pass_failpoint(std::string_view name) {
  Points& all = points();
  if (all.idle.load(std::memory_order_relaxed)) return {};
  std::unique_lock lock(all.mutex);
  if (!all.read) HORO_TRY(arm(all, Environment::of_process().find("TEST_FAILPOINTS").value_or("")));
  if (!all.passed.contains(name)) all.passed.emplace(name);
  const auto found = all.armed.find(name);
  if (found == all.armed.end()) return {};
  Action& action = found->second;
  ++action.passed;
  if (action.kind == Action::Kind::kDelay) {
    if (action.passed < action.passage) return {};
    std::condition_variable never;
    std::mutex own;
    const Duration delay = action.delay;
    lock.unlock();
    std::unique_lock waiting(own);
    never.wait_until(waiting, Clock::now() + delay, [] { return false; });
    return {};
  }
  if (action.passed != action.passage) return {};
  if (action.kind == Action::Kind::kKill) (void)raise(SIGKILL);
  return {Code::kInternal, text("the failpoint ", name, " fails")};
}

}  // namespace horo

#endif
