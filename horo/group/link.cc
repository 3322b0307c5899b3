#include "horo/group/link.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "horo/base/text.h"
#include "horo/net/codec.h"
#include "horo/net/dial.h"

namespace horo::group {

namespace {

constexpr size_t kDescriptors = 4;
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // Linux 5.3; the same number on every architecture.
#endif

net::FrameHeader header_of(ControlType type) {
  net::FrameHeader header;
  header.type = static_cast<uint8_t>(type);
  return header;
}

Status pass_memory(net::Channel& channel, const Memory& memory, Deadline deadline) {
  net::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!process) return {Code::kUnavailable, text("cannot open a pidfd: ", std::strerror(errno))};
  net::Writer about;
  about.u64(memory.segment().memory().size());
  about.u64(memory.buffers().memory().size());
  about.u64(memory.region().memory().size());
  about.raw(memory.header().nonce);
  about.u64(reinterpret_cast<uintptr_t>(memory.header().nonce.data()));
  HORO_TRY(channel.send(header_of(ControlType::kDescriptors), about.data()));
  HORO_TRY(channel.flush(deadline));
  const std::array<int, kDescriptors> descriptors = {memory.segment().peer_fd().get(), memory.buffers().fd().get(),
                                                     memory.region().fd().get(), process.get()};
  return channel.send_descriptors(descriptors, deadline);
}

/// Asks the kernel who is at the other end: the peer may have another number where it lives.
std::optional<transport::Process> unshared_memory(const net::Channel& channel, uint64_t nonce_at,
                                                  const transport::Process::Proof& nonce) {
  const auto peer = channel.socket().peer_credentials();
  if (!peer.ok() || peer->pid <= 0) return std::nullopt;
  const transport::Process process(peer->pid, nonce_at, nonce);
  if (process.try_to_read() != 0) return std::nullopt;
  return process;
}

Result<PeerMemory> take_memory(const Self& self, net::Channel& channel, Deadline deadline) {
  HORO_ASSIGN(net::Message message, channel.receive(deadline));
  if (message.header.type != static_cast<uint8_t>(ControlType::kDescriptors)) {
    return Status(Code::kCorrupt,
                  text("expected a peer's shared memory, got a frame of type ", int{message.header.type}));
  }
  net::Reader about(message.payload, "a peer's shared memory");
  const uint64_t segment_bytes = about.u64();
  const uint64_t buffers_bytes = about.u64();
  const uint64_t region_bytes = about.u64();
  transport::Process::Proof nonce;
  const auto nonce_bytes = about.raw(nonce.size());
  const uint64_t nonce_at = about.u64();
  HORO_TRY(about.finish());
  std::copy(nonce_bytes.begin(), nonce_bytes.end(), nonce.begin());
  if (region_bytes < sizeof(RegionHeader) || region_bytes > Memory::kRegionBytes ||
      std::max(segment_bytes, buffers_bytes) > uint64_t{1} << 44) {
    return Status(Code::kCorrupt, "a peer announced shared memory of an impossible size");
  }
  HORO_ASSIGN(auto descriptors, channel.receive_descriptors(kDescriptors, deadline));
  using transport::shm::Access;
  PeerMemory memory;
  HORO_ASSIGN(memory.segment, transport::shm::map_peer(descriptors[0], segment_bytes, Access::kRead));
  HORO_ASSIGN(memory.buffers, transport::shm::map_peer(descriptors[1], buffers_bytes, Access::kReadWrite));
  HORO_ASSIGN(memory.region, transport::shm::map_peer(descriptors[2], region_bytes, Access::kReadWrite));
  memory.process = std::move(descriptors[3]);
  if (memory.header().nonce != nonce) {
    return Status(Code::kCorrupt, "the memory a peer passed is not the one it announced");
  }
  if (self.reads_peers) memory.unshared = unshared_memory(channel, nonce_at, nonce);
  return memory;
}

/// Both sides encrypt or neither does, or their Hellos would not have fitted.
net::Protection protection_of(const net::Channel& channel) {
  const uint64_t both = channel.mine().features & channel.theirs().features;
  if ((both & net::feature::kEncryptsData) == 0) return net::Protection::kChecksum;
  return (both & net::feature::kFastAes) != 0 ? net::Protection::kAesGcm : net::Protection::kChaChaPoly;
}

Result<Link> link_of(int rank, net::Channel channel, std::optional<PeerMemory> memory) {
  HORO_ASSIGN(auto outgoing, net::attach_keys(channel, net::Attaching::kOutgoing));
  HORO_ASSIGN(auto incoming, net::attach_keys(channel, net::Attaching::kIncoming));
  const net::Protection protection = protection_of(channel);
  return Link{.rank = rank,
              .channel = std::move(channel),
              .protection = protection,
              .memory = std::move(memory),
              .outgoing = std::make_unique<net::AttachKeys>(std::move(outgoing)),
              .incoming = std::make_unique<net::AttachKeys>(std::move(incoming))};
}

}  // namespace

net::ChannelOptions Self::channel_options() const {
  net::ChannelOptions options;
  options.hello = net::local_hello(static_cast<net::Member>(rank), 0);
  if (net::has_fast_aes()) options.hello.features |= net::feature::kFastAes;
  if (encrypt) {
    options.hello.features |= net::feature::kEncryptsData;
    options.hello.required_features |= net::feature::kEncryptsData;
  }
  return options;
}

Result<Link> connect_link(const Self& self, const PeerAddress& mine, const PeerAddress& peer, Deadline deadline) {
  const bool shares = self.memory != nullptr && mine.host == peer.host && peer.local.is_unix();
  const net::Address& to = shares ? peer.local : peer.tcp;
  auto link = [&]() -> Result<Link> {
    const net::Identity identity{self.job, net::Purpose::kControl, 0, static_cast<net::Member>(self.rank),
                                 static_cast<net::Member>(peer.rank)};
    HORO_ASSIGN(net::Channel channel, net::dial([&] { return net::Socket::connect(to, deadline); },
                                                {self.tls, *self.key, identity, self.channel_options()}, deadline));
    std::optional<PeerMemory> memory;
    if (shares) {
      HORO_TRY(pass_memory(channel, *self.memory, deadline));
      HORO_ASSIGN(memory, take_memory(self, channel, deadline));
    }
    return link_of(peer.rank, std::move(channel), std::move(memory));
  }();
  if (link.ok()) return link;
  return link.status().prefixed(
      text("rank ", self.rank, " cannot reach rank ", peer.rank, " (", peer.description, ") at ", to.to_string()));
}

Result<Link> accept_link(const Self& self, net::Channel channel, Deadline deadline) {
  const auto rank = static_cast<int>(channel.identity().connector);
  std::optional<PeerMemory> memory;
  HORO_ASSIGN(const net::Address at, channel.socket().local_address());
  if (at.is_unix()) {
    if (self.memory == nullptr) return Status(Code::kInternal, "a peer came for shared memory that this rank has not");
    HORO_ASSIGN(memory, take_memory(self, channel, deadline));
    HORO_TRY(pass_memory(channel, *self.memory, deadline));
  }
  return link_of(rank, std::move(channel), std::move(memory));
}

}  // namespace horo::group
