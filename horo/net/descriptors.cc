// Descriptors that travel over Unix sockets.
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "horo/base/text.h"
#include "horo/net/socket.h"
#include "horo/net/system_error.h"

namespace horo::net {
namespace {

/// Room for more than is ever expected, so that a peer that sends too many is noticed and its descriptors are closed
/// here (the kernel closes those that do not fit).
constexpr size_t kRoom = kMostDescriptors + 1;

struct alignas(cmsghdr) Ancillary {
  std::array<char, CMSG_SPACE(kRoom * sizeof(int))> bytes{};
};

/// Owns every descriptor that the message brought, whatever else is wrong with it.
std::vector<UniqueFd> take(msghdr& message) {
  std::vector<UniqueFd> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      taken.emplace_back(fd);
    }
  }
  return taken;
}

}  // namespace

IoResult Socket::send_descriptors(std::span<const std::byte> data, std::span<const int> descriptors) const {
  if (data.empty() || descriptors.empty() || descriptors.size() > kMostDescriptors) {
    return IoResult::failed({Code::kInvalidArgument,
                             text("a message carries 1 to ", kMostDescriptors, " descriptors and at least 1 byte, not ",
                                  descriptors.size(), " and ", data.size())});
  }
  Ancillary ancillary;
  iovec part{const_cast<std::byte*>(data.data()), data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  ssize_t result = 0;
  while ((result = ::sendmsg(fd(), &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (result >= 0) return IoResult::moved(static_cast<size_t>(result));
  if (errno == EAGAIN || errno == EWOULDBLOCK) return IoResult::would_block();
  // ETOOMANYREFS: too many descriptors are under way on sockets of this user.
  return IoResult::failed(system_error(text("sending ", descriptors.size(), " descriptors"), errno));
}

IoResult Socket::receive_descriptors(std::span<std::byte> into, size_t expected,
                                     std::vector<UniqueFd>& descriptors) const {
  HORO_CHECK(!into.empty() && expected <= kMostDescriptors, "descriptors arrive with at least one byte");
  Ancillary ancillary;
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes.data();
  message.msg_controllen = ancillary.bytes.size();
  ssize_t result = 0;
  while ((result = ::recvmsg(fd(), &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (result < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return IoResult::would_block();
    return IoResult::failed(system_error("receiving descriptors", errno));
  }
  std::vector<UniqueFd> taken = take(message);
  if (result == 0) return IoResult::end();
  // Truncated also when this process could not take all of them (its limit of descriptors).
  bool truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  if (truncated && taken.size() < expected) {
    return IoResult::failed(
        system_error(text("receiving ", expected, " descriptors, of which ", taken.size(), " came"), EMFILE));
  }
  if (taken.size() != expected || truncated) {
    return IoResult::failed({Code::kCorrupt, text("expected ", expected, " descriptors, ", taken.size(),
                                                  truncated ? " or more" : "", " came")});
  }
  for (UniqueFd& fd : taken) descriptors.push_back(std::move(fd));
  return IoResult::moved(static_cast<size_t>(result));
}

}  // namespace horo::net
