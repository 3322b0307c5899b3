// TLS 1.3 with a pre-shared key and nothing else, over anything that moves bytes.
//
// Only what is needed is on: TLS 1.3, TLS_AES_128_GCM_SHA256, X25519, psk_dhe_ke. There are no certificates, session
// tickets, resumption, renegotiation or early data. The key exchange is fresh for every connection, so that recorded
// traffic stays secret when the job's key leaks later.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "horo/base/status.h"
#include "horo/net/io_result.h"
#include "horo/net/key.h"

// OpenSSL's types, without its headers for everyone who includes this one.
struct bio_method_st;
struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace horo::net {

/// Where the bytes of a TlsSession come from and go to. Non-blocking.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual IoResult receive(std::span<std::byte> into) = 0;
  virtual IoResult send(std::span<const std::byte> data) = 0;
};

/// Settings without secrets, shared by any number of sessions and threads.
class Tls {
 public:
  static Result<std::shared_ptr<const Tls>> create();
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

 private:
  friend class TlsSession;
  Tls() = default;
  Status open();

  ssl_ctx_st* context_ = nullptr;
  bio_method_st* method_ = nullptr;
};

class TlsSession {
 public:
  /// The pre-shared key of an identity, or why it is refused.
  using FindKey = std::function<Result<Key>(std::span<const std::byte> identity)>;

  /// `wire` must outlive the session.
  static Result<std::unique_ptr<TlsSession>> connect(std::shared_ptr<const Tls> tls, Wire& wire,
                                                     std::vector<std::byte> identity, Key psk);
  static Result<std::unique_ptr<TlsSession>> accept(std::shared_ptr<const Tls> tls, Wire& wire, FindKey find_key);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// moved(0) when done: both sides have proven the key. kUnauthenticated when they have not.
  IoResult handshake();
  /// Plain bytes in and out. kEnd when the peer said goodbye; kPeerLost when the stream ended without. Never takes more
  /// from the wire than one record at a time.
  IoResult receive(std::span<std::byte> into);
  IoResult send(std::span<const std::byte> data);
  /// Says goodbye, if the wire takes it at once.
  void close();

  /// What the last call that would block waits for.
  bool wants_write() const { return wants_write_; }
  /// Decrypted bytes that receive() returns without touching the wire.
  bool has_pending() const;
  /// A key that only the two ends of this session know (RFC 8446, 7.5).
  Result<Key> export_key(std::string_view label, std::span<const std::byte> context) const;

 private:
  explicit TlsSession(std::shared_ptr<const Tls> tls, Wire& wire) : tls_(std::move(tls)), wire_(wire) {}
  Status open(bool server);
  IoResult outcome(int result, const char* what);
  IoResult failure(const char* what);
  ssl_session_st* psk_session(const Key& psk) const;

  struct Callbacks;
  friend class Tls;

  const std::shared_ptr<const Tls> tls_;
  Wire& wire_;
  ssl_st* ssl_ = nullptr;
  bool authenticated_ = false;  // OpenSSL forgets it after a fatal error
  bool wants_write_ = false;
  bool wire_ended_ = false;
  Status wire_error_;  // of the wire; says more than OpenSSL's
  Status refusal_;     // of find_key_
  std::vector<std::byte> identity_;
  std::optional<Key> psk_;  // gone after the handshake
  FindKey find_key_;
};

}  // namespace horo::net
