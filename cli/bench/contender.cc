#include "cli/bench/contender.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::bench {

namespace {

constexpr double kStartSeconds = 60;
constexpr double kQuitSeconds = 3;

/// A pipe that holds the job's key, for one rank.
Result<net::UniqueFd> pipe_with(const net::Key& key) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status(Code::kUnavailable, "no descriptors for a pipe");
  net::UniqueFd from(ends[0]), to(ends[1]);
  const auto secret = key.secret();
  if (write(to.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    return Status(Code::kUnavailable, "cannot write into a pipe");
  }
  return from;
}

Sample combined(const std::vector<Reply>& replies) {
  Sample sample;
  sample.transport = replies[0].transport;
  sample.algorithm = replies[0].algorithm;
  for (const Reply& reply : replies) {
    sample.cpu_seconds += reply.cpu_seconds;
    sample.total_cpu += reply.total_cpu;
    sample.microseconds.resize(std::max(sample.microseconds.size(), reply.nanoseconds.size()));
    for (size_t i = 0; i < reply.nanoseconds.size(); ++i) {
      sample.microseconds[i] = std::max(sample.microseconds[i], static_cast<double>(reply.nanoseconds[i]) * 1e-3);
    }
  }
  return sample;
}

}  // namespace

Contender::~Contender() {
  for (Rank& rank : ranks_) rank.commands.reset();  // Ranks end when their commands do.
  const Deadline deadline = Deadline::after_seconds(kQuitSeconds);
  for (auto& process : processes_) {
    if (!process->wait(deadline)) process->signal(SIGTERM);
  }
  for (auto& process : processes_) process->wait(Deadline::after_seconds(1));
}

Status Contender::make_pipes(const std::string& folder, int ranks) {
  folder_ = text(folder, "/", name_);
  std::replace(folder_.begin(), folder_.end(), ' ', '-');
  std::error_code error;
  std::filesystem::create_directory(folder_, error);
  for (int rank = 0; rank < ranks; ++rank) {
    Rank one;
    for (const char* kind : {"commands", "replies"}) {
      const std::string path = text(folder_, "/", kind, ".", rank);
      if (mkfifo(path.c_str(), 0600) != 0) {
        return Status(Code::kUnavailable, text("cannot make the pipe ", path, ": ", std::strerror(errno)));
      }
      // Opened for both directions, so that neither side waits for the other here. Replies are reopened below.
      const bool commands = kind[0] == 'c';
      const int flags = commands ? O_RDWR : O_RDONLY | O_NONBLOCK;
      (commands ? one.commands : one.replies) = net::UniqueFd(open(path.c_str(), flags | O_CLOEXEC));
    }
    ranks_.push_back(std::move(one));
  }
  return {};
}

Status Contender::spawn(const cli::ProcessOptions& options) {
  HORO_ASSIGN(auto process, cli::Process::start(options));
  processes_.push_back(std::move(process));
  return {};
}

Result<std::unique_ptr<Contender>> Contender::start_horo(const Field& field) {
  std::unique_ptr<Contender> made(new Contender(field.variant.empty() ? "horo" : text("horo ", field.variant)));
  HORO_TRY(made->make_pipes(field.folder, field.ranks));
  HORO_TRY(made->start_ranks(field));
  HORO_TRY(made->await_ready(Deadline::after_seconds(kStartSeconds)));
  return made;
}

Status Contender::start_ranks(const Field& field) {
  const std::string job = cli::unique_name("bench-") + field.variant;
  HORO_ASSIGN(net::Key random, net::Key::random());
  const auto key = std::make_shared<const net::Key>(std::move(random));
  std::string store;
  if (field.network == nullptr) {
    HORO_ASSIGN(store_, rendezvous::TcpStoreServer::start(net::Address::loopback(), {.job = job, .key = key}));
    store = store_->address().to_string();
  } else {
    // Nobody else is in there; rank 0 serves the store. Variants have ports of their own.
    store = text(field.network->host(0).address, ":", 29400 + field.number);
  }
  for (int rank = 0; rank < field.ranks; ++rank) {
    HORO_ASSIGN(const net::UniqueFd secret, pipe_with(*key));
    cli::ProcessOptions options;
    options.arguments = {cli::own_path(), "bench-rank", folder_};
    options.keep = {secret.get()};
    options.environment = {{"HORO_RANK", text(rank)}, {"HORO_SIZE", text(field.ranks)},
                           {"HORO_STORE", store},     {"HORO_JOB_ID", job},
                           {"HORO_KEY_FILE", ""},     {"HORO_KEY_FD", text(secret.get())},
                           {"OMP_NUM_THREADS", "1"},  {"HORO_INTERFACE", "127.0.0.1"}};
    const size_t equals = field.variant.find('=');
    if (equals != std::string::npos) {
      options.environment[field.variant.substr(0, equals)] = field.variant.substr(equals + 1);
    }
    if (field.transport != "auto") options.environment["HORO_TRANSPORT"] = field.transport;
    if (field.network != nullptr) {
      const Host& host = field.network->host_of(rank, field.ranks);
      options.network_namespace = host.descriptor.get();
      options.environment["HORO_INTERFACE"] = host.address;
    }
    HORO_TRY(spawn(options));
  }
  return {};
}

Result<std::unique_ptr<Contender>> Contender::start_peer(const std::string& name, const Field& field) {
  const std::string program = text(cli::own_folder(), "/horo_peer_", name);
  if (access(program.c_str(), X_OK) != 0) {
    return Status(Code::kNotFound, text("there is no ", program,
                                        ": its development package was absent when horo was "
                                        "built, or horo was built without -DHORO_BENCH=ON"));
  }
  std::unique_ptr<Contender> made(new Contender(name));
  HORO_TRY(made->make_pipes(field.folder, field.ranks));
  cli::ProcessOptions options;
  options.arguments = {program, "launch", made->folder_, text(field.ranks)};
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  options.death_signal = SIGTERM;
  options.quiet = !field.verbose;
  if (field.transport == "tcp") options.arguments.push_back("--tcp");
  if (field.oversubscribed) options.arguments.push_back("--yield");
  if (field.network != nullptr) {
    for (int host = 0; host < field.network->hosts(); ++host) {
      options.arguments.insert(options.arguments.end(),
                               {"--host", field.network->host(host).name_space, field.network->host(host).address});
    }
  }
  HORO_TRY(made->spawn(options));
  HORO_TRY(made->await_ready(Deadline::after_seconds(kStartSeconds)));
  return made;
}

Status Contender::await_ready(Deadline deadline) {
  HORO_ASSIGN(const auto ready, replies(deadline));
  for (const Reply& reply : ready) {
    if (reply.kind != Reply::Kind::kOk) return Status(Code::kUnavailable, text(name_, ": ", reply.message));
  }
  transport_ = ready[0].transport;
  return {};
}

std::string Contender::ended_children() {
  std::string list;
  for (auto& process : processes_) {
    const auto code = process->wait(Deadline::after_seconds(0));
    if (code) list += text(list.empty() ? "" : ", ", "process ", process->pid(), " ended with ", *code);
  }
  return list.empty() ? "all its processes still run" : list;
}

Result<std::vector<Reply>> Contender::replies(Deadline deadline) {
  std::vector<Reply> all(ranks_.size());
  std::vector<bool> arrived(ranks_.size());
  for (size_t left = ranks_.size(); left > 0;) {
    std::vector<net::PollItem> items(ranks_.size());
    for (size_t i = 0; i < items.size(); ++i) items[i].fd = arrived[i] ? -1 : ranks_[i].replies.get();
    // A rank that ends without a word shows here within a tick, and not at the deadline.
    HORO_ASSIGN(const size_t ready, net::poll_many(items, deadline.earlier(Deadline::after_seconds(1))));
    if (ready == 0 && (deadline.expired() || ended_children().find("ended") != std::string::npos)) {
      return Status(Code::kTimeout, text(name_, " does not answer: ", ended_children()));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      if (!items[i].readable && !items[i].hung_up) continue;
      char buffer[4096];
      const ssize_t got = read(ranks_[i].replies.get(), buffer, sizeof buffer);
      if (got == 0) return Status(Code::kPeerLost, text("rank ", i, " of ", name_, " is gone: ", ended_children()));
      if (got > 0) ranks_[i].unread.append(buffer, static_cast<size_t>(got));
      const size_t end = ranks_[i].unread.find('\n');
      if (end == std::string::npos) continue;
      HORO_ASSIGN(all[i], decode_reply(ranks_[i].unread.substr(0, end)));
      ranks_[i].unread.erase(0, end + 1);
      arrived[i] = true;
      --left;
    }
  }
  return all;
}

Result<Sample> Contender::measure(const Command& command, Deadline deadline) {
  const std::string line = encode(command) + "\n";
  for (const Rank& rank : ranks_) {
    if (write(rank.commands.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      return Status(Code::kPeerLost, text("cannot tell ", name_, " what to measure"));
    }
  }
  HORO_ASSIGN(const auto answers, replies(deadline));
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    const Reply& reply = answers[rank];
    if (reply.kind == Reply::Kind::kUnsupported) return Status(Code::kUnavailable, reply.message);
    if (reply.kind == Reply::Kind::kError) {
      return Status(Code::kInternal, text("rank ", rank, " of ", name_, ": ", reply.message));
    }
  }
  return combined(answers);
}

}  // namespace horo::bench
