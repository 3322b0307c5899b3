// Starts the ranks of an example on this machine. In a real job the launcher does this.
//
// A rank is an ordinary process with a few variables: HORO_RANK and HORO_SIZE say who it is, HORO_STORE where the ranks
// meet (rank 0 serves there), HORO_KEY_FD where it reads the job's key. The key is 32 random bytes that never appear in
// a command line, a variable or a file.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace example {

/// Whether somebody started this process as a rank of a job.
inline bool is_rank() { return std::getenv("HORO_RANK") != nullptr; }

inline int usable_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// How many other processes want to run, on average over the last minute. Asked before the ranks are busy.
inline double machine_load() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

[[noreturn]] inline void system_failure(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// A port of the loopback address that nobody listens at. Somebody may take it before rank 0 does: then the job fails,
/// because whoever that is does not have the key.
inline int free_port() {
  const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_fd < 0) system_failure("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = bind(socket_fd, generic, length) == 0 && getsockname(socket_fd, generic, &length) == 0;
  close(socket_fd);
  if (!bound) system_failure("finding a free port");
  return ntohs(address.sin_port);
}

using Key = std::array<char, 32>;

/// A descriptor that the key can be read from once.
inline int key_pipe(const Key& key) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) system_failure("pipe");
  if (write(ends[1], key.data(), key.size()) != static_cast<ssize_t>(key.size())) system_failure("writing the key");
  close(ends[1]);
  return ends[0];
}

/// This program again, with the same arguments, as one rank.
inline pid_t start_rank(int rank, int size, const std::string& store, const Key& key, char** argv) {
  const int key_fd = key_pipe(key);
  const std::string job = "example-" + std::to_string(getpid());
  const pid_t child = fork();
  if (child < 0) system_failure("fork");
  if (child > 0) {
    close(key_fd);
    return child;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // No rank outlives whoever started it.
  fcntl(key_fd, F_SETFD, 0);         // This one goes through exec; horo closes it once it is read.
  setenv("HORO_RANK", std::to_string(rank).c_str(), 1);
  setenv("HORO_SIZE", std::to_string(size).c_str(), 1);
  setenv("HORO_STORE", store.c_str(), 1);
  setenv("HORO_JOB_ID", job.c_str(), 1);
  setenv("HORO_KEY_FD", std::to_string(key_fd).c_str(), 1);
  unsetenv("HORO_KEY_FILE");
  setenv("HORO_INTERFACE", "127.0.0.1", 0);
  execv("/proc/self/exe", argv);
  std::perror("starting a rank");
  _exit(127);
}

enum class OnLoss { kEndAll, kGoOn };

/// Waits for all. The exit code of each; negative: the signal that ended it. With kEndAll the first that fails ends the
/// others.
inline std::vector<int> wait_for_ranks(std::vector<pid_t> pids, OnLoss on_loss) {
  std::vector<int> codes(pids.size());
  for (size_t left = pids.size(); left > 0; --left) {
    int state = 0;
    pid_t ended;
    do {
      ended = waitpid(-1, &state, 0);
    } while (ended < 0 && errno == EINTR);
    if (ended < 0) system_failure("waitpid");
    const auto rank = static_cast<size_t>(std::find(pids.begin(), pids.end(), ended) - pids.begin());
    codes.at(rank) = WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
    pids[rank] = 0;
    if (codes[rank] == 0 || on_loss == OnLoss::kGoOn) continue;
    on_loss = OnLoss::kGoOn;  // Once is enough.
    std::fprintf(stderr, "rank %zu ended with %d; ending the others\n", rank, codes[rank]);
    for (const pid_t other : pids) {
      if (other > 0) kill(other, SIGTERM);
    }
  }
  return codes;
}

/// Runs this program as `size` ranks and waits for them. See wait_for_ranks() for what it returns.
inline std::vector<int> run_ranks(int size, char** argv, OnLoss on_loss = OnLoss::kEndAll) {
  Key key;
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) system_failure("getrandom");
  const std::string store = "127.0.0.1:" + std::to_string(free_port());
  std::fflush(nullptr);  // Or the children would print what is still buffered too.
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) pids.push_back(start_rank(rank, size, store, key, argv));
  return wait_for_ranks(std::move(pids), on_loss);
}

/// For main(): 0 if all ranks ended with 0.
inline int exit_code(const std::vector<int>& codes) {
  return std::all_of(codes.begin(), codes.end(), [](int code) { return code == 0; }) ? 0 : 1;
}

}  // namespace example
