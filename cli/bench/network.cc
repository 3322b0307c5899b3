#include "cli/bench/network.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "horo/base/text.h"

namespace horo::bench {

namespace {

using Words = std::vector<std::string>;

constexpr const char* kPort = "eth0";  // Of every host.

Status ip(Words words) {
  words.insert(words.begin(), "ip");
  return cli::run_command(words, Deadline::after_seconds(10));
}

Result<Host> make_host(const std::string& name_space, const std::string& address, cli::Janitor& janitor) {
  janitor.will_make_namespace(name_space);
  HORO_TRY(ip({"netns", "add", name_space}));
  HORO_TRY(ip({"-n", name_space, "link", "set", "lo", "up"}));
  Host host{.name_space = name_space, .address = address, .descriptor = {}};
  const std::string path = "/run/netns/" + name_space;
  host.descriptor = net::UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!host.descriptor.valid()) {
    return Status(Code::kUnavailable, text("cannot open ", path, ": ", std::strerror(errno)));
  }
  return host;
}

Status plug_in(const Host& host) {
  HORO_TRY(ip({"-n", host.name_space, "address", "add", host.address + "/24", "dev", kPort}));
  return ip({"-n", host.name_space, "link", "set", kPort, "up"});
}

/// More than two hosts meet at a bridge in a namespace of its own.
Status join_at_bridge(const std::vector<Host>& hosts, const std::string& middle, cli::Janitor& janitor) {
  HORO_ASSIGN(const Host bridge, make_host(middle, "", janitor));
  HORO_TRY(ip({"-n", middle, "link", "add", "bridge", "type", "bridge"}));
  HORO_TRY(ip({"-n", middle, "link", "set", "bridge", "up"}));
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string port = text("port", i);
    HORO_TRY(
        ip({"-n", middle, "link", "add", port, "type", "veth", "peer", "name", kPort, "netns", hosts[i].name_space}));
    HORO_TRY(ip({"-n", middle, "link", "set", port, "master", "bridge", "up"}));
    HORO_TRY(plug_in(hosts[i]));
  }
  return {};
}

Status join_directly(const Host& one, const Host& other) {
  HORO_TRY(ip(
      {"-n", one.name_space, "link", "add", kPort, "type", "veth", "peer", "name", kPort, "netns", other.name_space}));
  HORO_TRY(plug_in(one));
  return plug_in(other);
}

}  // namespace

std::vector<std::string> shaping(const std::string& name_space, uint64_t bits_per_second) {
  constexpr uint64_t kTicksPerSecond = 250;
  const uint64_t burst = std::max<uint64_t>(256 << 10, bits_per_second / 8 / kTicksPerSecond * 5 / 4);
  return {"tc",
          "-n",
          name_space,
          "qdisc",
          "add",
          "dev",
          kPort,
          "root",
          "tbf",
          "rate",
          text(bits_per_second, "bit"),
          "burst",
          text(burst),
          "latency",
          "20ms"};
}

Result<std::unique_ptr<Network>> Network::make(const NetworkOptions& options, cli::Janitor& janitor) {
  if (geteuid() != 0) {
    return Status(Code::kUnavailable,
                  "hosts are network namespaces, which only root can make: run it as root, or "
                  "leave out --hosts");
  }
  std::unique_ptr<Network> network(new Network);
  const std::string prefix = cli::unique_name("horo-");
  for (int i = 0; i < options.hosts; ++i) {
    HORO_ASSIGN(Host host, make_host(text(prefix, "-", i), text("10.77.0.", i + 1), janitor));
    network->hosts_.push_back(std::move(host));
  }
  if (options.hosts == 2) {
    HORO_TRY(join_directly(network->hosts_[0], network->hosts_[1]));
  } else {
    HORO_TRY(join_at_bridge(network->hosts_, prefix + "-bridge", janitor));
  }
  if (options.bits_per_second > 0) {
    for (const Host& host : network->hosts_) {
      HORO_TRY(cli::run_command(shaping(host.name_space, options.bits_per_second), Deadline::after_seconds(10)));
    }
  }
  return network;
}

}  // namespace horo::bench
