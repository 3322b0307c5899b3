#include "cli/run/growth.h"

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

using net::Interest;

constexpr uint64_t kOutputToken = Growth::kFirstToken;
constexpr uint64_t kErrorToken = Growth::kFirstToken + 1;
constexpr uint64_t kDoorToken = Growth::kFirstToken + 2;

RosterOptions roster_options(const RunOptions& options) {
  RosterOptions roster;
  roster.most_ranks = options.elastic.most;
  roster.cooldown = options.elastic.cooldown;
  roster.discovers = !options.elastic.script.empty();
  roster.start_timeout = options.start_timeout;
  roster.leave_limit = options.elastic.timeout;
  roster.seed = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  return roster;
}

}  // namespace

Growth::Growth(const RunOptions& options, net::Poller& poller, Time now)
    : poller_(poller), roster_(roster_options(options), options.elastic.offered, options.placement) {
  if (!options.elastic.script.empty()) discovery_.emplace(options.elastic.script, options.elastic.slots_per_host, now);
}

Growth::~Growth() {
  watch(false);
  if (script_) script_->kill_all();
}

Status Growth::begin(const net::Address& store, const rendezvous::TcpStoreOptions& options) {
  HORO_ASSIGN(door_, DoorWatch::start(store, options));
  return poller_.add(door_->fd(), Interest::kRead, kDoorToken);
}

void Growth::take_event(uint64_t token) {
  if (!script_) return;
  if (token == kOutputToken && output_watched_ && !script_->read_output()) {
    static_cast<void>(poller_.remove(script_->output_fd()));
    output_watched_ = false;
  }
  if (token == kErrorToken && error_watched_ && !script_->read_error()) {
    static_cast<void>(poller_.remove(script_->error_fd()));
    error_watched_ = false;
  }
}

void Growth::watch(bool watched) {
  if (!script_) return;
  const auto change = [&](bool& state, int fd, uint64_t token) {
    if (state == watched) return;
    state = watched;
    static_cast<void>(watched ? poller_.add(fd, Interest::kRead, token) : poller_.remove(fd));
  };
  change(output_watched_, script_->output_fd(), kOutputToken);
  change(error_watched_, script_->error_fd(), kErrorToken);
}

void Growth::run_script(Time now) {
  auto started = DiscoveryScript::start(discovery_->script());
  if (!started.ok()) return discovery_->failed_to_start(started.status().message(), now);
  script_.emplace(std::move(*started));
  discovery_->started(now);
  watch(true);
}

void Growth::before_reaping(pid_t pid) const {
  if (script_ && script_->pid() == pid) script_->kill_all();
}

bool Growth::note_exit(pid_t pid, int status) {
  if (!script_ || script_->pid() != pid) return false;
  watch(false);
  const Time now = Clock::now();
  if (const auto hosts = discovery_->ended(script_->result(status), now)) roster_.offered(*hosts, now);
  script_.reset();
  return true;
}

void Growth::ask_to_leave(int seat, const std::string& why) {
  if (!door_) return;
  newcomers_.contains(seat) ? door_->turn_away(seat, why) : door_->ask_to_leave(seat, why);
}

void Growth::rank_ended(const RankEnd& end, Time now) {
  roster_.rank_ended(end, now);
  if (newcomers_.erase(end.rank) > 0 && door_) door_->newcomer_ended(end.rank);
}

bool Growth::holds_back(const RankEnd& end) {
  if (!door_ || roster_.is_admitted(end.rank) || newcomers_.erase(end.rank) == 0) return false;
  held_back_[end.rank] = end;
  door_->newcomer_ended(end.rank);
  return true;
}

void Growth::look() {
  if (door_) {
    door_->look();
  } else {
    nobody_to_ask_ = true;
  }
}

Growth::Step Growth::step(Time now) {
  Step step;
  if (discovery_) {
    const Discovery::Step next = discovery_->step(now);
    if (next == Discovery::Step::kRun) run_script(now);
    if (next == Discovery::Step::kKill && script_) script_->kill_all();
    step.words = discovery_->take_words();
  }
  if (door_) {
    DoorWatch::Answer answer = door_->take();
    step.admitted = std::move(answer.admitted);
    step.looked = answer.looked;
    for (const auto& [seat, was_in] : answer.ended) {
      const auto held = held_back_.extract(seat);
      if (held.empty()) continue;
      roster_.rank_admitted(seat, was_in);
      step.ended.push_back({held.mapped(), was_in});
    }
    for (int seat : answer.refused) roster_.refused(seat);
    door_->look_often(!newcomers_.empty());
  }
  step.looked |= std::exchange(nobody_to_ask_, false);
  if (step.admitted) {
    for (int seat : newcomers_) roster_.rank_admitted(seat, step.admitted->contains(seat));
  }
  step.steps = roster_.step(now);
  return step;
}

Deadline Growth::deadline() const {
  const Deadline roster = roster_.deadline();
  return discovery_ ? roster.earlier(discovery_->deadline()) : roster;
}

}  // namespace horo::cli::launch
