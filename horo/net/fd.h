// A file descriptor with one owner.
#pragma once

#include <utility>

namespace horo::net {

/// Closes its descriptor when it goes. Everything under net opens descriptors close-on-exec.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
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
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  /// Closes the present descriptor and owns `fd` from now on. Keeps errno.
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

}  // namespace horo::net
