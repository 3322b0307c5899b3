#include "horo/net/poller.h"

#include <poll.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <ctime>

#include "horo/base/text.h"
#include "horo/net/system_error.h"

namespace horo::net {
namespace {

constexpr int kMostEvents = 64;
constexpr size_t kMostItems = 256;

timespec to_timespec(Duration span) {
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(span);
  return {static_cast<time_t>(seconds.count()),
          static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(span - seconds).count())};
}

Status interrupted() { return {Code::kInterrupted, "a signal arrived during a wait"}; }

}  // namespace

Result<Poller> Poller::create() {
  UniqueFd fd(epoll_create1(EPOLL_CLOEXEC));
  if (!fd) return system_error("opening an epoll descriptor", errno);
  return Poller(std::move(fd));
}

Status Poller::control(int operation, const char* what, int fd, Interest interest, uint64_t token) {
  epoll_event event{};
  event.events = (wants_read(interest) ? EPOLLIN | EPOLLRDHUP : 0u) | (wants_write(interest) ? EPOLLOUT : 0u);
  event.data.u64 = token;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return {};
  return system_error(text(what, " descriptor ", fd, " of a poller"), errno);
}

Status Poller::add(int fd, Interest interest, uint64_t token) {
  return control(EPOLL_CTL_ADD, "adding", fd, interest, token);
}

Status Poller::modify(int fd, Interest interest, uint64_t token) {
  return control(EPOLL_CTL_MOD, "modifying", fd, interest, token);
}

Status Poller::remove(int fd) { return control(EPOLL_CTL_DEL, "removing", fd, Interest::kNone, 0); }

Result<std::span<const Event>> Poller::wait(Deadline deadline, OnSignal on_signal) {
  std::array<epoll_event, kMostEvents> ready;
  int count = 0;
  while ((count = epoll_wait(epoll_.get(), ready.data(), kMostEvents, deadline.poll_milliseconds())) < 0) {
    if (errno != EINTR) return system_error("waiting for descriptors", errno);
    if (on_signal == OnSignal::kReturn) return interrupted();
  }
  events_.clear();
  for (int i = 0; i < count; ++i) {
    uint32_t bits = ready[i].events;
    // A closed peer is readable too: reading tells whether it ended or failed.
    bool gone = (bits & (EPOLLHUP | EPOLLERR)) != 0;
    events_.push_back(
        {ready[i].data.u64, (bits & (EPOLLIN | EPOLLRDHUP)) != 0 || gone, (bits & EPOLLOUT) != 0 || gone, gone});
  }
  return std::span<const Event>(events_);
}

Result<size_t> poll_many(std::span<PollItem> items, Deadline deadline, OnSignal on_signal) {
  HORO_CHECK(items.size() <= kMostItems, "poll_many is for a handful of descriptors");
  std::array<pollfd, kMostItems> fds;
  for (size_t i = 0; i < items.size(); ++i) {
    short bits = static_cast<short>((wants_read(items[i].interest) ? POLLIN : 0) |
                                    (wants_write(items[i].interest) ? POLLOUT : 0));
    fds[i] = {items[i].fd, bits, 0};
  }
  int count = 0;
  while (true) {
    timespec left = deadline.is_never() ? timespec{} : to_timespec(deadline.remaining());
    count = ppoll(fds.data(), items.size(), deadline.is_never() ? nullptr : &left, nullptr);
    if (count >= 0) break;
    if (errno != EINTR) return system_error("waiting for descriptors", errno);
    if (on_signal == OnSignal::kReturn) return interrupted();
  }
  for (size_t i = 0; i < items.size(); ++i) {
    short bits = fds[i].revents;
    if ((bits & POLLNVAL) != 0) return system_error(text("waiting for descriptor ", items[i].fd), EBADF);
    bool gone = (bits & (POLLHUP | POLLERR)) != 0;
    items[i].readable = (bits & POLLIN) != 0 || (gone && wants_read(items[i].interest));
    items[i].writable = (bits & POLLOUT) != 0 || (gone && wants_write(items[i].interest));
    items[i].hung_up = gone;
  }
  return static_cast<size_t>(count);
}

Status wait_ready(int fd, Interest interest, Deadline deadline, const char* what) {
  PollItem item{fd, interest};
  HORO_ASSIGN(size_t ready, poll_many({&item, 1}, deadline));
  if (ready > 0) return {};
  return {Code::kTimeout, text(what, ": nothing happened before the deadline")};
}

}  // namespace horo::net
