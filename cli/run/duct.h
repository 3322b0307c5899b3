// Messages over a pair of descriptors: a socket pair to an agent on this host, the two pipes of ssh to one elsewhere.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/run/message.h"

#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::cli::launch {

struct Message {
  MessageType type{};
  std::vector<std::byte> payload;
};

/// Finds whole messages in a stream of bytes. Knows nothing of descriptors.
class MessageCutter {
 public:
  /// `greeted`: everything up to the greeting is passed over (and kept as noise()).
  explicit MessageCutter(bool greeted) : awaits_greeting_(greeted) {}

  void add(std::span<const std::byte> bytes);
  /// kCorrupt for a length beyond kMostMessage or a type of zero, or when the greeting does not come.
  Result<std::optional<Message>> next();
  const std::string& noise() const { return noise_; }
  /// Bytes that wait for the rest of their message.
  size_t waiting() const { return buffer_.size() - at_; }

 private:
  Status look_for_greeting();

  bool awaits_greeting_;
  std::string noise_;
  std::vector<std::byte> buffer_;
  size_t at_ = 0;
};

/// Non-blocking. Used by one thread.
class Duct {
 public:
  /// `write` may be the same descriptor as `read` (a duplicate is made). Both become non-blocking.
  static Result<Duct> adopt(net::UniqueFd read, net::UniqueFd write, bool greeted);

  int read_fd() const { return read_.get(); }
  int write_fd() const { return write_.get(); }

  /// Reads what is there. False when the other side has ended. kPeerLost when it broke.
  Result<bool> fill();
  Result<std::optional<Message>> next() { return cutter_.next(); }
  const std::string& noise() const { return cutter_.noise(); }

  void send(MessageType type, std::span<const std::byte> payload);
  void send_greeting();
  /// Writes what can be written now. kPeerLost when nobody reads any more.
  Status flush();
  size_t queued() const { return queue_.size() - sent_; }

 private:
  Duct(net::UniqueFd read, net::UniqueFd write, bool greeted)
      : read_(std::move(read)), write_(std::move(write)), cutter_(greeted) {}

  net::UniqueFd read_;
  net::UniqueFd write_;
  MessageCutter cutter_;
  std::vector<std::byte> queue_;
  size_t sent_ = 0;
};

}  // namespace horo::cli::launch
