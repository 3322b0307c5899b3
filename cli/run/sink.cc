#include "cli/run/sink.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/net/system_error.h"

namespace horo::cli::launch {

namespace {

/// Written bytes are dropped from the front of the queue once they are this many.
constexpr size_t kWorthMoving = 1 << 20;

}  // namespace

Sink Sink::of(int descriptor) {
  struct stat found {};
  fstat(descriptor, &found);
  const bool is_file = S_ISREG(found.st_mode);
  if (is_file) return Sink(descriptor, {}, false);
  // Opened once more, a pipe or terminal has flags of its own. Sockets cannot be, nor what belongs to somebody else: to
  // those we write as much as a ready pipe takes for sure.
  net::UniqueFd again(open(text("/proc/self/fd/", descriptor).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  const bool may_block = !again.valid();
  const int fd = may_block ? descriptor : again.get();
  return Sink(fd, std::move(again), may_block);
}

Status Sink::flush() {
  while (queued() > 0) {
    const bool ready = !may_block_ || net::wait_ready(fd_, net::Interest::kWrite, Deadline(Time{}), "output").ok();
    if (!ready) break;
    const size_t most = may_block_ ? std::min<size_t>(queued(), PIPE_BUF) : queued();
    const ssize_t count = write(fd_, queue_.data() + written_, most);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      // A full disk is no reason to end a job that may run for days: what does not fit is left out.
      written_ = queue_.size();
      break;
    }
    if (count < 0) return net::system_error("writing output", errno);
    written_ += static_cast<size_t>(count);
  }
  if (queued() == 0 || written_ >= kWorthMoving) {
    queue_.erase(0, written_);
    written_ = 0;
  }
  return {};
}

bool same_target(int one, int other) {
  struct stat a {
  }, b{};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace horo::cli::launch
