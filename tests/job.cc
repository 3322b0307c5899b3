#include "tests/job.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "horo/base/text.h"
#include "horo/engine/knobs.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/knobs.h"

/// Asked by ThreadSanitizer at the start: ranks are forked, and start threads.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
const char* __tsan_default_options() { return "die_after_fork=0"; }

/// Of LeakSanitizer, where it is built in: 1 when it finds a leak.
extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

namespace horo::test {

namespace {

int tell_fd = -1;  // Of a rank: the pipe to its test.

std::string read_all(int fd) {
  std::string words;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) > 0;) words.append(buffer, static_cast<size_t>(got));
  return words;
}

using KeyBytes = std::array<std::byte, net::Key::kBytes>;

std::shared_ptr<const net::Key> key_of(const std::optional<KeyBytes>& bytes) {
  auto key = bytes ? net::Key::from_bytes(*bytes) : net::Key::none();
  HORO_CHECK(key.ok(), key.status().to_string());
  return std::make_shared<const net::Key>(std::move(*key));
}

/// The store belongs to the namespace that it is started in; the calling thread comes back to its own.
Result<std::unique_ptr<rendezvous::TcpStoreServer>> start_store(const JobOptions& options,
                                                                const std::optional<KeyBytes>& key_bytes) {
  const rendezvous::TcpStoreOptions store{.job = "test", .key = key_of(key_bytes)};
  if (options.store_at.empty()) return rendezvous::TcpStoreServer::start(net::Address::loopback(), store);
  HORO_ASSIGN(net::Address at, net::Address::parse(options.store_at));
  const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (home < 0 || !options.enter(0)) return Status(Code::kUnavailable, "cannot enter the store's namespace");
  auto server = rendezvous::TcpStoreServer::start(at, store);
  HORO_CHECK(setns(home, CLONE_NEWNET) == 0, "no way back from the store's namespace");
  close(home);
  return server;
}

int run_rank(int rank, const JobOptions& options, const Part& part, int start_fd,
             const std::optional<KeyBytes>& key_bytes) {
  if (options.enter && !options.enter(rank)) return 89;
  const std::string store = read_all(start_fd);  // Ends when the test has written the address.
  close(start_fd);
  Environment::Variables variables(options.environment.begin(), options.environment.end());
  if (options.per_rank) {
    for (const auto& [name, value] : options.per_rank(rank)) variables[name] = value;
  }
  // A Key does not survive fork: its page is wiped in the child.
  const auto key = key_bytes ? key_of(key_bytes) : nullptr;
  auto engine_options = options_of_rank(rank, options.ranks, Environment(variables), store, key);
  if (!engine_options.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", rank, engine_options.status().to_string().c_str());
    return 90;
  }
  return part(std::move(*engine_options));
}

}  // namespace

void tell(const std::string& words) {
  if (write(tell_fd, words.data(), words.size()) != static_cast<ssize_t>(words.size())) std::perror("tell");
}

void tell_log() { dup2(tell_fd, STDERR_FILENO); }

Hold::Hold() {
  int ends[2];
  HORO_CHECK(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
  read_ = ends[0];
  write_ = ends[1];
}

Hold::~Hold() {
  let_go();
  close(read_);
}

void Hold::let_go() {
  if (write_ >= 0) close(std::exchange(write_, -1));
}

void Hold::take_part() { let_go(); }

bool Hold::wait(Deadline deadline) {
  pollfd item{read_, POLLIN, 0};
  int ready = 0;
  while ((ready = poll(&item, 1, deadline.poll_milliseconds())) < 0 && errno == EINTR) {
  }
  return ready > 0;
}

Result<group::EngineOptions> options_of_rank(int rank, int size, const Environment& environment,
                                             const std::string& store, std::shared_ptr<const net::Key> key) {
  HORO_ASSIGN(Config config, Config::read({group::kKnobs, rendezvous::kKnobs, engine::kKnobs}, environment));
  group::EngineOptions options{.rank = rank, .size = size, .job = "test", .key = key, .config = config};
  HORO_ASSIGN(net::Address address, net::Address::parse(store));
  if (!key) key = key_of(std::nullopt);
  HORO_ASSIGN(options.store,
              rendezvous::TcpStore::connect(address, {.job = "test", .key = key}, Deadline::after_seconds(20)));
  return options;
}

Result<std::unique_ptr<Job>> Job::start(const JobOptions& options, const Body& body) {
  return start_part(options, [&body](group::EngineOptions engine_options) {
    const int rank = engine_options.rank;
    auto engine = group::Engine::start(std::move(engine_options));
    if (!engine.ok()) {
      tell(engine.status().to_string());
      std::fprintf(stderr, "rank %d: %s\n", rank, engine.status().to_string().c_str());
      return 91;
    }
    return body(**engine);
  });
}

Result<std::unique_ptr<Job>> Job::start_part(const JobOptions& options, const Part& part) {
  std::unique_ptr<Job> job(new Job);
  std::optional<KeyBytes> key_bytes;
  if (options.with_key) {
    HORO_ASSIGN(net::Key random, net::Key::random());
    key_bytes.emplace();
    std::copy(random.secret().begin(), random.secret().end(), key_bytes->begin());
  }
  std::fflush(nullptr);  // Or every rank would print what the test has not printed yet.
  std::vector<int> starts;
  for (int rank = 0; rank < options.ranks; ++rank) {
    int start[2], told[2];
    if (pipe2(start, O_CLOEXEC) != 0 || pipe2(told, O_CLOEXEC) != 0) return Status(Code::kUnavailable, "no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (int fd : starts) close(fd);
      close(start[1]);
      close(told[0]);
      tell_fd = told[1];
      int code = run_rank(rank, options, part, start[0], key_bytes);
      // _exit() looks for no leaks. A rank that fails need not have put everything away.
      if (code == 0 && __lsan_do_recoverable_leak_check) code = __lsan_do_recoverable_leak_check();
      std::fflush(nullptr);
      _exit(code);
    }
    close(start[0]);
    close(told[1]);
    if (pid < 0) return Status(Code::kUnavailable, "cannot fork");
    starts.push_back(start[1]);
    job->pids_.push_back(pid);
    job->codes_.emplace_back();
    job->told_.push_back(told[0]);
    job->unread_.emplace_back();
  }
  // Threads only from here on: the children are forked.
  HORO_ASSIGN(job->store_, start_store(options, key_bytes));
  const std::string address =
      options.store_through ? options.store_through(job->store_->address()) : job->store_->address().to_string();
  for (int fd : starts) {
    if (write(fd, address.data(), address.size()) != static_cast<ssize_t>(address.size())) std::perror("start");
    close(fd);
  }
  return job;
}

Job::~Job() {
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    if (codes_[rank]) continue;
    kill(pids_[rank], SIGKILL);
    waitpid(pids_[rank], nullptr, 0);
  }
  for (int fd : told_) close(fd);
}

void Job::signal(int rank, int number) const { kill(pid(rank), number); }

Result<std::vector<int>> Job::wait(Deadline deadline) {
  std::vector<int> codes;
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    while (!codes_[rank]) {
      int status = 0;
      if (waitpid(pids_[rank], &status, WNOHANG) == pids_[rank]) {
        codes_[rank] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
        break;
      }
      if (deadline.expired()) {
        return Status(Code::kTimeout, text("rank ", rank, " (pid ", pids_[rank], ") still runs"));
      }
      // No child to wait for with a deadline: SIGCHLD is blocked in the test program and waited for here.
      sigset_t child;
      sigemptyset(&child);
      sigaddset(&child, SIGCHLD);
      const timespec slice{0, 20'000'000};
      sigtimedwait(&child, nullptr, &slice);
    }
    codes.push_back(*codes_[rank]);
  }
  return codes;
}

std::string Job::told(int rank) {
  return std::exchange(unread_[static_cast<size_t>(rank)], {}) + read_all(told_[static_cast<size_t>(rank)]);
}

Result<std::string> Job::next_line(int rank, Deadline deadline) {
  std::string& unread = unread_[static_cast<size_t>(rank)];
  while (true) {
    if (const size_t end = unread.find('\n'); end != std::string::npos) {
      std::string line = unread.substr(0, end);
      unread.erase(0, end + 1);
      return line;
    }
    pollfd item{told_[static_cast<size_t>(rank)], POLLIN, 0};
    if (poll(&item, 1, deadline.poll_milliseconds()) == 0) {
      return Status(Code::kTimeout, text("rank ", rank, " (pid ", pid(rank), ") said nothing in time"));
    }
    char buffer[4096];
    const ssize_t got = read(item.fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status(Code::kStopped, text("rank ", rank, " said no more than \"", unread, "\""));
    unread.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace horo::test
