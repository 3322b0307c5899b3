#include "cli/run/duct.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "horo/base/text.h"
#include "horo/net/codec.h"
#include "horo/net/system_error.h"

namespace horo::cli::launch {

namespace {

constexpr size_t kHeaderBytes = 5;
constexpr size_t kMostNoise = 64 << 10;
constexpr size_t kReadBytes = 256 << 10;
/// Sent bytes are dropped from the front of the queue once they are this many.
constexpr size_t kWorthMoving = 1 << 20;

Status make_non_blocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return net::system_error("preparing the channel to an agent", errno);
  }
  return {};
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void MessageCutter::add(std::span<const std::byte> bytes) {
  if (at_ > 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(at_));
    at_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Status MessageCutter::look_for_greeting() {
  const std::string_view all = text_of(buffer_);
  const size_t found = all.find(kGreeting);
  if (found != all.npos) {
    noise_ = all.substr(0, found);
    at_ = found + kGreeting.size();
    awaits_greeting_ = false;
    return {};
  }
  noise_ = all;
  if (all.size() <= kMostNoise) return {};
  return {Code::kCorrupt, text("what answers is no agent of horo: it said '", noise_.substr(0, 200), "'")};
}

Result<std::optional<Message>> MessageCutter::next() {
  if (awaits_greeting_) HORO_TRY(look_for_greeting());
  if (awaits_greeting_ || waiting() < kHeaderBytes) return std::optional<Message>();
  const auto rest = std::span(buffer_).subspan(at_);
  net::Reader header(rest.first(kHeaderBytes), "a message between launcher and agent");
  const uint32_t length = header.u32();
  const uint8_t type = header.u8();
  if (length > kMostMessage || type == 0) {
    return Status(Code::kCorrupt, text("a message of ", length, " bytes and type ", int{type},
                                       " between launcher and agent; at most ", kMostMessage, " bytes are taken"));
  }
  if (rest.size() < kHeaderBytes + length) return std::optional<Message>();
  const auto payload = rest.subspan(kHeaderBytes, length);
  at_ += kHeaderBytes + length;
  return std::optional<Message>(Message{static_cast<MessageType>(type), {payload.begin(), payload.end()}});
}

Result<Duct> Duct::adopt(net::UniqueFd read, net::UniqueFd write, bool greeted) {
  HORO_TRY(make_non_blocking(read.get()));
  HORO_TRY(make_non_blocking(write.get()));
  return Duct(std::move(read), std::move(write), greeted);
}

Result<bool> Duct::fill() {
  std::array<std::byte, kReadBytes> bytes;
  ssize_t got = 0;
  while ((got = ::read(read_.get(), bytes.data(), bytes.size())) < 0 && errno == EINTR) {
  }
  if (got > 0) cutter_.add(std::span(bytes).first(static_cast<size_t>(got)));
  if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
    return net::system_error("reading from the other side", errno);
  return got != 0;
}

void Duct::send(MessageType type, std::span<const std::byte> payload) {
  HORO_CHECK(payload.size() <= kMostMessage, "messages are bounded by their encoders");
  net::Writer header;
  header.u32(static_cast<uint32_t>(payload.size()));
  header.u8(static_cast<uint8_t>(type));
  queue_.insert(queue_.end(), header.data().begin(), header.data().end());
  queue_.insert(queue_.end(), payload.begin(), payload.end());
}

void Duct::send_greeting() {
  const auto bytes = std::as_bytes(std::span(kGreeting));
  queue_.insert(queue_.end(), bytes.begin(), bytes.end());
}

Status Duct::flush() {
  while (queued() > 0) {
    const ssize_t count = ::write(write_.get(), queue_.data() + sent_, queued());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count < 0) return net::system_error("writing to the other side", errno);
    sent_ += static_cast<size_t>(count);
  }
  if (queued() == 0 || sent_ >= kWorthMoving) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(sent_));
    sent_ = 0;
  }
  return {};
}

}  // namespace horo::cli::launch
