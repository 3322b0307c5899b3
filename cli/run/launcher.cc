#include "cli/run/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "cli/run/console.h"
#include "cli/run/growth.h"
#include "cli/run/join_watch.h"
#include "cli/run/life.h"
#include "cli/run/links.h"
#include "cli/run/meeting_point.h"
#include "cli/run/orders.h"
#include "cli/run/results.h"
#include "cli/run/signals.h"
#include "cli/run/summary.h"
#include "cli/run/tree.h"

#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::cli::launch {

namespace {

using net::Interest;
using Action = JobLife::Action;

constexpr uint64_t kSignalsToken = 0;
constexpr uint64_t kConsoleToken = 1;
constexpr uint64_t kJoinToken = 2;
constexpr Duration kLastOutput = std::chrono::seconds(5);

std::string random_job_name() {
  std::array<std::byte, 8> bytes;
  net::fill_random(bytes);
  std::string name = text("run-", getpid(), "-");
  for (std::byte byte : bytes) name += text(std::hex, static_cast<int>(byte));
  return name;
}

/// A program may be started without standard streams; what is opened later must not take their numbers.
void fill_standard_descriptors() {
  int fd = 0;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
  }
  close(fd);
}

/// The kernel tells us of the caller's end, unless that came before.
Status end_with(int parent) {
  if (parent == 0) return {};
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == parent) return {};
  return {Code::kInvalidArgument, text("--end-with-parent ", parent, ": the caller is process ", getppid())};
}

LifeOptions life_options(const RunOptions& options) {
  LifeOptions life;
  for (const Host& host : options.placement.hosts) {
    life.hosts.push_back(host.name);
    life.ranks_per_host.push_back(host.slots);
  }
  life.start_timeout = options.start_timeout;
  life.least_ranks = options.elastic.wanted ? options.elastic.least : 0;
  life.elastic_timeout = options.elastic.timeout;
  life.grace = options.grace;
  return life;
}

/// To all hosts whose agents are there, `first` in front if it is given.
std::vector<HostRoute> routes_to(const Links& links, std::optional<size_t> first = {}) {
  std::vector<HostRoute> routes;
  const auto add = [&](const HostLink& link) {
    routes.push_back({link.name(), link.is_here(), link.hello->connector, link.hello->acceptor});
  };
  if (first) add(links[*first]);
  for (size_t host = 0; host < links.size(); ++host) {
    if (links[host].hello && links[host].reading && host != first) add(links[host]);
  }
  return routes;
}

bool may_grow(const RunOptions& options) { return !options.elastic.script.empty(); }

class Launcher final : private HostEvents {
 public:
  static Result<std::unique_ptr<Launcher>> create(const RunOptions& options);
  int run();

 private:
  Launcher(const RunOptions& options, Signals signals, net::Poller poller, Console console, std::string input)
      : options_(options),
        job_(random_job_name()),
        signals_(std::move(signals)),
        poller_(std::move(poller)),
        console_(std::move(console)),
        life_(life_options(options), Clock::now()),
        links_(poller_, *this, {options.ssh, options.verbose, options.elastic.wanted, std::move(input)}) {}

  void say(const std::string& words) override { console_.say(text("horo run: ", words)); }
  void host_is_ready(size_t host) override;
  void host_said(size_t host, const Message& message) override;
  void host_is_lost(size_t host, const std::string& why) override;
  void host_complained(size_t host, const std::string& line) override;
  void reach_hosts();
  void turn();
  Deadline deadline() const;
  void take_event(const net::Event& event);
  void take_signals();
  void reap();
  void rank_ended(const RankEnd& end);
  void take_end(const RankEnd& end);
  void carry_out(const Action& action);
  void carry_out_all();
  Status start_ranks();
  Status open_store(const MeetingPlan& plan);
  Orders::Meeting meeting_of(size_t host, const MeetingPlan& plan) const;
  void grow();
  void carry_out(const Roster::Step& step);
  void reach_new_host(const std::string& name);
  Status start_newcomer(const Roster::Step& step);
  std::optional<size_t> link_of(const std::string& host) const;
  void settle_console();
  int finish();

  const RunOptions& options_;
  const std::string job_;
  Signals signals_;
  net::Poller poller_;
  Console console_;
  JobLife life_;
  Log log_{LogLevel::kWarning};
  Links links_;                 ///< Numbered as the hosts of life_ are.
  std::set<std::string> told_;  ///< What hosts wanted the user to know: said once if many say it.
  std::shared_ptr<const net::Key> key_;
  std::unique_ptr<Orders> orders_;
  std::unique_ptr<rendezvous::TcpStoreServer> store_;
  std::unique_ptr<JoinWatch> join_watch_;
  std::unique_ptr<Growth> growth_;  ///< Of an elastic job.
  std::optional<Results> results_;
  std::vector<int> watched_output_;
  bool paused_ = false;
  bool abandoned_ = false;
};

Result<std::unique_ptr<Launcher>> Launcher::create(const RunOptions& options) {
  fill_standard_descriptors();
  // Whatever an agent that is killed leaves behind on this host comes to us.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // The key passes through messages: no core dump and no other process of this user is to have it.
  prctl(PR_SET_DUMPABLE, 0);
  HORO_TRY(end_with(options.parent));
  HORO_ASSIGN(Signals signals, Signals::watch({SIGCHLD, SIGINT, SIGTERM, SIGHUP}));
  HORO_ASSIGN(net::Poller poller, net::Poller::create());
  const int ranks = static_cast<int>(options.placement.ranks.size());
  HORO_ASSIGN(Console console, Console::open({ranks, options.timestamps, options.output_folder}));
  std::string input;
  if (!options.input_file.empty()) {
    HORO_ASSIGN(input, contents_of(options.input_file, "--input"));
  }
  std::unique_ptr<Launcher> launcher(
      new Launcher(options, std::move(signals), std::move(poller), std::move(console), std::move(input)));
  HORO_TRY(launcher->poller_.add(launcher->signals_.fd(), Interest::kRead, kSignalsToken));
  if (!options.result_folder.empty()) {
    HORO_ASSIGN(launcher->results_, Results::open(options.result_folder, ranks));
  }
  HORO_ASSIGN(net::Key key, net::Key::random());
  launcher->key_ = std::make_shared<const net::Key>(std::move(key));
  launcher->orders_ = std::make_unique<Orders>(options, launcher->job_, launcher->key_);
  return launcher;
}

int Launcher::run() {
  for (const std::string& note : options_.notes) say(note);
  reach_hosts();
  while (life_.phase() != JobLife::Phase::kDone) turn();
  return finish();
}

void Launcher::reach_hosts() {
  for (const Host& host : options_.placement.hosts) {
    const Status added = links_.add(host.name);
    if (!added.ok()) return life_.fail(text("host ", host.name, ": ", added.message()), Clock::now());
  }
}

Deadline Launcher::deadline() const {
  Deadline earliest = life_.deadline().earlier(links_.deadline());
  if (join_watch_) earliest = earliest.earlier(join_watch_->deadline());
  const bool may_change = growth_ && life_.phase() == JobLife::Phase::kRunning;
  return may_change ? earliest.earlier(growth_->deadline()) : earliest;
}

void Launcher::turn() {
  auto events = poller_.wait(deadline());
  if (!events.ok()) return life_.fail(events.status().to_string(), Clock::now());
  for (const net::Event& event : *events) take_event(event);
  reap();
  links_.judge_closed();
  const Time now = Clock::now();
  if (life_.deadline().expired(now)) life_.tick(now);
  if (join_watch_) {
    for (const std::string& words : join_watch_->step(now)) say(words);
  }
  if (growth_) grow();
  carry_out_all();
  settle_console();
}

void Launcher::take_event(const net::Event& event) {
  if (event.token == kSignalsToken) return take_signals();
  if (event.token >= Links::kFirstToken) return links_.take_event(event);
  if (event.token >= Growth::kFirstToken && growth_) growth_->take_event(event.token);
  // The console, the watch of joining and the door are looked after in every turn.
}

void Launcher::take_signals() {
  for (int number : signals_.take()) {
    if (number == SIGCHLD) continue;
    if (life_.phase() == JobLife::Phase::kEnding && number == SIGINT) say("ending at once");
    life_.signalled(number, Clock::now());
  }
}

void Launcher::reap() {
  while (const auto ended = ended_child()) {
    if (growth_) growth_->before_reaping(ended->pid);
    int status = 0;
    if (waitpid(ended->pid, &status, WNOHANG) != ended->pid) continue;
    if (!growth_ || !growth_->note_exit(ended->pid, status)) links_.note_exit(ended->pid, status);
  }
}

void Launcher::host_is_ready(size_t host) {
  if (growth_) growth_->roster().host_ready(links_[host].name());
  life_.host_ready(host, Clock::now());
}

void Launcher::host_is_lost(size_t host, const std::string& why) {
  const Time now = Clock::now();
  const bool matters = growth_ && life_.phase() == JobLife::Phase::kRunning && link_of(links_[host].name()) == host;
  if (matters) {
    growth_->roster().host_lost(links_[host].name(), why, now);
    for (int rank : life_.ranks_of(host)) growth_->rank_ended({.rank = rank, .code = 1}, now);
    life_.others_may_come(growth_->roster().may_grow(), now);
  }
  life_.host_lost(host, why, now);
}

void Launcher::host_said(size_t host, const Message& message) {
  if (message.type == MessageType::kOutput) {
    const auto output = decode_output(message.payload);
    if (!output.ok()) return;
    if (output->stream != Stream::kResult) console_.write(output->rank, output->stream, output->bytes);
    if (output->stream == Stream::kResult && results_) results_->write(output->rank, output->bytes);
  } else if (message.type == MessageType::kExited) {
    const auto end = decode_end_of_rank(message.payload);
    if (end.ok() && life_.host_of(end->rank) == host && !life_.has_ended(end->rank)) rank_ended(*end);
  } else if (message.type == MessageType::kEnded) {
    links_.said_ended(host);
    for (int rank : life_.ranks_of(host)) console_.finish(rank);
    life_.host_ended(host, Clock::now());
  } else if (message.type == MessageType::kProblem) {
    const auto words = decode_text(message.payload);
    if (words.ok() && told_.insert(*words).second) say(*words);
  }
}

void Launcher::rank_ended(const RankEnd& end) {
  if (results_) results_->note_end(end);
  const bool may_change = growth_ && life_.phase() == JobLife::Phase::kRunning;
  if (!may_change || !end.failed() || !growth_->holds_back(end)) take_end(end);
}

void Launcher::take_end(const RankEnd& end) {
  const Time now = Clock::now();
  if (growth_) {
    // Who waits at the door ends well only when it is asked to leave. Others were let in, and all of it was over before
    // we looked.
    if (!end.failed()) life_.rank_admitted(end.rank, true, now);
    // Before the life of the job, for what it knows: whether another may take its place.
    growth_->rank_ended(end, now);
    life_.others_may_come(growth_->roster().may_grow(), now);
  }
  life_.rank_ended(end, now);
}

void Launcher::host_complained(size_t host, const std::string& line) {
  console_.say(text("[", links_[host].name(), "]<ssh>:", line));
}

void Launcher::carry_out_all() {
  for (const Action& action : life_.take_actions()) carry_out(action);
}

void Launcher::carry_out(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kStart:
      if (const Status started = start_ranks(); !started.ok()) {
        life_.fail(started.message(), Clock::now());
        carry_out_all();
      }
      break;
    case Action::Kind::kEnd:
      links_.drop_orders(action.host);
      links_.send(action.host, MessageType::kEnd, encode(EndOrder{options_.grace}));
      break;
    case Action::Kind::kEndNow:
      links_.drop_orders(action.host);
      links_.send(action.host, MessageType::kEnd, encode(EndOrder{}));
      break;
    case Action::Kind::kAbandon:
      abandoned_ = true;
      say(action.words);
      break;
    case Action::Kind::kLook:
      growth_->look();
      break;
    case Action::Kind::kSay:
      say(action.words);
      break;
  }
}

Status Launcher::open_store(const MeetingPlan& plan) {
  const rendezvous::TcpStoreOptions serve{job_, key_, &log_};
  auto store = rendezvous::TcpStoreServer::start(plan.listen.with_port(options_.store_port), serve);
  if (!store.ok()) return store.status().prefixed("the store where ranks meet");
  store_ = std::move(*store);
  if (options_.verbose) say(text("ranks meet at ", store_->address().to_string()));
  const int size = static_cast<int>(options_.placement.ranks.size());
  join_watch_ = JoinWatch::create(*store_, serve, plan.seen[0], size);
  if (join_watch_) HORO_TRY(poller_.add(join_watch_->fd(), Interest::kRead, kJoinToken));
  if (!options_.elastic.wanted) return {};
  growth_ = std::make_unique<Growth>(options_, poller_, Clock::now());
  HORO_ASSIGN(const net::Address at, net::Address::ip(plan.seen[0], store_->address().port()));
  return growth_->begin(at, serve);
}

Orders::Meeting Launcher::meeting_of(size_t host, const MeetingPlan& plan) const {
  const auto address = net::Address::ip(plan.seen[host], store_->address().port());
  return {address.ok() ? address->to_string() : store_->address().to_string(), plan.peers[host]};
}

Status Launcher::start_ranks() {
  HORO_ASSIGN(const MeetingPlan plan, plan_meeting(routes_to(links_), options_.interfaces, may_grow(options_)));
  HORO_TRY(open_store(plan));
  for (size_t host = 0; host < links_.size(); ++host) {
    StartOrder order = orders_->base(links_[host], meeting_of(host, plan));
    for (const RankPlace& place : options_.placement.ranks) {
      if (place.host == host) order.ranks.push_back(orders_->first(place, console_.folder_of(place.rank)));
    }
    order.slots = static_cast<int>(order.ranks.size());
    links_.order_start(host, order);
  }
  return {};
}

/// The last that was reached under this name.
std::optional<size_t> Launcher::link_of(const std::string& host) const {
  for (size_t link = links_.size(); link > 0; --link) {
    if (links_[link - 1].name() == host) return link - 1;
  }
  return {};
}

void Launcher::grow() {
  if (life_.phase() != JobLife::Phase::kRunning) return;
  if (life_.somebody_ended_well()) growth_->roster().stop();
  const Time now = Clock::now();
  const Growth::Step next = growth_->step(now);
  for (const std::string& words : next.words) say(words);
  if (next.admitted) {
    for (int seat : growth_->newcomers()) life_.rank_admitted(seat, next.admitted->contains(seat), now);
  }
  for (const Growth::Ended& one : next.ended) {
    life_.rank_admitted(one.end.rank, one.was_admitted, now);
    take_end(one.end);
  }
  if (next.looked) life_.looked(now);
  for (const Roster::Step& step : next.steps) carry_out(step);
  life_.others_may_come(growth_->roster().may_grow(), now);
}

void Launcher::carry_out(const Roster::Step& step) {
  using Kind = Roster::Step::Kind;
  const auto link = link_of(step.host);
  switch (step.kind) {
    case Kind::kReach:
      return reach_new_host(step.host);
    case Kind::kGiveUp:
      life_.host_lost(*link, "no answer", Clock::now());
      return links_.let_go(*link);
    case Kind::kRelease:
      return links_.send(*link, MessageType::kEnd, encode(EndOrder{options_.grace}));
    case Kind::kStart:
      if (const Status started = start_newcomer(step); !started.ok()) {
        say(started.message());
        growth_->rank_ended({.rank = step.seat, .code = 1, .error = started.message()}, Clock::now());
      }
      return;
    case Kind::kLeave:
      life_.rank_is_leaving(step.seat);
      return growth_->ask_to_leave(step.seat, step.words);
    case Kind::kEnd:
      return links_.send(*link, MessageType::kEndRank, encode(EndRankOrder{step.seat, options_.grace}));
    case Kind::kSay:
      return say(step.words);
  }
}

void Launcher::reach_new_host(const std::string& name) {
  say(text("host ", name, " is new"));
  const Status added = links_.add(name);
  if (added.ok()) {
    life_.add_host(name);
  } else {
    growth_->roster().host_lost(name, added.message(), Clock::now());
  }
}

Status Launcher::start_newcomer(const Roster::Step& step) {
  const size_t host = link_of(step.host).value_or(0);
  HORO_ASSIGN(const MeetingPlan plan, plan_meeting(routes_to(links_, host), options_.interfaces, may_grow(options_)));
  StartOrder order = orders_->base(links_[host], meeting_of(0, plan));
  console_.add_rank(step.seat);
  if (results_) results_->add_rank(step.seat);
  order.ranks.push_back(orders_->newcomer(step.seat, step.slot, step.host, console_.folder_of(step.seat)));
  order.slots = step.slots;
  life_.add_rank(step.seat, host);
  growth_->newcomer_started(step.seat);
  say(text("rank ", step.seat, " is started on ", step.host));
  links_.order_start(host, order);
  return {};
}

/// Writes what is shown; while that is behind, hosts are not listened to.
void Launcher::settle_console() {
  if (!console_.flush().ok()) life_.signalled(SIGPIPE, Clock::now());
  carry_out_all();
  std::vector<int> waiting = console_.waiting();
  if (waiting != watched_output_) {
    for (int fd : watched_output_) static_cast<void>(poller_.remove(fd));
    for (int fd : waiting) static_cast<void>(poller_.add(fd, Interest::kWrite, kConsoleToken));
    watched_output_ = std::move(waiting);
  }
  if (paused_ == (console_.queued() > Links::kMostQueued)) return;
  paused_ = !paused_;
  links_.pause(paused_);
}

int Launcher::finish() {
  join_watch_.reset();
  growth_.reset();
  store_.reset();
  for (size_t host = 0; host < links_.size(); ++host) {
    for (int rank : life_.ranks_of(host)) console_.finish(rank);
  }
  const auto tail = [&](int rank) { return console_.tail(rank).lines(); };
  for (const std::string& line : summary(life_, tail)) say(line);
  if (results_) results_->finish(life_, tail);
  console_.drain(Deadline::after(kLastOutput));
  // Agents that were abandoned see our end and go on killing; else nothing of ours may be left on this host.
  if (!abandoned_) signal_descendants(SIGKILL);
  return life_.exit_code();
}

}  // namespace

int run_job(const RunOptions& options) {
  auto launcher = Launcher::create(options);
  if (launcher.ok()) return (*launcher)->run();
  std::cerr << "horo run: " << launcher.status().to_string() << '\n';
  return launcher.status().code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace horo::cli::launch
