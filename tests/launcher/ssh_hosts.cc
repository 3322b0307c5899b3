#include "tests/launcher/ssh_hosts.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "horo/base/text.h"

namespace horo::test {

namespace {

constexpr int kPort = 2222;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// sshd wants to be started by its full path.
std::string sshd_path() {
  for (const char* path : {"/usr/sbin/sshd", "/sbin/sshd", "/usr/local/sbin/sshd"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return {};
}

}  // namespace

std::unique_ptr<SshHosts> SshHosts::create(int count, std::string& why) {
  why = geteuid() != 0                  ? "network namespaces and sshd need root"
        : !run("command -v ip")         ? "the ip program (iproute2) is not installed"
        : !run("command -v ssh-keygen") ? "ssh (openssh-client) is not installed"
        : sshd_path().empty()           ? "sshd (openssh-server) is not installed"
                                        : "";
  if (!why.empty()) return nullptr;
  std::unique_ptr<SshHosts> hosts(new SshHosts());
  hosts->id_ = text("horo-", getpid(), "-");
  hosts->count_ = count;
  if (!hosts->make_networks(count)) why = "network namespaces cannot be made here";
  if (why.empty() && !hosts->make_keys()) why = "no keys for ssh could be made";
  if (why.empty() && !hosts->start_servers()) why = "sshd does not start";
  if (!why.empty()) return nullptr;
  hosts->write_client_config();
  return hosts;
}

SshHosts::~SshHosts() {
  for (const auto& server : servers_) {
    server->signal(SIGTERM);
    server->wait(Deadline::after_seconds(5));
  }
  for (int host = 0; host < count_; ++host) run("ip netns del " + network(host));
  run(text("ip netns del ", id_, "bridge"));
}

std::string SshHosts::network(int host) const { return text(id_, host); }

bool SshHosts::make_networks(int count) {
  // The bridge lives in a namespace too, so that nothing of the machine's own network is touched.
  const std::string bridge = id_ + "bridge";
  bool made = run("ip netns add " + bridge) && run(text("ip -n ", bridge, " link add br0 type bridge")) &&
              run(text("ip -n ", bridge, " link set br0 up"));
  for (int host = 0; made && host < count; ++host) {
    const std::string name = network(host);
    const std::string in = text("ip -n ", name, " ");
    made = run("ip netns add " + name) &&
           run(text("ip link add eth", host, " netns ", name, " type veth peer name p", host, " netns ", bridge)) &&
           run(text("ip -n ", bridge, " link set p", host, " master br0 up")) &&
           run(text(in, "addr add ", ipv4(host), "/24 dev eth", host)) &&
           run(text(in, "addr add ", ipv6(host), "/64 dev eth", host, " nodad")) &&
           run(text(in, "link set eth", host, " up")) && run(in + "link set lo up");
  }
  return made;
}

bool SshHosts::make_keys() {
  return run(text("ssh-keygen -q -t ed25519 -N '' -f ", folder_.file("client"))) &&
         run(text("ssh-keygen -q -t ed25519 -N '' -f ", folder_.file("server")));
}

bool SshHosts::start_servers() {
  mkdir("/run/sshd", 0755);  // sshd insists on it.
  chmod(folder_.path().c_str(), 0755);
  folder_.write("authorized_keys", line_of(folder_.file("client.pub")) + "\n", 0600);
  for (int host = 0; host < count_; ++host) {
    const std::string config = folder_.write(
        text("sshd_config-", host),
        text("Port ", kPort, "\nHostKey ", folder_.file("server"), "\nAuthorizedKeysFile ",
             folder_.file("authorized_keys"), "\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
             "PermitRootLogin yes\nStrictModes no\nUsePAM no\nUseDNS no\nPidFile ", folder_.file(text("pid-", host)),
             "\nMaxStartups 100\nLogLevel ERROR\n"));
    servers_.push_back(std::make_unique<Launched>(
        Launched::Options{.words = {sshd_path(), "-D", "-e", "-f", config}, .network = network(host)}));
    const std::string probe = text("ip netns exec ", network(host), " ssh-keyscan -T 1 -p ", kPort, " ", ipv4(host),
                                   " 2>/dev/null | grep -q ed25519");
    if (!eventually([&] { return run(probe); }, Deadline::after_seconds(10))) return false;
  }
  return true;
}

void SshHosts::write_client_config() const {
  std::string known;
  const std::string key = line_of(folder_.file("server.pub"));
  std::string config;
  for (int host = 0; host < count_; ++host) {
    for (const std::string& address : {ipv4(host), ipv6(host)})
      known += text("[", address, "]:", kPort, " ", key, "\n");
    config += text("Host host-", host, "\n  HostName ", ipv4(host), "\n");
  }
  config += text("Host *\n  Port ", kPort, "\n  IdentityFile ", folder_.file("client"),
                 "\n  IdentitiesOnly yes\n  UserKnownHostsFile ", folder_.file("known_hosts"),
                 "\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n");
  folder_.write("config", config);
  folder_.write("known_hosts", known);
}

void SshHosts::forget_host_keys() const { folder_.write("known_hosts", ""); }

void SshHosts::cut(int host) const { run(text("ip -n ", network(host), " link set eth", host, " down")); }

}  // namespace horo::test
