#include "cli/run/discovery.h"

#include "horo/base/text.h"

namespace horo::cli::launch {

Discovery::Step Discovery::step(Time now) {
  if (!runs_) {
    if (now < next_) return Step::kNothing;
    runs_ = true;
    kill_at_ = Deadline(now + kLimit);
    return Step::kRun;
  }
  if (killed_ || !kill_at_.expired(now)) return Step::kNothing;
  killed_ = true;
  return Step::kKill;
}

void Discovery::failed_to_start(const std::string& why, Time now) {
  runs_ = false;
  next_ = now + kInterval;
  report(Trouble::kCannotRun, text("cannot be run: ", why), now);
}

std::optional<std::vector<Host>> Discovery::ended(const Run& run, Time now) {
  const bool killed = std::exchange(killed_, false);
  runs_ = false;
  next_ = now + kInterval;
  const std::string behind = run.complaint.empty() ? "" : text(" (it says: ", run.complaint, ")");
  if (killed) {
    const auto limit = std::chrono::duration_cast<std::chrono::seconds>(kLimit).count();
    report(Trouble::kHangs, text("took more than ", limit, " s and was ended", behind), now);
  } else if (run.signal != 0) {
    report(Trouble::kFails, text("was ended by signal ", run.signal, behind), now);
  } else if (run.code != 0) {
    report(Trouble::kFails, text("failed with code ", run.code, behind), now);
  } else {
    auto hosts = parse_discovered(run.printed, script_, slots_per_host_);
    if (hosts.ok()) return std::move(*hosts);
    report(Trouble::kGarbage, text("prints no list of hosts: ", hosts.status().message()), now);
  }
  return {};
}

void Discovery::report(Trouble trouble, const std::string& what, Time now) {
  const auto [place, is_new] = told_.try_emplace(trouble, now);
  if (!is_new && now - place->second < kSayAgain) return;
  place->second = now;
  words_.push_back(text("--host-discovery-script ", script_, " ", what, "; the hosts that are known stay"));
}

}  // namespace horo::cli::launch
