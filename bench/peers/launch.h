// How a peer's ranks come to life: `horo_peer_NAME launch FOLDER RANKS [--tcp] [--yield] [--host NAMESPACE ADDRESS]...`
#pragma once

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

}  // namespace horo::bench
