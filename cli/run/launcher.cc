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
#include "cli/run/host_link.h"
#include "cli/run/interfaces.h"
#include "cli/run/join_watch.h"
#include "cli/run/life.h"
#include "cli/run/meeting_point.h"
#include "cli/run/results.h"
#include "cli/run/signals.h"
#include "cli/run/summary.h"
#include "cli/run/tree.h"
#include "cli/run/variables.h"

#include "horo/base/build.h"
#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::cli::launch {

namespace {

using net::Interest;
using Action = JobLife::Action;

constexpr uint64_t kSignalsToken = 0;
constexpr uint64_t kConsoleToken = 1;
constexpr uint64_t kJoinToken = 2;
constexpr uint64_t kFirstHost = 16;
constexpr uint64_t kTokensPerHost = 3;  // Reading, writing, complaints.
/// What shows our output is slower than the ranks beyond this much: they wait for it.
constexpr size_t kMostQueued = 1 << 20;
constexpr Duration kLastOutput = std::chrono::seconds(5);
/// For the process that led to a host to end and tell why, after its channel has.
constexpr Duration kAwaitReason = std::chrono::seconds(1);

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
  life.least_ranks = options.least_ranks;
  life.grace = options.grace;
  return life;
}

class Launcher {
 public:
  static Result<std::unique_ptr<Launcher>> create(const RunOptions& options);
  int run();

 private:
  Launcher(const RunOptions& options, Signals signals, net::Poller poller, Console console)
      : options_(options),
        job_(random_job_name()),
        signals_(std::move(signals)),
        poller_(std::move(poller)),
        console_(std::move(console)),
        life_(life_options(options), Clock::now()) {}

  void say(const std::string& words) { console_.say(text("horo run: ", words)); }
  Status open_results();
  void reach_hosts();
  Status add_host(const std::string& name);
  void turn();
  Deadline deadline() const;
  void take_event(const net::Event& event);
  void take_signals();
  void reap();
  void read_host(size_t host);
  void take_message(size_t host, const Message& message);
  void take_hello(size_t host, const Message& message);
  void close_host(size_t host);
  void judge_closed_hosts();
  void read_complaints(size_t host);
  void flush_host(size_t host);
  void link_is_writable(size_t host);
  void send(size_t host, MessageType type, std::span<const std::byte> payload);
  void carry_out(const Action& action);
  Status start_ranks();
  void feed(size_t host);
  StartOrder order_for(size_t host, const MeetingPlan& plan) const;
  void settle_console();
  void pause_hosts(bool paused);
  int finish();

  uint64_t token(size_t host, uint64_t which) const { return kFirstHost + host * kTokensPerHost + which; }

  const RunOptions& options_;
  const std::string job_;
  Signals signals_;
  net::Poller poller_;
  Console console_;
  JobLife life_;
  Log log_{LogLevel::kWarning};
  std::vector<HostLink> hosts_;
  std::set<std::string> told_;  ///< What hosts wanted the user to know: said once if many say it.
  std::shared_ptr<const net::Key> key_;
  std::unique_ptr<rendezvous::TcpStoreServer> store_;
  std::unique_ptr<JoinWatch> join_watch_;
  std::string input_;  ///< What every rank reads.
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
  const ConsoleOptions show{static_cast<int>(options.placement.ranks.size()), options.timestamps,
                            options.output_folder};
  HORO_ASSIGN(Console console, Console::open(show));
  std::unique_ptr<Launcher> launcher(new Launcher(options, std::move(signals), std::move(poller), std::move(console)));
  HORO_TRY(launcher->poller_.add(launcher->signals_.fd(), Interest::kRead, kSignalsToken));
  HORO_TRY(launcher->open_results());
  HORO_ASSIGN(net::Key key, net::Key::random());
  launcher->key_ = std::make_shared<const net::Key>(std::move(key));
  return launcher;
}

Status Launcher::open_results() {
  if (!options_.input_file.empty()) {
    HORO_ASSIGN(input_, contents_of(options_.input_file, "--input"));
  }
  if (options_.result_folder.empty()) return {};
  HORO_ASSIGN(results_, Results::open(options_.result_folder, static_cast<int>(options_.placement.ranks.size())));
  return {};
}

int Launcher::run() {
  for (const std::string& note : options_.notes) say(note);
  reach_hosts();
  while (life_.phase() != JobLife::Phase::kDone) turn();
  return finish();
}

void Launcher::reach_hosts() {
  hosts_.reserve(options_.placement.hosts.size());
  for (const Host& host : options_.placement.hosts) {
    const Status added = add_host(host.name);
    if (!added.ok()) return life_.fail(text("host ", host.name, ": ", added.message()), Clock::now());
  }
}

Status Launcher::add_host(const std::string& name) {
  HORO_ASSIGN(HostLink link, HostLink::start(name, is_this_host(name), options_.ssh));
  if (options_.verbose) {
    std::string words;
    for (const std::string& word : link.words()) words += text(" ", word);
    say(text("host ", name, " through:", words));
  }
  const size_t host = hosts_.size();
  hosts_.push_back(std::move(link));
  HORO_TRY(poller_.add(hosts_[host].duct().read_fd(), Interest::kRead, token(host, 0)));
  HORO_TRY(poller_.add(hosts_[host].complaints_fd(), Interest::kRead, token(host, 2)));
  hosts_[host].reading = hosts_[host].complaining = true;
  return {};
}

Deadline Launcher::deadline() const {
  Deadline earliest = life_.deadline();
  for (const HostLink& link : hosts_) {
    if (link.closed) earliest = earliest.earlier(*link.closed);
  }
  return join_watch_ ? earliest.earlier(join_watch_->deadline()) : earliest;
}

void Launcher::turn() {
  auto events = poller_.wait(deadline());
  if (!events.ok()) return life_.fail(events.status().to_string(), Clock::now());
  for (const net::Event& event : *events) take_event(event);
  judge_closed_hosts();
  const Time now = Clock::now();
  if (life_.deadline().expired(now)) life_.tick(now);
  if (join_watch_) {
    for (const std::string& words : join_watch_->step(now)) say(words);
  }
  for (const Action& action : life_.take_actions()) carry_out(action);
  settle_console();
}

void Launcher::take_event(const net::Event& event) {
  if (event.token == kSignalsToken) return take_signals();
  if (event.token < kFirstHost) return;  // The console and the watch of joining are looked after in every turn.
  const size_t host = (event.token - kFirstHost) / kTokensPerHost;
  const uint64_t which = (event.token - kFirstHost) % kTokensPerHost;
  if (which == 0) read_host(host);
  if (which == 1) link_is_writable(host);
  if (which == 2) read_complaints(host);
}

void Launcher::take_signals() {
  for (int number : signals_.take()) {
    if (number == SIGCHLD) continue;
    if (life_.phase() == JobLife::Phase::kEnding && number == SIGINT) say("ending at once");
    life_.signalled(number, Clock::now());
  }
  reap();
}

void Launcher::reap() {
  int status = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    for (HostLink& link : hosts_) {
      if (link.pid() == pid) link.note_exit(status);
    }
  }
}

void Launcher::read_host(size_t host) {
  HostLink& link = hosts_[host];
  if (!link.reading) return;
  const auto open = link.duct().fill();
  while (true) {
    auto message = link.duct().next();
    if (!message.ok()) {
      life_.host_lost(host, message.status().message(), Clock::now());
      return close_host(host);
    }
    if (!*message) break;
    take_message(host, **message);
  }
  if (!open.ok() || !*open) close_host(host);
}

void Launcher::take_message(size_t host, const Message& message) {
  if (!hosts_[host].hello) return take_hello(host, message);
  if (message.type == MessageType::kOutput) {
    const auto output = decode_output(message.payload);
    if (!output.ok()) return;
    if (output->stream != Stream::kResult) console_.write(output->rank, output->stream, output->bytes);
    if (output->stream == Stream::kResult && results_) results_->write(output->rank, output->bytes);
  } else if (message.type == MessageType::kExited) {
    const auto end = decode_end_of_rank(message.payload);
    const auto mine = options_.placement.ranks_of(host);
    if (!end.ok() || std::find(mine.begin(), mine.end(), end->rank) == mine.end()) return;
    if (results_) results_->note_end(*end);
    life_.rank_ended(*end, Clock::now());
  } else if (message.type == MessageType::kEnded) {
    hosts_[host].said_ended = true;
    for (int rank : options_.placement.ranks_of(host)) console_.finish(rank);
    life_.host_ended(host, Clock::now());
  } else if (message.type == MessageType::kProblem) {
    const auto words = decode_text(message.payload);
    if (words.ok() && told_.insert(*words).second) say(*words);
  }
}

void Launcher::take_hello(size_t host, const Message& message) {
  auto hello = message.type == MessageType::kHello ? decode_hello(message.payload)
                                                   : Result<AgentHello>(Status(Code::kCorrupt, "no hello came first"));
  const Status fits = hello.ok() ? check_versions(*hello) : hello.status();
  if (!fits.ok()) {
    life_.host_lost(host, fits.message(), Clock::now());
    return close_host(host);
  }
  if (hello->version != build_info().version) {
    say(text("host ", hosts_[host].name(), " has horo ", hello->version, ", here is ", build_info().version));
  }
  if (options_.verbose) say(text("host ", hosts_[host].name(), " (", hello->host, ") is ready"));
  hosts_[host].hello = std::move(*hello);
  life_.host_ready(host, Clock::now());
}

void Launcher::close_host(size_t host) {
  HostLink& link = hosts_[host];
  if (link.reading && !paused_) static_cast<void>(poller_.remove(link.duct().read_fd()));
  if (link.writing) static_cast<void>(poller_.remove(link.duct().write_fd()));
  link.reading = link.writing = false;
  if (!link.said_ended && !link.closed) link.closed = Deadline::after(kAwaitReason);
}

/// A host whose channel ended without a goodbye is lost; its process is given a moment to tell why.
void Launcher::judge_closed_hosts() {
  reap();
  for (size_t host = 0; host < hosts_.size(); ++host) {
    HostLink& link = hosts_[host];
    if (!link.closed || (!(link.has_exited() && !link.complaining) && !link.closed->expired())) continue;
    link.closed.reset();
    life_.host_lost(host, link.why_lost(), Clock::now());
  }
}

void Launcher::read_complaints(size_t host) {
  HostLink& link = hosts_[host];
  if (!link.complaining) return;
  std::vector<std::string> lines;
  const bool more = link.read_complaints(lines);
  // Before the agent answers these are words of ssh, which come with the error if there is one.
  const bool show = link.hello.has_value() || options_.verbose;
  for (const std::string& line : lines) {
    if (show) console_.say(text("[", link.name(), "]<ssh>:", line));
  }
  if (more) return;
  static_cast<void>(poller_.remove(link.complaints_fd()));
  link.complaining = false;
}

void Launcher::send(size_t host, MessageType type, std::span<const std::byte> payload) {
  hosts_[host].duct().send(type, payload);
  flush_host(host);
}

void Launcher::flush_host(size_t host) {
  HostLink& link = hosts_[host];
  // A channel that broke shows at its reading end.
  const bool open = link.duct().flush().ok();
  const bool waits = open && (link.duct().queued() > 0 || !link.start_order.empty()) && link.reading;
  if (waits == link.writing) return;
  link.writing = waits;
  const int fd = link.duct().write_fd();
  static_cast<void>(waits ? poller_.add(fd, Interest::kWrite, token(host, 1)) : poller_.remove(fd));
}

void Launcher::link_is_writable(size_t host) {
  flush_host(host);
  feed(host);
}

void Launcher::carry_out(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kStart:
      if (const Status started = start_ranks(); !started.ok()) {
        life_.fail(started.message(), Clock::now());
        for (const Action& next : life_.take_actions()) carry_out(next);
      }
      break;
    case Action::Kind::kEnd:
      hosts_[action.host].start_order.clear();  // What has not begun does not begin any more.
      send(action.host, MessageType::kEnd, encode(EndOrder{options_.grace}));
      break;
    case Action::Kind::kEndNow:
      hosts_[action.host].start_order.clear();
      send(action.host, MessageType::kEnd, encode(EndOrder{}));
      break;
    case Action::Kind::kAbandon:
      abandoned_ = true;
      say(action.words);
      break;
    case Action::Kind::kSay:
      say(action.words);
      break;
  }
}

Status Launcher::start_ranks() {
  std::vector<HostRoute> routes;
  for (const HostLink& link : hosts_) {
    routes.push_back({link.name(), link.is_here(), link.hello->connector, link.hello->acceptor});
  }
  HORO_ASSIGN(const MeetingPlan plan, plan_meeting(routes, options_.interfaces));
  const rendezvous::TcpStoreOptions serve{job_, key_, &log_};
  auto store = rendezvous::TcpStoreServer::start(plan.listen.with_port(options_.store_port), serve);
  if (!store.ok()) return store.status().prefixed("the store where ranks meet");
  store_ = std::move(*store);
  if (options_.verbose) say(text("ranks meet at ", store_->address().to_string()));
  for (size_t host = 0; host < hosts_.size(); ++host) {
    hosts_[host].start_order = encode(order_for(host, plan));
    feed(host);
  }
  const int size = static_cast<int>(options_.placement.ranks.size());
  join_watch_ = JoinWatch::create(*store_, serve, plan.seen[0], size);
  if (join_watch_) HORO_TRY(poller_.add(join_watch_->fd(), Interest::kRead, kJoinToken));
  return {};
}

/// The input goes first, no faster than the host takes it, and then the order to start.
void Launcher::feed(size_t host) {
  HostLink& link = hosts_[host];
  if (link.start_order.empty()) return;
  while (link.fed < input_.size() && link.duct().queued() < kMostQueued) {
    const auto piece = std::as_bytes(std::span(input_)).subspan(link.fed);
    const auto now = piece.first(std::min(piece.size(), kMostOutput));
    link.fed += now.size();
    link.duct().send(MessageType::kInput, now);
  }
  if (link.fed == input_.size()) link.duct().send(MessageType::kStart, std::exchange(link.start_order, {}));
  flush_host(host);
}

StartOrder Launcher::order_for(size_t host, const MeetingPlan& plan) const {
  StartOrder order;
  std::copy(key_->secret().begin(), key_->secret().end(), order.key.begin());
  std::error_code ignored;
  order.folder = std::filesystem::current_path(ignored).string();
  order.command = options_.command;
  if (!hosts_[host].is_here()) order.environment = variables_to_forward(Environment::of_process());
  const auto address = net::Address::ip(plan.seen[host], store_->address().port());
  const JobVariables job{job_, address.ok() ? address->to_string() : store_->address().to_string()};
  for (const auto& [name, value] : variables_of(job)) order.environment.insert_or_assign(name, value);
  for (const auto& [name, value] : options_.variables) order.environment.insert_or_assign(name, value);
  for (const RankPlace& place : options_.placement.ranks) {
    if (place.host == host) order.ranks.push_back({place.rank, variables_of(place, options_.placement)});
  }
  order.grace = options_.grace;
  order.interfaces = options_.interfaces;
  order.peers = plan.peers[host];
  order.wants_results = results_.has_value();
  order.gpus_per_rank = options_.gpus_per_rank;
  order.share_gpus = options_.share_gpus;
  return order;
}

/// Writes what is shown; while that is behind, hosts are not listened to.
void Launcher::settle_console() {
  if (!console_.flush().ok()) life_.signalled(SIGPIPE, Clock::now());
  for (const Action& action : life_.take_actions()) carry_out(action);
  std::vector<int> waiting = console_.waiting();
  if (waiting != watched_output_) {
    for (int fd : watched_output_) static_cast<void>(poller_.remove(fd));
    for (int fd : waiting) static_cast<void>(poller_.add(fd, Interest::kWrite, kConsoleToken));
    watched_output_ = std::move(waiting);
  }
  if (paused_ != (console_.queued() > kMostQueued)) pause_hosts(!paused_);
}

void Launcher::pause_hosts(bool paused) {
  paused_ = paused;
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (!hosts_[host].reading) continue;
    const int fd = hosts_[host].duct().read_fd();
    static_cast<void>(paused ? poller_.remove(fd) : poller_.add(fd, Interest::kRead, token(host, 0)));
  }
}

int Launcher::finish() {
  join_watch_.reset();
  store_.reset();
  for (size_t rank = 0; rank < options_.placement.ranks.size(); ++rank) console_.finish(static_cast<int>(rank));
  const auto tail = [&](int rank) { return console_.tail(rank).lines(); };
  for (const std::string& line : summary(life_, options_.placement, tail)) say(line);
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
