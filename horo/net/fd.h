// A file descriptor with one owner.
#pragma once

#include <utility>

namespace horo::net {

/// Closes its descriptor when it goes. Everything under net opens descriptors close-on-exec.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) { track(fd); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  explicit operator bool() const { return valid(); }
  /// Gives the descriptor away; the caller closes it.
  [[nodiscard]] int release() {
    untrack(fd_);
    return std::exchange(fd_, -1);
  }
  /// Closes the present descriptor and owns `fd` from now on. Keeps errno.
  void reset(int fd = -1);

 private:
  static void track(int fd);
  static void untrack(int fd);

  int fd_ = -1;
};

/// Closes every descriptor that a UniqueFd of this process owns. Only for a forked child, which has no use for them and
/// never touches their owners again. Safe between fork and exec.
void close_all_descriptors();

}  // namespace horo::net
