// The inside of a Channel: handshake, then messages, over one TLS session.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/net/channel.h"

namespace horo::net {

/// A socket that stops reading once an allowance is used up.
class SocketWire final : public Wire {
 public:
  SocketWire(Socket socket, size_t allowance, std::vector<std::byte> received_before)
      : socket_(std::move(socket)), allowance_(allowance), limit_(allowance), before_(std::move(received_before)) {}
  IoResult receive(std::span<std::byte> into) override;
  IoResult send(std::span<const std::byte> data) override { return socket_.send(data); }
  void allow_everything() { allowance_ = SIZE_MAX; }
  Socket& socket() { return socket_; }

 private:
  Socket socket_;
  size_t allowance_;
  size_t limit_;
  std::vector<std::byte> before_;
};

/// Bytes that wait to be sent.
class Outbox {
 public:
  void add(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  std::span<const std::byte> front() const { return std::span(bytes_).subspan(sent_); }
  size_t size() const { return bytes_.size() - sent_; }
  void drop(size_t count);

 private:
  std::vector<std::byte> bytes_;
  size_t sent_ = 0;
};

struct Channel::State {
  enum class Phase : uint8_t { kTls, kHello, kReady, kFailed };

  State(Socket socket, ChannelOptions chosen, bool is_connector);
  Status progress(Time now);
  Result<std::optional<Message>> receive();

  Status step_tls();
  Status step_hello();
  Status judge_as_acceptor();
  Status judge_as_connector();
  Status flush_some();
  /// Whether `into` is filled from `filled` on; false when it would block.
  Result<bool> fill(std::span<std::byte> into, size_t& filled);
  Status failed(Status why);
  std::string peer() const;
  Result<Key> find_key(std::span<const std::byte> encoded);

  SocketWire wire;
  ChannelOptions options;
  const bool connector;
  Deadline deadline;
  std::unique_ptr<TlsSession> tls;
  Phase phase = Phase::kTls;
  Status failure;

  // The accepting side needs these during the handshake.
  std::shared_ptr<const Key> key;
  std::string job;
  Admit admit;

  Identity identity;
  Hello theirs;
  uint16_t version = 0;
  Outbox outbox;
  bool flush_blocked = false;

  // What is being received: a prefix or header first, then a body.
  std::array<std::byte, FrameHeader::kBytes> head{};
  size_t head_filled = 0;
  std::optional<FrameHeader> header;
  std::optional<size_t> hello_length;
  std::vector<std::byte> body;
  size_t body_filled = 0;
};

}  // namespace horo::net
