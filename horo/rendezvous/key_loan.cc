#include "horo/rendezvous/key_loan.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "horo/base/text.h"
#include "horo/net/fd.h"
#include "horo/net/system_error.h"
#include "horo/rendezvous/knobs.h"

namespace horo::rendezvous {

namespace {

constexpr int kAboveStandard = 3;

/// Reads it through a duplicate, so that the number stays taken: another file that got it could not be told from ours.
Result<net::Key> read_key(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, kAboveStandard);
  if (copy < 0) return net::system_error(text("the key on descriptor ", fd, " (HORO_KEY_FD)"), errno);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  auto key = net::Key::from_fd(copy);
  if (!key.ok()) close(fd);
  return key;
}

}  // namespace

Result<KeyLoan> KeyLoan::take(const Config& config) {
  const std::string file = config.get(kKeyFile);
  const int fd = static_cast<int>(config.get(kKeyFd));
  if (fd < 0) {
    HORO_ASSIGN(net::Key key, file.empty() ? net::Key::none() : net::Key::from_file(file));
    return KeyLoan(std::make_shared<const net::Key>(std::move(key)), -1);
  }
  // The descriptor is taken in any case: nothing that this process starts later may inherit it.
  HORO_ASSIGN(net::Key key, read_key(fd));
  KeyLoan loan(std::make_shared<const net::Key>(std::move(key)), fd);
  if (file.empty()) return loan;
  loan.keep();
  return Status(Code::kInvalidArgument,
                text("HORO_KEY_FILE (", file, ") and HORO_KEY_FD (", fd, ") are both set; set one"));
}

KeyLoan::KeyLoan(KeyLoan&& other) noexcept : key_(std::move(other.key_)), fd_(std::exchange(other.fd_, -1)) {}

KeyLoan::~KeyLoan() {
  if (fd_ >= 0) put_back();
}

void KeyLoan::keep() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void KeyLoan::put_back() const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;  // The next attempt will say that the key is not there.
  const net::UniqueFd from(ends[0]), to(ends[1]);
  const auto secret = key_->secret();
  const bool written = write(to.get(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
  if (written) dup3(from.get(), fd_, O_CLOEXEC);
}

}  // namespace horo::rendezvous
