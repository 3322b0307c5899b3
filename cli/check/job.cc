#include "cli/check/job.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::cli {

namespace {

struct Pipe {
  net::UniqueFd from;
  net::UniqueFd to;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status(Code::kUnavailable, "no descriptors for a pipe");
  return Pipe{net::UniqueFd(ends[0]), net::UniqueFd(ends[1])};
}

constexpr const char* kJob = "self-test";

}  // namespace

Result<std::unique_ptr<CheckJob>> CheckJob::start(const CheckJobOptions& options) {
  std::unique_ptr<CheckJob> job(new CheckJob);
  HORO_ASSIGN(net::Key random, net::Key::random());
  const auto key = std::make_shared<const net::Key>(std::move(random));
  HORO_ASSIGN(job->store_, rendezvous::TcpStoreServer::start(net::Address::loopback(), {.job = kJob, .key = key}));
  HORO_ASSIGN(Pipe stop, make_pipe());
  job->stop_ = std::move(stop.to);
  for (int rank = 0; rank < options.ranks; ++rank) {
    HORO_TRY(job->start_rank(rank, options, *key, job->store_->address().to_string(), stop.from.get()));
  }
  const Deadline deadline = Deadline::after_seconds(20);
  for (int rank = 0; rank < options.ranks; ++rank) {
    HORO_ASSIGN(const RankWord word, job->next_word(rank, deadline));
    if (word.kind != RankWord::Kind::kReady) {
      return Status(Code::kInternal, text("rank ", rank, " did not start: ", word.message));
    }
  }
  return job;
}

Status CheckJob::start_rank(int rank, const CheckJobOptions& options, const net::Key& key, const std::string& store,
                            int stop) {
  HORO_ASSIGN(Pipe secret, make_pipe());
  HORO_ASSIGN(Pipe words, make_pipe());
  if (write(secret.to.get(), key.secret().data(), key.secret().size()) < 0) {
    return Status(Code::kUnavailable, "cannot write into a pipe");
  }
  ProcessOptions process;
  process.arguments = {own_path(), "check-rank", "--report", text(words.to.get())};
  process.keep = {secret.from.get(), words.to.get()};
  if (rank == 0) {
    process.arguments.insert(process.arguments.end(), {"--stop", text(stop)});
    process.keep.push_back(stop);
  }
  if (options.mismatch) process.arguments.push_back("--mismatch");
  if (options.idle) process.arguments.push_back("--idle");
  process.quiet = true;  // What ranks log about the blows they take is not the user's concern here.
  process.environment = {{"HORO_RANK", text(rank)},       {"HORO_SIZE", text(options.ranks)},
                         {"HORO_STORE", store},           {"HORO_JOB_ID", kJob},
                         {"HORO_KEY_FILE", ""},           {"HORO_KEY_FD", text(secret.from.get())},
                         {"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", options.transport},
                         {"HORO_FREEZE_TIMEOUT", "1s"}};
  HORO_ASSIGN(auto started, Process::start(process));
  ranks_.push_back({std::move(started), std::move(words.from), {}});
  return {};
}

CheckJob::~CheckJob() {
  for (Rank& rank : ranks_) rank.process->end();
}

Result<RankWord> CheckJob::next_word(int rank, Deadline deadline) {
  Rank& one = ranks_[static_cast<size_t>(rank)];
  while (one.unread.find('\n') == std::string::npos) {
    HORO_TRY(net::wait_ready(one.words.get(), net::Interest::kRead, deadline, "a word of a rank"));
    char buffer[1024];
    const ssize_t got = read(one.words.get(), buffer, sizeof buffer);
    if (got <= 0) return Status(Code::kPeerLost, text("rank ", rank, " ended without a word"));
    one.unread.append(buffer, static_cast<size_t>(got));
  }
  const size_t end = one.unread.find('\n');
  const auto word = decode_word(one.unread.substr(0, end));
  one.unread.erase(0, end + 1);
  if (!word) return Status(Code::kCorrupt, text("rank ", rank, " spoke nonsense"));
  return *word;
}

std::vector<net::Address> CheckJob::listening() const {
  std::vector<net::Address> all{store_->address()};
  for (int rank = 0; rank < size(); ++rank) {
    const auto more = listening(rank);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::vector<net::Address> CheckJob::listening(int rank) const {
  return listening_sockets(ranks_[static_cast<size_t>(rank)].process->pid());
}

double CheckJob::cpu_seconds(int rank) const {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(ranks_[static_cast<size_t>(rank)].process->pid(), &clock) != 0) return 0;
  if (clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace horo::cli
