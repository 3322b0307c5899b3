// How a peer's ranks come to life: `horo_peer_NAME launch FOLDER RANKS [--tcp] [--yield] [--host NAMESPACE ADDRESS]...`
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace horo::bench {

struct PeerHost {
  std::string name_space;
  std::string address;
};

struct Launch {
  std::string folder;
  int ranks = 1;
  bool tcp = false;
  bool yield = false;
  std::vector<PeerHost> hosts;  ///< Empty: all on this one.

  /// Ranks fill one host after the other, evenly. Null: this host.
  const PeerHost* host_of(int rank) const {
    return hosts.empty() ? nullptr : &hosts[static_cast<size_t>(rank) * hosts.size() / static_cast<size_t>(ranks)];
  }
};

/// From the words behind "launch". Ends the program with a message when they are wrong.
inline Launch read_launch(const std::vector<std::string>& words) {
  Launch launch;
  launch.folder = words.at(0);
  launch.ranks = std::stoi(words.at(1));
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "--tcp") launch.tcp = true;
    if (words[i] == "--yield") launch.yield = true;
    if (words[i] != "--host") continue;
    launch.hosts.push_back({words.at(i + 1), words.at(i + 2)});
    i += 2;
  }
  return launch;
}

/// Forks the ranks, which end with this process at the latest, and waits for them. The exit code.
template <class RunRank>
int fork_ranks(const Launch& launch, const RunRank& run_rank) {
  const pid_t parent = getpid();
  for (int rank = 0; rank < launch.ranks; ++rank) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    _exit(run_rank(rank));
  }
  int worst = 0;
  for (int status = 0; wait(&status) > 0;) worst = status != 0 ? 1 : worst;
  return worst;
}

}  // namespace horo::bench
