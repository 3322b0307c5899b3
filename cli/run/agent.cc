#include "cli/run/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "cli/run/agent_rank.h"
#include "cli/run/duct.h"
#include "cli/run/ending.h"
#include "cli/run/left_alone.h"
#include "cli/run/signals.h"
#include "cli/run/tree.h"

#include "horo/base/build.h"
#include "horo/base/system.h"
#include "horo/base/text.h"
#include "horo/net/frame.h"
#include "horo/net/poller.h"
#include "horo/net/system_error.h"

namespace horo::cli::launch {

namespace {

using net::Interest;

constexpr uint64_t kSignalsToken = 0;
constexpr uint64_t kReadToken = 1;
constexpr uint64_t kWriteToken = 2;
constexpr uint64_t kFirstStream = 16;
/// The launcher is slower than the ranks beyond this much: they wait for it.
constexpr size_t kMostQueued = 1 << 20;
/// When the launcher vanishes before it says how long ranks have.
constexpr Duration kUsualGrace = std::chrono::seconds(5);
constexpr Duration kAliveInterval = std::chrono::seconds(30);
/// For the last words to reach a launcher that does not read.
constexpr Duration kLastWords = std::chrono::seconds(5);
/// For a launcher that lives to answer, when the way to it broke.
constexpr Duration kAskStore = std::chrono::seconds(2);

class Agent {
 public:
  /// `words_fd`: for words to the user when the launcher is gone; -1: standard error.
  static Result<std::unique_ptr<Agent>> create(int words_fd);
  int run();

 private:
  Agent(Duct duct, Signals signals, net::Poller poller)
      : duct_(std::move(duct)), signals_(std::move(signals)), poller_(std::move(poller)) {}

  void greet();
  Status turn();
  void take_event(const net::Event& event);
  void read_orders();
  void take_order(const Message& message);
  void store_input(std::span<const std::byte> bytes);
  void start_ranks(const StartOrder& order);
  void fail_rank(int rank, int code, const std::string& why);
  void watch_streams(Rank& rank);
  void read_stream(uint64_t token);
  void close_stream(uint64_t token);
  void take_signals();
  void reap();
  void note_end(pid_t pid, int status);
  void begin_ending(Duration grace);
  void end_rank(const EndRankOrder& order);
  void act(Ending::Step step);
  void act_on_ranks(Time now);
  void settle();
  void finish_output();
  void pause_streams(bool paused);
  void lose_launcher();
  void go_on_alone();
  void send(MessageType type, std::span<const std::byte> payload);
  void flush();
  Deadline deadline() const;
  bool is_over() const;

  struct OpenStream {
    int rank = 0;
    Stream stream{};
    net::UniqueFd fd;
    std::string folder = {};  ///< RankOrder::output.
  };

  Duct duct_;
  Signals signals_;
  net::Poller poller_;
  std::map<pid_t, Rank> ranks_;  ///< Those that run.
  std::map<uint64_t, OpenStream> streams_;
  uint64_t next_stream_ = kFirstStream;
  net::UniqueFd input_;    ///< What every rank reads; in memory, with no name that others could open it by.
  Status input_is_whole_;  ///< Or why not.
  bool started_ = false;
  bool elastic_ = false;
  bool far_ = false;
  StoreAccess store_;
  OutputFiles files_;
  net::UniqueFd words_;
  bool launcher_is_there_ = true;
  bool reading_ = true;
  bool writing_ = false;  ///< Waits until the duct can be written.
  bool paused_ = false;
  bool children_left_ = false;
  Duration grace_ = kUsualGrace;
  Ending ending_;
  bool said_ended_ = false;
  Deadline last_words_;
  Time alive_at_ = Clock::now() + kAliveInterval;
};

Result<std::unique_ptr<Agent>> Agent::create(int words_fd) {
  prctl(PR_SET_NAME, "horo-agent");
  // The key passes through messages: no core dump and no other process of this user is to have it.
  prctl(PR_SET_DUMPABLE, 0);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return net::system_error("becoming a subreaper", errno);
  HORO_ASSIGN(Signals signals, Signals::watch({SIGCHLD, SIGTERM, SIGINT, SIGHUP}));
  // The duct moves away from 0 and 1, so that nothing that is printed by mistake gets into it.
  net::UniqueFd from(fcntl(0, F_DUPFD_CLOEXEC, 3)), to(fcntl(1, F_DUPFD_CLOEXEC, 3));
  if (!from || !to) return net::system_error("standard input and output of the agent", errno);
  const net::UniqueFd nowhere(open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(nowhere.get(), 0);
  dup2(nowhere.get(), 1);
  HORO_ASSIGN(Duct duct, Duct::adopt(std::move(from), std::move(to), false));
  HORO_ASSIGN(net::Poller poller, net::Poller::create());
  std::unique_ptr<Agent> agent(new Agent(std::move(duct), std::move(signals), std::move(poller)));
  agent->words_ = net::UniqueFd(fcntl(words_fd < 0 ? STDERR_FILENO : words_fd, F_DUPFD_CLOEXEC, 3));
  if (words_fd > STDERR_FILENO) close(words_fd);
  HORO_TRY(agent->poller_.add(agent->signals_.fd(), Interest::kRead, kSignalsToken));
  HORO_TRY(agent->poller_.add(agent->duct_.read_fd(), Interest::kRead, kReadToken));
  return agent;
}

int Agent::run() {
  greet();
  while (!is_over()) {
    if (const Status status = turn(); !status.ok()) {
      std::cerr << "horo agent: " << status.to_string() << '\n';
      signal_descendants(SIGKILL);
      return 1;
    }
  }
  return launcher_is_there_ ? 0 : 1;
}

bool Agent::is_over() const {
  if (!said_ended_) return false;
  return !launcher_is_there_ || duct_.queued() == 0 || last_words_.expired();
}

void Agent::greet() {
  AgentHello hello;
  hello.version = build_info().version;
  hello.lowest_wire = net::kWireVersionLowest;
  hello.highest_wire = net::kWireVersionHighest;
  hello.host = host_name();
  // "10.0.0.1 51234 10.0.0.2 22"
  std::istringstream ends(Environment::of_process().find("SSH_CONNECTION").value_or(""));
  std::string port;
  ends >> hello.connector >> port >> hello.acceptor;
  duct_.send_greeting();
  send(MessageType::kHello, encode(hello));
}

Deadline Agent::deadline() const {
  if (said_ended_) return last_words_;
  const Deadline alive = launcher_is_there_ ? Deadline(alive_at_) : Deadline::never();
  Deadline earliest = ending_.deadline().earlier(alive);
  for (const auto& [pid, rank] : ranks_) earliest = earliest.earlier(rank.ending.deadline());
  return earliest;
}

Status Agent::turn() {
  HORO_ASSIGN(auto events, poller_.wait(deadline()));
  for (const net::Event& event : events) take_event(event);
  if (Clock::now() >= alive_at_) {
    send(MessageType::kAlive, {});
    alive_at_ = Clock::now() + kAliveInterval;
  }
  act(ending_.step(Clock::now()));
  act_on_ranks(Clock::now());
  settle();
  return {};
}

void Agent::take_event(const net::Event& event) {
  if (event.token == kSignalsToken) take_signals();
  if (event.token == kReadToken) read_orders();
  if (event.token == kWriteToken) flush();
  if (event.token >= kFirstStream) read_stream(event.token);
}

void Agent::read_orders() {
  auto open = duct_.fill();
  while (true) {
    auto message = duct_.next();
    if (!message.ok()) return lose_launcher();
    if (!*message) break;
    take_order(**message);
  }
  if (!open.ok() || !*open) lose_launcher();
}

void Agent::take_order(const Message& message) {
  if (message.type == MessageType::kInput && !started_) return store_input(message.payload);
  if (message.type == MessageType::kStart && (!started_ || elastic_)) {
    auto order = decode_start(message.payload);
    if (!order.ok()) return lose_launcher();
    if (ending_.has_begun()) return;
    return start_ranks(*order);
  }
  if (message.type == MessageType::kEndRank) {
    const auto order = decode_end_one(message.payload);
    if (order.ok()) end_rank(*order);
    return;
  }
  if (message.type == MessageType::kEnd) {
    const auto order = decode_end(message.payload);
    return begin_ending(order.ok() ? order->grace : kUsualGrace);
  }
}

void Agent::store_input(std::span<const std::byte> bytes) {
  if (!input_is_whole_.ok()) return;
  if (!input_) input_ = net::UniqueFd(memfd_create("horo-input", MFD_CLOEXEC));
  while (!bytes.empty()) {
    const ssize_t count = write(input_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      input_is_whole_ = net::system_error("keeping the ranks' input in memory", errno);
      return;
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void Agent::start_ranks(const StartOrder& order) {
  started_ = true;
  grace_ = order.grace;
  elastic_ = order.elastic;
  far_ = order.far;
  store_ = StoreAccess::of(order);
  auto terms = input_is_whole_.ok() ? RankTerms::of(order) : Result<RankTerms>(input_is_whole_);
  if (!terms.ok()) {
    for (const RankOrder& rank : order.ranks) fail_rank(rank.rank, 1, terms.status().message());
    return;
  }
  for (const std::string& note : terms->notes) send(MessageType::kProblem, encode_text(note));
  terms->input = input_ ? input_.get() : -1;
  for (const RankOrder& one : order.ranks) {
    auto rank = terms->start(one);
    if (!rank.ok()) {
      fail_rank(one.rank, rank.status().code() == Code::kNotFound ? 127 : 126, rank.status().message());
      continue;
    }
    children_left_ = true;
    watch_streams(*rank);
    const pid_t pid = rank->child.pid;
    ranks_.emplace(pid, std::move(*rank));
  }
}

void Agent::fail_rank(int rank, int code, const std::string& why) {
  send(MessageType::kExited, encode(RankEnd{rank, code, 0, false, why}));
}

void Agent::watch_streams(Rank& rank) {
  const std::pair<net::UniqueFd*, Stream> all[] = {
      {&rank.output, Stream::kStdout}, {&rank.error, Stream::kStderr}, {&rank.result, Stream::kResult}};
  for (const auto& [fd, stream] : all) {
    if (!fd->valid()) continue;
    const uint64_t token = next_stream_++;
    const int number = fd->get();
    streams_.emplace(token, OpenStream{rank.rank, stream, std::move(*fd), rank.output_folder});
    if (!paused_) static_cast<void>(poller_.add(number, Interest::kRead, token));
  }
}

void Agent::read_stream(uint64_t token) {
  const auto place = streams_.find(token);
  if (place == streams_.end()) return;
  std::array<char, kMostOutput> bytes;
  const ssize_t got = read(place->second.fd.get(), bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return close_stream(token);
  const OpenStream& from = place->second;
  const Output output{from.rank, from.stream, {bytes.data(), static_cast<size_t>(got)}};
  if (!launcher_is_there_) files_.write(from.rank, from.folder, from.stream, output.bytes);
  send(MessageType::kOutput, encode(output));
}

void Agent::close_stream(uint64_t token) {
  const auto place = streams_.find(token);
  if (!paused_) static_cast<void>(poller_.remove(place->second.fd.get()));
  streams_.erase(place);
}

void Agent::take_signals() {
  for (int number : signals_.take()) {
    if (number != SIGCHLD) begin_ending(grace_);
  }
  reap();
}

void Agent::reap() {
  while (const auto ended = ended_child()) {
    // Others of its session may hold what the next rank in its slot needs.
    if (elastic_ && !ended->well && ranks_.contains(ended->pid)) kill(-ended->pid, SIGKILL);
    int status = 0;
    if (waitpid(ended->pid, &status, WNOHANG) == ended->pid) note_end(ended->pid, status);
  }
  siginfo_t none{};
  children_left_ = waitid(P_ALL, 0, &none, WEXITED | WNOHANG | WNOWAIT) == 0;
  ending_.child_ended();
}

void Agent::note_end(pid_t pid, int status) {
  const auto place = ranks_.find(pid);
  if (place == ranks_.end()) return;  // Something that a rank left behind.
  RankEnd end;
  end.rank = place->second.rank;
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (WIFEXITED(status)) end.code = WEXITSTATUS(status);
  end.asked = ending_.has_sent(end.signal) || place->second.ending.has_sent(end.signal);
  if (const int why = place->second.child.start_error(); why != 0) {
    end.error = text("cannot run '", place->second.command, "': ", std::strerror(why));
  }
  ranks_.erase(place);
  send(MessageType::kExited, encode(end));
}

void Agent::begin_ending(Duration grace) {
  grace_ = grace;
  act(ending_.begin(grace, Clock::now()));
}

void Agent::end_rank(const EndRankOrder& order) {
  for (auto& [pid, rank] : ranks_) {
    if (rank.rank != order.rank) continue;
    if (rank.ending.begin(order.grace, Clock::now()) == Ending::Step::kAsk) kill(-pid, SIGTERM);
  }
  act_on_ranks(Clock::now());
}

/// Of those that are to end alone.
void Agent::act_on_ranks(Time now) {
  for (auto& [pid, rank] : ranks_) {
    if (rank.ending.step(now) == Ending::Step::kKill) kill(-pid, SIGKILL);
  }
}

void Agent::act(Ending::Step step) {
  if (step == Ending::Step::kAsk) signal_descendants(SIGTERM);
  if (step == Ending::Step::kKill) signal_descendants(SIGKILL);
}

void Agent::settle() {
  if (launcher_is_there_ && paused_ != (duct_.queued() > kMostQueued)) pause_streams(!paused_);
  // All ranks have ended well, but what they left behind has not: it is asked to, and then made to.
  const bool others_may_come = elastic_ && launcher_is_there_;
  if (started_ && ranks_.empty() && !ending_.has_begun() && !others_may_come) begin_ending(grace_);
  if (!ending_.has_begun() || said_ended_) return;
  if (children_left_ && !ending_.gave_up()) return;
  finish_output();
  said_ended_ = true;
  last_words_ = Deadline::after(kLastWords);
  send(MessageType::kEnded, {});
}

void Agent::finish_output() {
  if (paused_) pause_streams(false);
  // Whoever still holds the other end is none of ours, and its words do not count: what a pipe holds is read, once.
  constexpr int kPipeful = (1 << 20) / kMostOutput;
  while (!streams_.empty()) {
    const uint64_t token = streams_.begin()->first;
    for (int i = 0; i < kPipeful && streams_.contains(token); ++i) read_stream(token);
    if (streams_.contains(token)) close_stream(token);
  }
}

void Agent::pause_streams(bool paused) {
  paused_ = paused;
  for (const auto& [token, stream] : streams_) {
    if (paused) {
      static_cast<void>(poller_.remove(stream.fd.get()));
    } else {
      static_cast<void>(poller_.add(stream.fd.get(), Interest::kRead, token));
    }
  }
}

void Agent::lose_launcher() {
  if (reading_) static_cast<void>(poller_.remove(duct_.read_fd()));
  reading_ = false;
  if (!launcher_is_there_) return;
  launcher_is_there_ = false;
  if (writing_) static_cast<void>(poller_.remove(duct_.write_fd()));
  writing_ = false;
  if (paused_) pause_streams(false);  // Nobody is to be waited for; ranks must not hang in a write.
  if (elastic_ && !ranks_.empty() && !ending_.has_begun()) return go_on_alone();
  begin_ending(grace_);
}

void Agent::go_on_alone() {
  // A launcher that answers has given up on this host: what its ranks would do here nobody counts on.
  if (far_ && store_answers(store_, Deadline::after(kAskStore))) return begin_ending(grace_);
  const std::string words = text("horo agent: the launcher is gone; ", ranks_.size(), " ranks on host ", host_name(),
                                 " go on. Nobody enters the job any more; to end it: kill ", getpid(), "\n");
  if (write(words_.get(), words.data(), words.size()) < 0) return;  // Nobody is there to read it.
}

void Agent::send(MessageType type, std::span<const std::byte> payload) {
  if (!launcher_is_there_) return;
  duct_.send(type, payload);
  flush();
}

void Agent::flush() {
  if (!launcher_is_there_) return;
  if (!duct_.flush().ok()) return lose_launcher();
  const bool waits = duct_.queued() > 0;
  if (waits == writing_) return;
  writing_ = waits;
  const Status changed =
      waits ? poller_.add(duct_.write_fd(), Interest::kWrite, kWriteToken) : poller_.remove(duct_.write_fd());
  if (!changed.ok()) lose_launcher();
}

}  // namespace

int run_agent(const std::vector<std::string>& words) {
  auto agent = Agent::create(words.empty() ? -1 : std::atoi(words[0].c_str()));
  if (agent.ok()) return (*agent)->run();
  std::cerr << "horo agent: " << agent.status().to_string() << '\n';
  return 1;
}

}  // namespace horo::cli::launch
