// Hosts for tests: network namespaces on one bridge, each with a real sshd that lets this test in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/launcher/launched.h"

namespace horo::test {

/// Host i is 10.78.0.(i+1) and fd78::(i+1), and is called "host-i" in the ssh configuration. Everything (keys,
/// configuration, processes, namespaces) goes with it.
class SshHosts {
 public:
  /// `why` says what is missing when null is returned: root, ip, sshd.
  static std::unique_ptr<SshHosts> create(int count, std::string& why);
  ~SshHosts();
  SshHosts(const SshHosts&) = delete;
  SshHosts& operator=(const SshHosts&) = delete;

  std::string network(int host) const;
  static std::string ipv4(int host) { return "10.78.0." + std::to_string(host + 1); }
  static std::string ipv6(int host) { return "fd78::" + std::to_string(host + 1); }
  /// For --ssh-command: ssh with the configuration of this test.
  std::string ssh_command() const { return "ssh -F " + folder_.file("config"); }
  const TemporaryFolder& folder() const { return folder_; }
  /// Takes a host off the network.
  void cut(int host) const;
  /// The server forgets nothing, the client everything it knew about host keys.
  void forget_host_keys() const;

 private:
  SshHosts() = default;
  bool make_networks(int count);
  bool make_keys();
  bool start_servers();
  void write_client_config() const;

  TemporaryFolder folder_;
  std::string id_;
  int count_ = 0;
  std::vector<std::unique_ptr<Launched>> servers_;
};

}  // namespace horo::test
