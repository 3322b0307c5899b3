#include "tests/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

#include "horo/base/text.h"

namespace horo::test {

namespace {

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

}  // namespace

TwoHosts::TwoHosts() {
  for (int host = 0; host < 2; ++host) names_[host] = text("horo-", getpid(), host == 0 ? "x" : "y");
  made_ = run("ip netns add " + names_[0]) && run("ip netns add " + names_[1]) &&
          run(text("ip link add v0 netns ", names_[0], " type veth peer name v0 netns ", names_[1]));
  for (int host = 0; made_ && host < 2; ++host) {
    const std::string in = text("ip -n ", names_[host], " ");
    made_ = run(text(in, "addr add 10.77.0.", host + 1, "/24 dev v0")) && run(in + "link set v0 up") &&
            run(in + "link set lo up");
  }
}

TwoHosts::~TwoHosts() {
  for (const std::string& name : names_) run("ip netns del " + name);
}

bool TwoHosts::cut() const { return run(text("ip -n ", names_[0], " link set v0 down")); }
bool TwoHosts::mend() const { return run(text("ip -n ", names_[0], " link set v0 up")); }

bool TwoHosts::enter(int host) const {
  const int fd = open(text("/run/netns/", names_[host]).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  if (fd >= 0) close(fd);
  return entered;
}

}  // namespace horo::test
