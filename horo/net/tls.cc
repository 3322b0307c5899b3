#include "horo/net/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>

#include "horo/base/text.h"

namespace horo::net {
namespace {

constexpr char kCipher[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherId[2] = {0x13, 0x01};
constexpr char kGroup[] = "X25519";

std::string last_openssl_error() {
  unsigned long code = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : text("OpenSSL error ", code);
}

Status setup_failed(const char* what) {
  return {Code::kUnavailable, text("TLS cannot be set up (", what, "): ", last_openssl_error(),
                                   "; OpenSSL 3 with TLS 1.3, ", kCipher, " and ", kGroup, " is needed")};
}

}  // namespace

/// What OpenSSL calls.
struct TlsSession::Callbacks {
  static int offer_psk(SSL* ssl, const EVP_MD* digest, const unsigned char** id, size_t* size, SSL_SESSION** session);
  static int find_psk(SSL* ssl, const unsigned char* id, size_t size, SSL_SESSION** session);
  static int bio_read(BIO* bio, char* data, size_t size, size_t* moved);
  static int bio_write(BIO* bio, const char* data, size_t size, size_t* moved);
  static long bio_control(BIO* bio, int command, long number, void* pointer);
};

Result<std::shared_ptr<const Tls>> Tls::create() {
  std::shared_ptr<Tls> tls(new Tls);
  ERR_clear_error();
  HORO_TRY(tls->open());
  return std::shared_ptr<const Tls>(std::move(tls));
}

Status Tls::open() {
  context_ = SSL_CTX_new(TLS_method());
  if (context_ == nullptr) return setup_failed("context");
  if (SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context_, TLS1_3_VERSION) != 1) {
    return setup_failed("version");
  }
  if (SSL_CTX_set_ciphersuites(context_, kCipher) != 1) return setup_failed("cipher");
  if (SSL_CTX_set1_groups_list(context_, kGroup) != 1) return setup_failed("key exchange");
  SSL_CTX_set_options(context_, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  if (SSL_CTX_set_num_tickets(context_, 0) != 1) return setup_failed("tickets");
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_early_data(context_, 0);
  // Descriptors travel between records (Channel::send_descriptors): OpenSSL must not take what follows a record.
  SSL_CTX_set_read_ahead(context_, 0);
  SSL_CTX_set_mode(context_,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  // OpenSSL's own socket BIO writes with SIGPIPE.
  method_ = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "horo wire");
  if (method_ == nullptr || BIO_meth_set_read_ex(method_, TlsSession::Callbacks::bio_read) != 1 ||
      BIO_meth_set_write_ex(method_, TlsSession::Callbacks::bio_write) != 1 ||
      BIO_meth_set_ctrl(method_, TlsSession::Callbacks::bio_control) != 1) {
    return setup_failed("wire");
  }
  return {};
}

Tls::~Tls() {
  SSL_CTX_free(context_);
  BIO_meth_free(method_);
}

Result<std::unique_ptr<TlsSession>> TlsSession::connect(std::shared_ptr<const Tls> tls, Wire& wire,
                                                        std::vector<std::byte> identity, Key psk) {
  std::unique_ptr<TlsSession> session(new TlsSession(std::move(tls), wire));
  session->identity_ = std::move(identity);
  session->psk_ = std::move(psk);
  HORO_TRY(session->open(false));
  return session;
}

Result<std::unique_ptr<TlsSession>> TlsSession::accept(std::shared_ptr<const Tls> tls, Wire& wire, FindKey find_key) {
  std::unique_ptr<TlsSession> session(new TlsSession(std::move(tls), wire));
  session->find_key_ = std::move(find_key);
  HORO_TRY(session->open(true));
  return session;
}

Status TlsSession::open(bool server) {
  ERR_clear_error();
  ssl_ = SSL_new(tls_->context_);
  if (ssl_ == nullptr || SSL_set_app_data(ssl_, this) != 1) return setup_failed("session");
  BIO* bio = BIO_new(tls_->method_);
  if (bio == nullptr) return setup_failed("wire");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  if (server) {
    SSL_set_psk_find_session_callback(ssl_, Callbacks::find_psk);
    SSL_set_accept_state(ssl_);
  } else {
    // A server that shows a certificate instead of the key fails here: none is trusted.
    SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
    SSL_set_psk_use_session_callback(ssl_, Callbacks::offer_psk);
    SSL_set_connect_state(ssl_);
  }
  return {};
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

IoResult TlsSession::handshake() {
  ERR_clear_error();
  int result = SSL_do_handshake(ssl_);
  if (result != 1) return outcome(result, "handshake");
  psk_.reset();
  find_key_ = nullptr;
  // The one way to get here without the key would be a certificate, and none is trusted; but this is cheap.
  if (SSL_session_reused(ssl_) != 1 || SSL_version(ssl_) != TLS1_3_VERSION) {
    return IoResult::failed({Code::kUnauthenticated, "the TLS handshake ended without the pre-shared key"});
  }
  authenticated_ = true;
  return IoResult::moved(0);
}

IoResult TlsSession::receive(std::span<std::byte> into) {
  ERR_clear_error();
  size_t moved = 0;
  int result = SSL_read_ex(ssl_, into.data(), into.size(), &moved);
  return result == 1 ? IoResult::moved(moved) : outcome(result, "receiving");
}

IoResult TlsSession::send(std::span<const std::byte> data) {
  ERR_clear_error();
  size_t moved = 0;
  int result = SSL_write_ex(ssl_, data.data(), data.size(), &moved);
  return result == 1 ? IoResult::moved(moved) : outcome(result, "sending");
}

void TlsSession::close() {
  ERR_clear_error();
  if (authenticated_) SSL_shutdown(ssl_);
}

bool TlsSession::has_pending() const { return SSL_pending(ssl_) > 0; }

IoResult TlsSession::outcome(int result, const char* what) {
  wants_write_ = false;
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return IoResult::would_block();
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return IoResult::would_block();
    case SSL_ERROR_ZERO_RETURN:
      return IoResult::end();
    default:
      return failure(what);
  }
}

IoResult TlsSession::failure(const char* what) {
  if (!refusal_.ok()) return IoResult::failed(refusal_);
  if (!wire_error_.ok()) return IoResult::failed(wire_error_);
  if (wire_ended_ && authenticated_) {
    return IoResult::failed({Code::kPeerLost, "the connection ended without a goodbye"});
  }
  if (wire_ended_) {
    return IoResult::failed({Code::kPeerLost, "the connection was closed during the handshake"});
  }
  std::string reason = last_openssl_error();
  if (authenticated_) return IoResult::failed({Code::kCorrupt, text("TLS failed while ", what, ": ", reason)});
  // Whatever went wrong, the peer has not proven the key. An alert tells that the other side has found it out first.
  return IoResult::failed({Code::kUnauthenticated, reason});
}

Result<Key> TlsSession::export_key(std::string_view label, std::span<const std::byte> context) const {
  std::string full = text("EXPORTER-horo-", label);
  std::array<std::byte, Key::kBytes> bytes;
  ERR_clear_error();
  int result = SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(),
                                          full.data(), full.size(),
                                          reinterpret_cast<const unsigned char*>(context.data()), context.size(), 1);
  if (result != 1) {
    return Status(Code::kInvalidArgument, text("no key can be exported before the handshake: ", last_openssl_error()));
  }
  auto key = Key::from_bytes(bytes);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return key;
}

SSL_SESSION* TlsSession::psk_session(const Key& psk) const {
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl_, kCipherId);
  auto secret = psk.secret();
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(secret.data()), secret.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int TlsSession::Callbacks::offer_psk(SSL* ssl, const EVP_MD* digest, const unsigned char** id, size_t* size,
                                     SSL_SESSION** session) {
  auto* self = static_cast<TlsSession*>(SSL_get_app_data(ssl));
  *session = nullptr;
  // Asked again, with a digest, after a HelloRetryRequest; ours is always SHA-256.
  if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 0;
  *session = self->psk_session(*self->psk_);
  *id = reinterpret_cast<const unsigned char*>(self->identity_.data());
  *size = self->identity_.size();
  return *session != nullptr ? 1 : 0;
}

int TlsSession::Callbacks::find_psk(SSL* ssl, const unsigned char* id, size_t size, SSL_SESSION** session) {
  auto* self = static_cast<TlsSession*>(SSL_get_app_data(ssl));
  *session = nullptr;
  auto psk = self->find_key_(std::as_bytes(std::span(id, size)));
  if (!psk.ok()) {
    self->refusal_ = psk.status();
    return 0;
  }
  *session = self->psk_session(*psk);
  return *session != nullptr ? 1 : 0;
}

int TlsSession::Callbacks::bio_read(BIO* bio, char* data, size_t size, size_t* moved) {
  auto* self = static_cast<TlsSession*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  *moved = 0;
  if (size == 0) return 0;
  IoResult result = self->wire_.receive(std::as_writable_bytes(std::span(data, size)));
  *moved = result.bytes();
  if (result.is_would_block()) BIO_set_retry_read(bio);
  if (result.is_end()) self->wire_ended_ = true;
  if (result.is_failed()) self->wire_error_ = result.status();
  return result.is_moved() ? 1 : 0;
}

int TlsSession::Callbacks::bio_write(BIO* bio, const char* data, size_t size, size_t* moved) {
  auto* self = static_cast<TlsSession*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  *moved = 0;
  IoResult result = self->wire_.send(std::as_bytes(std::span(data, size)));
  *moved = result.bytes();
  if (result.is_would_block()) BIO_set_retry_write(bio);
  if (result.is_failed()) self->wire_error_ = result.status();
  return result.is_moved() ? 1 : 0;
}

long TlsSession::Callbacks::bio_control(BIO* bio, int command, long, void*) {
  switch (command) {
    case BIO_CTRL_FLUSH:
      return 1;  // nothing is held back
    case BIO_CTRL_EOF:
      return static_cast<TlsSession*>(BIO_get_data(bio))->wire_ended_ ? 1 : 0;
    default:
      return 0;
  }
}

}  // namespace horo::net
