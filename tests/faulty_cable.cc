#include "tests/faulty_cable.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "horo/base/text.h"
#include "horo/net/system_error.h"

namespace horo::test {

namespace {

constexpr size_t kMostFrame = 9 << 10;
constexpr size_t kEthernet = 14;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

bool enter_namespace(const std::string& name) {
  const net::UniqueFd fd(open(text("/run/netns/", name).c_str(), O_RDONLY | O_CLOEXEC));
  return fd && setns(fd.get(), CLONE_NEWNET) == 0;
}

/// The kernel would hand on segments of 64 KiB, which no frame holds, for hardware to cut up.
bool keep_packets_small(int socket, const std::string& device) {
  for (uint32_t what : {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO}) {
    ethtool_value value{what, 0};
    ifreq request{};
    std::memcpy(request.ifr_name, device.c_str(), std::min<size_t>(device.size(), IFNAMSIZ - 1));
    request.ifr_data = reinterpret_cast<char*>(&value);
    if (ioctl(socket, SIOCETHTOOL, &request) != 0) return false;
  }
  return true;
}

Result<net::UniqueFd> packets_of(const std::string& device) {
  net::UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  if (!fd) return net::system_error("a socket for packets", errno);
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ETH_P_ALL);
  at.sll_ifindex = static_cast<int>(if_nametoindex(device.c_str()));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return net::system_error(device, errno);
  const int bytes = 8 << 20;
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  return fd;
}

uint32_t number(const uint8_t* at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}

void put_number(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

/// The sum of RFC 1071, to be continued or folded.
uint32_t sum_of(const uint8_t* at, size_t bytes, uint32_t sum = 0) {
  for (; bytes > 1; at += 2, bytes -= 2) sum += number(at, 2);
  return bytes == 1 ? sum + (uint32_t{*at} << 8) : sum;
}
uint32_t folded(uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return ~sum & 0xFFFF;
}

}  // namespace

/// Where things are in a frame with TCP over IPv4.
struct FaultyCable::Segment {
  uint8_t* ip = nullptr;
  uint8_t* tcp = nullptr;
  size_t header = 0;   ///< Bytes of the TCP header.
  size_t payload = 0;  ///< Bytes behind it.

  /// Without `ip`: something else.
  static Segment in(std::vector<uint8_t>& frame) {
    Segment found;
    uint8_t* ip = frame.data() + kEthernet;
    if (frame.size() < kEthernet + 40 || number(frame.data() + 12, 2) != ETHERTYPE_IP || ip[9] != IPPROTO_TCP) {
      return found;
    }
    const size_t ip_header = size_t{ip[0] & 15u} * 4, total = number(ip + 2, 2);
    if (kEthernet + total > frame.size() || total < ip_header + 20) return found;
    found.tcp = ip + ip_header;
    found.header = size_t{found.tcp[12]} / 16 * 4;
    if (total < ip_header + found.header) return {};
    found.ip = ip;
    found.payload = total - ip_header - found.header;
    return found;
  }
  void make_checksums_right() const {
    const size_t bytes = header + payload;
    put_number(ip + 10, 0);
    put_number(ip + 10, folded(sum_of(ip, static_cast<size_t>(tcp - ip))));
    put_number(tcp + 16, 0);
    const uint32_t pseudo = sum_of(ip + 12, 8, IPPROTO_TCP + static_cast<uint32_t>(bytes));
    put_number(tcp + 16, folded(sum_of(tcp, bytes, pseudo)));
  }
  std::array<uint8_t, 12> connection() const {
    std::array<uint8_t, 12> key;
    std::memcpy(key.data(), ip + 12, 8);
    std::memcpy(key.data() + 8, tcp, 4);
    return key;
  }
};

FaultyCable::FaultyCable() {
  for (int i = 0; i < 3; ++i) names_[i] = text("horo-", getpid(), "f", i);
  made_ = true;
  for (const std::string& name : names_) made_ = made_ && run("ip netns add " + name);
  for (int host = 0; made_ && host < 2; ++host) {
    const std::string in = text("ip -n ", names_[host], " "), between = text("ip -n ", names_[2], " ");
    made_ = run(text("ip link add v0 netns ", names_[host], " type veth peer name m", host, " netns ", names_[2])) &&
            run(text(in, "addr add 10.78.0.", host + 1, "/24 dev v0")) && run(in + "link set v0 up") &&
            run(in + "link set lo up") && run(text(between, "link set m", host, " up"));
  }
}

FaultyCable::~FaultyCable() {
  thread_ = Thread();
  for (const std::string& name : names_) run("ip netns del " + name);
}

bool FaultyCable::enter(int host) const {
  if (!enter_namespace(names_[host])) return false;
  const net::UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return keep_packets_small(any.get(), "v0");
}

Status FaultyCable::start(uint64_t seed) {
  random_.seed(seed);
  const net::UniqueFd home(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!home || !enter_namespace(names_[2])) return {Code::kUnavailable, "cannot enter the namespace of the cable"};
  Status status;
  for (int host = 0; host < 2 && status.ok(); ++host) {
    auto fd = packets_of(text("m", host));
    status = fd.status();
    if (fd.ok()) ends_[host] = std::move(*fd);
  }
  HORO_CHECK(setns(home.get(), CLONE_NEWNET) == 0, "no way back from the namespace of the cable");
  HORO_TRY(status);
  HORO_ASSIGN(thread_, Thread::start("cable", [this](const std::stop_token& stop) { loop(stop); }));
  return {};
}

void FaultyCable::set(const Faults& faults) {
  std::lock_guard lock(mutex_);
  faults_ = faults;
}
void FaultyCable::flip_next(uint32_t least) { flip_least_ = least; }

void FaultyCable::loop(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Deadline next = Deadline::after(std::chrono::milliseconds(20));
    if (!late_.empty()) next = next.earlier(Deadline(late_.begin()->first));
    pollfd items[2] = {{ends_[0].get(), POLLIN, 0}, {ends_[1].get(), POLLIN, 0}};
    poll(items, 2, next.poll_milliseconds());
    for (int from = 0; from < 2; ++from) take(from);
    put_late();
  }
}

void FaultyCable::take(int from) {
  while (true) {
    std::vector<uint8_t> frame(kMostFrame);
    sockaddr_ll where{};
    socklen_t size = sizeof where;
    const ssize_t got =
        recvfrom(ends_[from].get(), frame.data(), frame.size(), MSG_TRUNC, reinterpret_cast<sockaddr*>(&where), &size);
    if (got < 0) return;
    if (where.sll_pkttype == PACKET_OUTGOING || static_cast<size_t>(got) > frame.size()) continue;
    frame.resize(static_cast<size_t>(got));
    treat(1 - from, std::move(frame));
  }
}

bool FaultyCable::chance(double of) { return of > 0 && std::uniform_real_distribution<>(0, 1)(random_) < of; }

void FaultyCable::treat(int to, std::vector<uint8_t> frame) {
  Segment segment = Segment::in(frame);
  if (segment.ip == nullptr) return put(to, frame);
  Faults faults;
  {
    std::lock_guard lock(mutex_);
    faults = faults_;
  }
  flip(segment);
  const bool hurts = segment.payload > 0;
  if (hurts && chance(faults.cut)) {
    ++hurt_;
    const auto left_out = static_cast<size_t>(random_() % segment.payload);
    segment.payload -= left_out;
    put_number(segment.ip + 2, number(segment.ip + 2, 2) - static_cast<uint32_t>(left_out));
    frame.resize(frame.size() - left_out);
  }
  segment.make_checksums_right();  // The kernel leaves that to hardware, which there is none of here.
  if (hurts && chance(faults.lost)) {
    ++hurt_;
    return;
  }
  const auto later = [&] {
    return Clock::now() + std::chrono::microseconds(random_() % (faults.most_late.count() * 1000));
  };
  if (hurts && chance(faults.repeated)) {
    ++hurt_;
    late_.emplace(later(), Late{to, frame});
  }
  if (hurts && chance(faults.late)) {
    ++hurt_;
    late_.emplace(later(), Late{to, std::move(frame)});
    return;
  }
  put(to, frame);
}

/// Only of what the receiver has not seen: what is sent again is thrown away, whatever it says.
void FaultyCable::flip(const Segment& segment) {
  const uint32_t first = number(segment.tcp + 4, 4), next = first + static_cast<uint32_t>(segment.payload);
  auto [known, fresh] = expected_.try_emplace(segment.connection(), first);
  const bool is_new = fresh || static_cast<int32_t>(first - known->second) >= 0;
  if (static_cast<int32_t>(next - known->second) > 0) known->second = next;
  const uint32_t least = flip_least_;
  if (least == 0 || !is_new || segment.payload < least) return;
  flip_least_ = 0;
  const uint64_t bit = random_() % (segment.payload * 8);
  segment.tcp[segment.header + bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  ++flipped_;
}

void FaultyCable::put(int to, const std::vector<uint8_t>& frame) {
  // A queue that is full loses a packet, as any does.
  if (send(ends_[to].get(), frame.data(), frame.size(), 0) >= 0) ++passed_;
}

void FaultyCable::put_late() {
  const Time now = Clock::now();
  while (!late_.empty() && late_.begin()->first <= now) {
    put(late_.begin()->second.to, late_.begin()->second.frame);
    late_.erase(late_.begin());
  }
}

}  // namespace horo::test
